"""Wait until the database is reachable, and read the server's version, clock and settings."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from time import monotonic

from payintent.core.errors import DatabaseRefusedError, StorageUnavailableError
from payintent.db.database import Database
from payintent.db.driver import UNAVAILABLE, connect
from payintent.db.hosts import make_storage_error
from payintent.runtime.log import get_logger

VERSION_MIN = 15
_VERSION_DIVISOR = 10_000  # 150004 is version 15.4
COMMAND_WAIT_S = 5.0  # services wait indefinitely
NOTICE_AFTER_S = 2.0
_RETRY_S = 0.5
_LOG_EVERY_S = 5.0

_log = get_logger("database")


async def wait_for_database(
    connect_once: Callable[[], Awaitable[None]],
    wait_s: float | None,
    on_delay: Callable[[], None] | None = None,
) -> None:
    """Call `connect_once` until it succeeds, for up to `wait_s` seconds or indefinitely.

    A warning is logged every 5 s, and `on_delay` is called once after 2 s. Raises
    `DatabaseRefusedError` immediately, and `StorageUnavailableError` after `wait_s`.
    """
    timer = on_delay and asyncio.get_running_loop().call_later(NOTICE_AFTER_S, on_delay)
    try:
        await _retry_until_connected(connect_once, wait_s)
    finally:
        if timer:
            timer.cancel()


async def _retry_until_connected(
    connect_once: Callable[[], Awaitable[None]], wait_s: float | None
) -> None:
    started_at = monotonic()
    next_log_s = 0.0 if wait_s is None else _LOG_EVERY_S
    reason = "the database cannot be reached: it did not respond in time"
    while True:
        try:
            async with asyncio.timeout(wait_s and max(0.0, wait_s - (monotonic() - started_at))):
                await connect_once()
        except DatabaseRefusedError:
            raise
        except (StorageUnavailableError, TimeoutError) as error:
            waited_s = monotonic() - started_at
            reason = str(error) or reason  # a timeout has no message, so keep the previous reason
            if wait_s is not None and waited_s + _RETRY_S > wait_s:
                raise StorageUnavailableError(reason) from error
            if waited_s >= next_log_s:
                next_log_s = waited_s + _LOG_EVERY_S
                _log.warning("database_away", why=reason, waited_s=round(waited_s))
        else:
            return
        await asyncio.sleep(_RETRY_S)


async def reach_database(url: str) -> None:
    """Connect and disconnect. Raises `StorageUnavailableError` or `DatabaseRefusedError`."""
    try:
        connection = await connect(url)
    except UNAVAILABLE as error:
        raise make_storage_error(error) from error
    await connection.close()


@dataclass(frozen=True, slots=True)
class ServerFacts:
    version: int
    clock_ahead_s: float  # negative if the server's clock is behind ours
    jit_enabled: bool  # the `jit` setting of a pooled connection
    connections_max: int  # excluding reserved connections


async def read_facts(database: Database) -> ServerFacts:
    """Read facts about the server. The clock difference may be off by the query's duration."""
    started_at = time.time()
    [row] = await database.fetch(
        "SELECT current_setting('server_version_num')::int AS version,\n"
        "    current_setting('jit')::bool AS jit_enabled,\n"
        "    extract(epoch FROM clock())::float8 AS seconds,\n"
        "    current_setting('max_connections')::int\n"
        "        - current_setting('superuser_reserved_connections')::int\n"
        "        - coalesce(current_setting('reserved_connections', true)::int, 0) AS connections"
    )
    ended_at = time.time()
    return ServerFacts(
        version=row["version"] // _VERSION_DIVISOR,
        clock_ahead_s=compute_seconds_outside(row["seconds"], started_at, ended_at),
        jit_enabled=row["jit_enabled"],
        connections_max=row["connections"],
    )


def compute_seconds_outside(moment: float, start: float, end: float) -> float:
    """Return how far a time lies outside an interval: negative before it, 0 inside it."""
    return min(moment - start, 0.0) + max(moment - end, 0.0)
