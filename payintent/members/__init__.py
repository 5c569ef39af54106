"""Users of the merchant portal."""
