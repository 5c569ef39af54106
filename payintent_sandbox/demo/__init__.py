"""The demo: a payment for each final status, against a running sandbox."""
