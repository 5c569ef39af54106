"""Idempotency keys: how a repeated request is recognised, and how a key is claimed."""

import hashlib
from uuid import UUID

import msgspec

from payintent.domain.errors import ErrorCode, RefusedError
from payintent.storage import idempotency
from payintent.storage.database import Tx
from payintent.storage.idempotency import FirstRequest


def request_fingerprint(operation: str, *fields: object) -> bytes:
    """Hash a request: equal for the same operation and the same fields as they were sent."""
    return hashlib.sha256(msgspec.json.encode([operation, *fields])).digest()


async def claim_or_match(
    tx: Tx, merchant_id: int, operation: str, key: UUID, request: FirstRequest
) -> FirstRequest | None:
    """Claim a key for this transaction's work; gives the first request where this repeats it.

    Refused (`IDEMPOTENCY_CONFLICT`) where the key was used with another request.
    """
    if await idempotency.claim_key(tx, merchant_id, operation, key, request):
        return None
    first = await idempotency.find_first_request(tx, merchant_id, operation, key)
    return require_match(first, request.request_hash, "the Idempotency-Key was used elsewhere")


def require_match(first: FirstRequest | None, fingerprint: bytes, message: str) -> FirstRequest:
    """Give the first request of a key; refused (`IDEMPOTENCY_CONFLICT`) unless this repeats it."""
    if first is None or first.request_hash != fingerprint:
        raise RefusedError(ErrorCode.IDEMPOTENCY_CONFLICT, message)
    return first
