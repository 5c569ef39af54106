"""One process at a time: an advisory lock on a connection of its own, released when that closes."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from time import monotonic
from zlib import crc32

from payintent.storage.driver import GONE, Connection, connect

_CLASS = 0x5041  # so that our locks do not collide with another application's
PROOF_S = 1.0  # how long a proof counts
ANSWER_S = 5.0  # how long the server may take for one
_HELD = """
    SELECT EXISTS (SELECT FROM pg_locks
        WHERE locktype = 'advisory' AND granted AND pid = pg_backend_pid()
            AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
            AND classid = $1::oid AND objid = $2::oid AND objsubid = 2)
"""


class LockLostError(Exception):
    """The advisory lock is not held any more, or the server does not confirm that it is."""


class AdvisoryLock:
    """An advisory lock that was tried to be taken."""

    def __init__(self, connection: Connection, number: int, proof_s: float, *, taken: bool) -> None:
        self._connection = connection
        self._number = number
        self._proof_s = proof_s
        self._taken = taken
        self._proven_at = monotonic()
        self._asking = asyncio.Lock()

    @property
    def held(self) -> bool:
        """Tell whether the lock was taken and its connection is open, as far as is known here."""
        return self._taken and not self._connection.is_closed()

    async def prove(self) -> None:
        """Raise `LockLostError` unless the server confirms the lock, or did so a second ago."""
        async with self._asking:  # the connection takes one statement at a time
            await self._prove()

    async def _prove(self) -> None:
        if not self.held:
            raise LockLostError
        at = monotonic()
        if at - self._proven_at < self._proof_s:
            return
        try:
            confirmed = await self._connection.fetchval(_HELD, _CLASS, self._number)
        except GONE as error:
            self._connection.terminate()
            raise LockLostError from error
        if not confirmed:
            self._taken = False
            raise LockLostError
        self._proven_at = at


@asynccontextmanager
async def hold_advisory_lock(
    url: str, name: str, proof_s: float = PROOF_S, answer_s: float = ANSWER_S
) -> AsyncGenerator[AdvisoryLock]:
    """Try to take the advisory lock `name`.

    `url` must bypass a pooler: the lock belongs to the connection.
    """
    connection = await connect(url, f"payintent-lock-{name}", answer_s)
    number = crc32(name.encode())
    try:
        taken = await connection.fetchval(
            "SELECT pg_try_advisory_lock($1::int, $2::int)", _CLASS, _signed(number)
        )
        yield AdvisoryLock(connection, number, proof_s, taken=bool(taken))
    finally:
        await connection.close()


def _signed(number: int) -> int:
    """Map an unsigned number to PostgreSQL's signed int."""
    return number - (1 << 32) if number >= 1 << 31 else number
