"""The timeline of a payment."""
