"""What the database server is: its version, and how its clock stands to this host's."""

import time
from dataclasses import dataclass

from payintent.storage.database import Database

VERSION_MIN = 15
_PER_MAJOR = 10_000  # 150004 is 15.4


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """One look at the server; `clock_ahead_s` is negative where its clock is behind ours.

    `connections_max` is how many connections it allows to roles that are no superuser's.
    """

    version: int
    clock_ahead_s: float
    compiles: bool  # `jit` as a connection of the pool has it
    connections_max: int


async def read_facts(database: Database) -> ServerFacts:
    """Read version and clock; the clock's difference is certain to the length of the call."""
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
    """Return how far a time is before or after a span; 0 within it."""
    return min(at - started, 0.0) + max(at - ended, 0.0)
