"""The gateway Stripe."""
