"""`hptune doctor`: whether hptune will work here, and what to do where it will not."""
