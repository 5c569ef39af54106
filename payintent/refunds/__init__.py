"""Refunds of payments and of cases."""
