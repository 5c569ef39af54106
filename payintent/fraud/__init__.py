"""Fraud rules and the denials they cause."""
