"""The same short trials, run by different tools; ../trial_overhead.py measures them."""
