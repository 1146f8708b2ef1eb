"""Parts of benchmarks/early_stopping.py and search_with_stopping.py."""
