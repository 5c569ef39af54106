"""Merchants: profile, activation, API keys, payment methods, prices, limits and taxes."""
