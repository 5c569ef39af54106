"""Version, clock and connection limit of the database server."""

import time
from dataclasses import dataclass

from payintent.storage.database import Database

VERSION_MIN = 15
_PER_MAJOR = 10_000  # 150004 is 15.4


@dataclass(frozen=True, slots=True)
class ServerFacts:
    version: int
    clock_ahead_s: float  # negative if the server's clock is behind ours
    compiles: bool  # the `jit` setting of a pooled connection
    connections_max: int  # without those reserved for superusers


async def read_facts(database: Database) -> ServerFacts:
    """Read the facts; the clock difference is accurate to the duration of the query."""
    started = time.time()
    [row] = await database.fetch(
        "SELECT current_setting('server_version_num')::int AS version,\n"
        "    current_setting('jit')::bool AS compiles,\n"
        "    extract(epoch FROM clock())::float8 AS seconds,\n"
        "    current_setting('max_connections')::int\n"
        "        - current_setting('superuser_reserved_connections')::int\n"
        "        - coalesce(current_setting('reserved_connections', true)::int, 0) AS connections"
    )
    ended = time.time()
    return ServerFacts(
        version=row["version"] // _PER_MAJOR,
        clock_ahead_s=outside(row["seconds"], started, ended),
        compiles=row["compiles"],
        connections_max=row["connections"],
    )


def outside(at: float, started: float, ended: float) -> float:
    """Return the distance from a time to an interval: negative before it, 0 inside it."""
    return min(at - started, 0.0) + max(at - ended, 0.0)
