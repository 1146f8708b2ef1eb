"""What benchmarks/early_stopping.py is made of."""
