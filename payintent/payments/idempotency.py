"""Idempotency keys: how a repeated request is recognised."""

import hashlib

import msgspec


def request_fingerprint(operation: str, *known_fields: object) -> bytes:
    """Tell requests apart: equal for the same operation and the same fields as they were sent."""
    return hashlib.sha256(msgspec.json.encode([operation, *known_fields])).digest()
