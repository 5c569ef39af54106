"""Stripe: the adapter and its API types."""
