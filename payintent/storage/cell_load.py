"""How large a cell's database is and how busy, read cheaply: for a page that a person looks at."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from payintent.storage.database import Executor

#: Payments are counted over this time, and up to this number.
COUNTED = timedelta(minutes=1)
COUNTED_MAX = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CellLoad:
    """Size and load of a cell's database."""

    database_bytes: int
    payments: int  # as the server has estimated
    created: int  # in the last minute, at most `COUNTED_MAX`
    connections: int  # of everybody, to this database
    connections_max: int  # to the server


async def read_load(database: Executor, now: datetime) -> CellLoad:
    """Read size and load of a cell; an id has the time at which its payment was created."""
    since = int((now - COUNTED).timestamp() * 1000)
    row = await database.row(
        """
        SELECT pg_database_size(current_database()) AS database_bytes,
            (SELECT greatest(reltuples, 0)::bigint FROM pg_class WHERE oid = 'payment'::regclass)
                AS payments,
            (SELECT count(*) FROM (SELECT FROM payment WHERE id >= $1 LIMIT $2) p) AS created,
            (SELECT count(*) FROM pg_stat_activity WHERE datname = current_database())
                AS connections,
            current_setting('max_connections')::int AS connections_max
        """,
        UUID(int=since << 80),
        COUNTED_MAX,
    )
    assert row is not None  # noqa: S101 - the statement always returns one row
    return CellLoad(**row)
