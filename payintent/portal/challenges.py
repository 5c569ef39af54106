"""Signed passkey challenges, bound to a browser and valid for ten minutes."""

import hmac
import secrets
from datetime import datetime, timedelta
from enum import StrEnum

from payintent.runtime.encryption import Encryption


class PasskeyError(Exception):
    """A passkey response is invalid. The message is for the log only."""


_NONCE_BYTES = 16
_TIME_BYTES = 8
_PAYLOAD_BYTES = _NONCE_BYTES + _TIME_BYTES
_VALIDITY = timedelta(minutes=10)
_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


class ChallengePurpose(StrEnum):
    REGISTER = "register"
    SIGN_IN = "sign_in"


def make_challenge(
    encryption: Encryption, purpose: ChallengePurpose, holder: str, now: datetime
) -> bytes:
    """Create a challenge for `holder`: a session, or a browser that is not signed in."""
    timestamp_us = (now - _EPOCH) // timedelta(microseconds=1)
    payload = secrets.token_bytes(_NONCE_BYTES) + timestamp_us.to_bytes(_TIME_BYTES, "big")
    return payload + _compute_signature(encryption, purpose, holder, payload)


def read_challenge(
    encryption: Encryption,
    purpose: ChallengePurpose,
    holder: str,
    challenge: bytes,
    now: datetime,
) -> datetime | None:
    """Return a challenge's creation time; None if it has expired or belongs to another holder."""
    payload, signature = challenge[:_PAYLOAD_BYTES], challenge[_PAYLOAD_BYTES:]
    if not hmac.compare_digest(signature, _compute_signature(encryption, purpose, holder, payload)):
        return None
    created_at = _EPOCH + timedelta(microseconds=int.from_bytes(payload[_NONCE_BYTES:], "big"))
    return created_at if now - _VALIDITY < created_at <= now + _VALIDITY else None


def _compute_signature(
    encryption: Encryption, purpose: ChallengePurpose, holder: str, payload: bytes
) -> bytes:
    return encryption.digest(f"passkey challenge:{purpose}:{holder}:{payload.hex()}")
