"""The demo: every ending of a payment, against a running sandbox."""
