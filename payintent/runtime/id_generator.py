"""Generate ids from the time and random bits."""

import secrets
import time
from collections.abc import Callable
from uuid import UUID

from payintent.core import ids
from payintent.core.access import PUBLIC_CHARS, SECRET_CHARS, ApiKeyText, make_api_key

_OPAQUE_BITS = 128
_STEP_BITS = 40  # random step between two ids in the same millisecond
_RANDOM_END = 1 << ids.TIMED_RANDOM_BITS


class IdGenerator:
    """Creates ids. Their time, from `unix_ms`, is used only for ordering."""

    def __init__(self, unix_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        self._unix_ms = unix_ms
        self._last_ms = 0
        self._last_random = 0

    def new_id(self) -> UUID:
        """Create an id that is greater than all earlier ids of this process.

        Within a millisecond, or if the clock was set back, the last id is incremented.
        """
        now_ms, random_bits = self._unix_ms(), secrets.randbits(ids.TIMED_RANDOM_BITS)
        if now_ms <= self._last_ms:
            now_ms = self._last_ms
            random_bits = self._last_random + 1 + secrets.randbits(_STEP_BITS)
            if random_bits >= _RANDOM_END:
                now_ms, random_bits = now_ms + 1, secrets.randbits(ids.TIMED_RANDOM_BITS)
        self._last_ms, self._last_random = now_ms, random_bits
        return ids.make_timed_id(now_ms, random_bits)

    def new_session_id(self) -> UUID:
        """Create a session id without a time, because gateways and wallets see it."""
        return UUID(int=secrets.randbits(_OPAQUE_BITS))

    def new_checkout_id(self) -> str:
        """Create a checkout id: an unguessable capability of 95 random bits."""
        return f"cs_{_generate_base62(ids.CHECKOUT_CHARS)}"

    def new_link_token(self) -> str:
        """Create the token of a payment link: an unguessable capability of 131 random bits."""
        return f"lnk_{_generate_base62(ids.UUID_CHARS)}"


def new_pay_uuid() -> UUID:
    """Create an on-chain session id, which reveals nothing about the session."""
    return UUID(int=secrets.randbits(_OPAQUE_BITS))


def generate_key_text(prefix: str, mark: str = "") -> ApiKeyText:
    """Generate a key or token of 256 random bits, with a public part that begins with `mark`."""
    public_id = mark + _generate_base62(PUBLIC_CHARS - len(mark))
    return make_api_key(prefix, public_id, _generate_base62(SECRET_CHARS))


def _generate_base62(length: int) -> str:
    return ids.to_base62(secrets.randbelow(62**length), length)
