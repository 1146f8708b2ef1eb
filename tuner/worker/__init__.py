"""The worker side: orders, the warm parent, the trial process, and who runs them."""
