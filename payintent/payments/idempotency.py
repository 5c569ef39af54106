"""Idempotency keys: how a repeated request is recognised, and how a key is claimed."""

import hashlib

import msgspec

from payintent.domain.errors import ErrorCode, RefusedError
from payintent.domain.payment import IdempotentRequest
from payintent.storage import idempotency
from payintent.storage.database import Tx
from payintent.storage.idempotency import FirstRequest

_VERSION = b"\x01"  # first byte of every stored fingerprint; a new rule needs a new version
_MESSAGE = "the Idempotency-Key was used with another request"


def request_fingerprint(operation: str, **fields: object) -> bytes:
    """Return the version and the SHA-256 digest of what a request means.

    Pass parsed values with defaults filled in. `None` is left out, so that a field added later
    does not change the fingerprints of requests without it.
    """
    meaning = {name: value for name, value in fields.items() if value is not None}
    encoded = msgspec.json.encode([operation, meaning], order="sorted")
    return _VERSION + hashlib.sha256(encoded).digest()


async def claim_or_match(
    tx: Tx, operation: str, request: IdempotentRequest, first: FirstRequest
) -> FirstRequest | None:
    """Claim a key for this transaction's work, or return the first request that used it.

    Raises `IDEMPOTENCY_CONFLICT` if the key was used with another request.
    """
    if await idempotency.claim_key(tx, request.merchant_id, operation, request.key, first):
        return None
    stored = await idempotency.find_first_request(tx, request.merchant_id, operation, request.key)
    return require_match(stored, request)


def require_match(first: FirstRequest | None, request: IdempotentRequest) -> FirstRequest:
    """Return the first request of a key; `IDEMPOTENCY_CONFLICT` unless `request` repeats it."""
    if first is None or not _is_repetition(first.request_hash, request):
        raise RefusedError(ErrorCode.IDEMPOTENCY_CONFLICT, _MESSAGE)
    return first


def _is_repetition(stored: bytes, request: IdempotentRequest) -> bool:
    if stored == request.request_hash:
        return True
    # Before version 1 the fields were hashed as they were sent. Keys live for 24 hours.
    return stored == hashlib.sha256(msgspec.json.encode(request.as_sent)).digest()
