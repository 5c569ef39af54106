"""The demo shop: a merchant as its own engineer would write it, over the public HTTP API alone."""
