"""Fraud rules and the denials that they cause."""
