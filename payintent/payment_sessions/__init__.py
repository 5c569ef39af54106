"""Attempts to pay at a gateway: open, query, settle and expire payment sessions."""
