"""One process at a time: an advisory lock on a connection of its own, gone when that one is."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from zlib import crc32

from payintent.storage.driver import GONE, connect

_CLASS = 0x5041  # so that our names meet no other application's


@asynccontextmanager
async def hold_advisory_lock(url: str, name: str) -> AsyncGenerator[Callable[[], bool]]:
    """Try to be the one that does `name`; gives what tells whether one is, and still is.

    `url` goes past a pooler: the lock belongs to the connection.
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
    """Make a number of a name that fits PostgreSQL's signed int."""
    number = crc32(name.encode())
    return number - (1 << 32) if number >= 1 << 31 else number
