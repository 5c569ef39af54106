"""The demo, which creates a payment for each final status in a running sandbox."""
