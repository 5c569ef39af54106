"""One process at a time: an advisory lock on a connection of its own, released when that closes."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from zlib import crc32

from payintent.storage.driver import GONE, connect

_CLASS = 0x5041  # so that our locks do not collide with another application's


@asynccontextmanager
async def hold_advisory_lock(url: str, name: str) -> AsyncGenerator[Callable[[], bool]]:
    """Try to take the advisory lock `name`; yields a function that tells whether it is still held.

    `url` must bypass a pooler: the lock belongs to the connection.
    """
    connection = await connect(url)
    try:
        taken = await connection.fetchval(
            "SELECT pg_try_advisory_lock($1::int, $2::int)", _CLASS, _signed(name)
        )
        yield lambda: bool(taken) and not connection.is_closed()
    finally:
        try:
            await connection.close()
        except GONE:
            connection.terminate()


def _signed(name: str) -> int:
    """Map a name to a number that fits PostgreSQL's signed int."""
    number = crc32(name.encode())
    return number - (1 << 32) if number >= 1 << 31 else number
