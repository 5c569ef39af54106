"""Payer data: export, erasure, retention, sealing and key rotation."""
