"""Attempts to pay at a gateway: open, inquire, settle and expire."""
