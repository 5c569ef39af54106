"""Advisory locks, each on its own connection; closing the connection releases the lock."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from time import monotonic
from zlib import crc32

from payintent.storage.driver import GONE, Connection, connect

_CLASS = 0x5041  # separates our locks from those of other applications
PROOF_S = 1.0  # how long a proof is valid
ANSWER_S = 5.0  # how long the server may take to confirm
_IS_HELD = """
    SELECT EXISTS (SELECT FROM pg_locks
        WHERE locktype = 'advisory' AND granted AND pid = pg_backend_pid()
            AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
            AND classid = $1::oid AND objid = $2::oid AND objsubid = 2)
"""


class LockLostError(Exception):
    """The advisory lock is no longer held, or the server does not confirm it."""


class AdvisoryLock:
    """The result of an attempt to acquire an advisory lock."""

    def __init__(
        self, connection: Connection, number: int, proof_s: float, *, is_acquired: bool
    ) -> None:
        self._connection = connection
        self._number = number
        self._proof_s = proof_s
        self._is_acquired = is_acquired
        self._proven_at = monotonic()
        self._statement = asyncio.Lock()  # the connection runs one statement at a time

    @property
    def is_held(self) -> bool:
        """Return True if the lock was acquired and its connection is open, without a query."""
        return self._is_acquired and not self._connection.is_closed()

    async def prove(self) -> None:
        """Raise `LockLostError` unless the server confirms the lock, or did so a second ago."""
        async with self._statement:
            if not self.is_held:
                raise LockLostError
            at = monotonic()
            if at - self._proven_at < self._proof_s:
                return
            try:
                is_confirmed = await self._connection.fetchval(_IS_HELD, _CLASS, self._number)
            except GONE as error:
                self._connection.terminate()
                raise LockLostError from error
            if not is_confirmed:
                self._is_acquired = False
                raise LockLostError
            self._proven_at = at


@asynccontextmanager
async def hold_advisory_lock(
    url: str, name: str, proof_s: float = PROOF_S, answer_s: float = ANSWER_S
) -> AsyncGenerator[AdvisoryLock]:
    """Try to acquire the advisory lock `name`.

    `url` must bypass a pooler, because the lock belongs to the connection.
    """
    connection = await connect(url, f"payintent-lock-{name}", answer_s)
    number = crc32(name.encode())
    try:
        is_acquired = await connection.fetchval(
            "SELECT pg_try_advisory_lock($1::int, $2::int)", _CLASS, _signed(number)
        )
        yield AdvisoryLock(connection, number, proof_s, is_acquired=bool(is_acquired))
    finally:
        await connection.close()


def _signed(number: int) -> int:
    return number - (1 << 32) if number >= 1 << 31 else number
