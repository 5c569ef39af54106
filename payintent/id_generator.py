"""New ids: the only place that reads the time and randomness for them."""

import secrets
import time
from collections.abc import Callable
from uuid import UUID

from payintent.domain import ids

_UUID7_RANDOM_BITS = 74
_CHECKOUT_SPACE = 62**ids.CHECKOUT_CHARS


class IdGenerator:
    """Makes ids. `unix_ms` only orders them: no rule reads a time out of an id."""

    def __init__(self, unix_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        self._unix_ms = unix_ms

    def new_id(self) -> UUID:
        """Make a time-ordered id, for rows that are read in the order they came."""
        return ids.make_uuid7(self._unix_ms(), secrets.randbits(_UUID7_RANDOM_BITS))

    def new_session_id(self) -> UUID:
        """Make a session id: 128 random bits, because gateways and wallets see it."""
        return UUID(int=secrets.randbits(128))

    def new_checkout_id(self) -> str:
        """Make a checkout id, a capability of 95 random bits."""
        return f"cs_{ids.to_base62(secrets.randbelow(_CHECKOUT_SPACE), ids.CHECKOUT_CHARS)}"
