"""Challenges of passkeys: bound to a purpose and a browser, for ten minutes, without being stored.

That each is used once is the passkey's: it accepts a challenge that is newer than its last one.
"""

import hmac
import secrets as chance
from datetime import datetime, timedelta
from enum import StrEnum

from payintent.encryption import Encryption

_NONCE_BYTES = 16
_TIME_BYTES = 8
_HEAD_BYTES = _NONCE_BYTES + _TIME_BYTES
_LASTS = timedelta(minutes=10)
_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


class ChallengePurpose(StrEnum):
    """What a challenge is for; one of the other purpose is refused."""

    REGISTER = "register"
    SIGN_IN = "sign_in"


def make_challenge(
    encryption: Encryption, purpose: ChallengePurpose, holder: str, now: datetime
) -> bytes:
    """Make a challenge for one holder: a session, or a browser that is not signed in."""
    moment = (now - _EPOCH) // timedelta(microseconds=1)
    head = chance.token_bytes(_NONCE_BYTES) + moment.to_bytes(_TIME_BYTES, "big")
    return head + _mark(encryption, purpose, holder, head)


def read_challenge(
    encryption: Encryption,
    purpose: ChallengePurpose,
    holder: str,
    challenge: bytes,
    now: datetime,
) -> datetime | None:
    """Return when a challenge was made; None where it is not this holder's, or has lapsed."""
    head, mark = challenge[:_HEAD_BYTES], challenge[_HEAD_BYTES:]
    if not hmac.compare_digest(mark, _mark(encryption, purpose, holder, head)):
        return None
    made = _EPOCH + timedelta(microseconds=int.from_bytes(head[_NONCE_BYTES:], "big"))
    return made if now - _LASTS < made <= now + _LASTS else None


def _mark(encryption: Encryption, purpose: ChallengePurpose, holder: str, head: bytes) -> bytes:
    return encryption.digest(f"passkey challenge:{purpose}:{holder}:{head.hex()}")
