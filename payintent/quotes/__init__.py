"""Payable methods, and the price of each."""
