"""What people see of a study: the live progress display, status and best texts, exports."""
