"""The Stripe adapter."""
