"""Attempts to pay through a gateway: open, query, settle and expire payment sessions."""
