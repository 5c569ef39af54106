"""Payer data: lookup, erasure, retention and key rotation."""
