"""The migrations of the shop's tables."""
