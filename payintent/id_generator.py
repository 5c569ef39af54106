"""New ids: the only place that reads the time and randomness for them."""

import secrets
import time
from collections.abc import Callable
from uuid import UUID

from payintent.domain import ids
from payintent.domain.checkout_seal import DRAWN_END, CheckoutSeal

_CHECKOUT_SPACE = 62**ids.CHECKOUT_CHARS
_STEP_BITS = 40  # of the random step between two ids of a millisecond
_RANDOM_END = 1 << ids.TIMED_RANDOM_BITS


class IdGenerator:
    """Makes the ids of one cell. `unix_ms` only orders them: no rule reads a time out of an id."""

    def __init__(
        self, unix_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000, cell: int = 0
    ) -> None:
        if not 0 <= cell <= ids.CELL_MAX:
            raise ValueError(f"a cell is a number from 0 to {ids.CELL_MAX}, not {cell}")
        self._unix_ms = unix_ms
        self.cell = cell
        #: Where there are several cells: writes the cell into checkout ids.
        self.checkout_seal: CheckoutSeal | None = None
        self._last_ms = 0
        self._last_random = 0

    def new_id(self) -> UUID:
        """Make an id for rows that are read in the order they came: above all before it here.

        Within a millisecond, and where the clock was set back, it goes on from the last one.
        """
        now_ms, random_bits = self._unix_ms(), secrets.randbits(ids.TIMED_RANDOM_BITS)
        if now_ms <= self._last_ms:
            now_ms = self._last_ms
            random_bits = self._last_random + 1 + secrets.randbits(_STEP_BITS)
            if random_bits >= _RANDOM_END:
                now_ms, random_bits = now_ms + 1, secrets.randbits(ids.TIMED_RANDOM_BITS)
        self._last_ms, self._last_random = now_ms, random_bits
        return ids.make_timed_id(now_ms, self.cell, random_bits)

    def new_session_id(self) -> UUID:
        """Make a session id: no time and 90 random bits, because gateways and wallets see it."""
        return ids.make_opaque_id(self.cell, secrets.randbits(ids.OPAQUE_RANDOM_BITS))

    def new_checkout_id(self) -> str:
        """Make a checkout id, a capability that nobody guesses with less than 95 bits of luck."""
        if self.checkout_seal is not None:
            return self.checkout_seal.seal(self.cell, secrets.randbelow(DRAWN_END))
        return f"cs_{ids.to_base62(secrets.randbelow(_CHECKOUT_SPACE), ids.CHECKOUT_CHARS)}"


def new_pay_uuid(session_id: UUID) -> UUID:
    """Make a session's name on a chain: it names the same cell, and nothing else of the session."""
    cell = ids.cell_of_opaque(session_id)
    return ids.make_opaque_id(cell, secrets.randbits(ids.OPAQUE_RANDOM_BITS))
