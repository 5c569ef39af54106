"""Payment gateway adapters, which implement the `Gateway` protocol of `port.py`."""
