"""Claim idempotency keys and recognise repeated requests."""

import hashlib

import msgspec

from payintent.domain.errors import ErrorCode, RefusedError
from payintent.domain.payment import IdempotentRequest
from payintent.storage import idempotency
from payintent.storage.database import Tx
from payintent.storage.idempotency import FirstRequest

_VERSION = b"\x01"  # the first byte of every fingerprint; change it with the rules


def request_fingerprint(operation: str, **fields: object) -> bytes:
    """Return the version and the SHA-256 digest of a request's parsed values and defaults.

    None is omitted, so that a new field does not change the fingerprints of requests without it.
    """
    values = {name: value for name, value in fields.items() if value is not None}
    encoded = msgspec.json.encode([operation, values], order="sorted")
    return _VERSION + hashlib.sha256(encoded).digest()


async def claim_or_match(
    tx: Tx, operation: str, request: IdempotentRequest, first: FirstRequest
) -> FirstRequest | None:
    """Claim a key in this transaction, or return the first request that used it.

    Raises `IDEMPOTENCY_CONFLICT` if the key was used with a different request.
    """
    if await idempotency.claim_key(tx, request.merchant_id, operation, request.key, first):
        return None
    first_request = await idempotency.find_first_request(
        tx, request.merchant_id, operation, request.key
    )
    return require_match(first_request, request)


def require_match(first: FirstRequest | None, request: IdempotentRequest) -> FirstRequest:
    """Return the first request of a key; raises `IDEMPOTENCY_CONFLICT` if `request` differs."""
    if first is None or not _is_repetition(first.request_hash, request):
        raise RefusedError(
            ErrorCode.IDEMPOTENCY_CONFLICT, "the Idempotency-Key was used with another request"
        )
    return first


def _is_repetition(stored_hash: bytes, request: IdempotentRequest) -> bool:
    if stored_hash == request.request_hash:
        return True
    # Before version 1, raw fields were hashed. Keys expire after 24 hours.
    return stored_hash == hashlib.sha256(msgspec.json.encode(request.as_sent)).digest()
