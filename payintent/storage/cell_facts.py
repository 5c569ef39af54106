"""What a cell's database says of itself, in two bounded statements; and what control says of cells.

A person looks at it while something is wrong: it must cost little, and need no right that the API's
role has not.
"""

import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import LiteralString
from uuid import UUID

from payintent.storage.database import Executor
from payintent.storage.onchain.chain_watch import WATCHED
from payintent.storage.outbox import WAITING_MERCHANTS
from payintent.storage.server_facts import outside

#: Payments count as new for so long; they and open ones are counted up to this number.
COUNTED = timedelta(minutes=1)
COUNTED_MAX = 10_000
_CELLS_MAX = 1_024


@dataclass(frozen=True, slots=True, kw_only=True)
class CellPlace:
    """A cell as control knows it, and what control has at the same moment."""

    number: int
    state: str
    added_at: datetime
    merchants: int  # whose new payments are there
    newest_change: int  # of what is set up, and copied into the other cells
    now: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class CellFacts:
    """One look at a cell's database."""

    version: str  # of PostgreSQL
    clock_ahead_s: float  # of this host's clock; negative where it is behind
    database_bytes: int
    payments: int  # as the server has estimated
    open_payments: int  # up to `COUNTED_MAX`
    created: int  # in the last minute, up to `COUNTED_MAX`
    connections: int  # of everybody, to this database
    server_connections: int  # to all databases of its server
    connections_max: int  # that its server allows to roles that are no superuser's
    is_standby: bool
    is_read_only: bool
    standbys: int  # the servers that follow it now
    copied_change: int | None  # of which change of control its copies are
    copied_at: datetime | None
    webhook_due_at: datetime | None  # of the webhook that is due longest
    callback_at: datetime | None  # of the callback that waits longest
    chains: int  # that it has a cursor of
    chain: str | None  # the one that needs a look most
    chain_behind: int | None  # blocks that are there and not read
    chain_halted: bool
    chain_watched: bool


#: Of the server. A cell on Citus has its coordinator's: no statement asks both it and a node.
_OF_SERVER = """
    SELECT split_part(current_setting('server_version'), ' ', 1) AS version,
        extract(epoch FROM clock())::float8 AS seconds,
        pg_database_size(current_database()) AS database_bytes,
        (SELECT greatest(reltuples, 0)::bigint FROM pg_class WHERE oid = 'payment'::regclass)
            AS payments,
        a.connections, a.server_connections,
        current_setting('max_connections')::int
            - current_setting('superuser_reserved_connections')::int
            - coalesce(current_setting('reserved_connections', true)::int, 0) AS connections_max,
        pg_is_in_recovery() AS is_standby,
        current_setting('default_transaction_read_only')::bool AS is_read_only,
        (SELECT count(*) FROM pg_stat_replication) AS standbys
    FROM (
        SELECT count(*) FILTER (WHERE datname = current_database()) AS connections,
            count(*) AS server_connections
        FROM pg_stat_activity
        WHERE datname IS NOT NULL AND usesysid IS NOT NULL
    ) a
"""
_OF_TABLES: LiteralString = (
    WAITING_MERCHANTS
    + """
    SELECT
        (SELECT count(*)
            FROM (SELECT FROM payment WHERE status IN ('PENDING', 'PROCESSING') LIMIT $2) p)
            AS open_payments,
        (SELECT count(*) FROM (SELECT FROM payment WHERE id >= $1 LIMIT $2) p) AS created,
        (SELECT number FROM configuration_copy LIMIT 1) AS copied_change,
        (SELECT copied_at FROM configuration_copy LIMIT 1) AS copied_at,
        (SELECT min(next_at) FROM waiting WHERE next_at <= clock()) AS webhook_due_at,
        (SELECT min(received_at)
            FROM (SELECT received_at FROM callback WHERE applied_at IS NULL LIMIT $2) c)
            AS callback_at,
        (SELECT count(*) FROM chain_cursor) AS chains,
        k.chain, k.behind AS chain_behind, coalesce(k.is_halted, false) AS chain_halted,
        coalesce(k.is_watched, false) AS chain_watched
    FROM (SELECT) always
    LEFT JOIN (
        SELECT k.chain, greatest(k.head - k.block, 0) AS behind, k.halted IS NOT NULL AS is_halted,
            """
    + WATCHED
    + """ AS is_watched
        FROM chain_cursor k
        ORDER BY 3 DESC, 4, 2 DESC NULLS LAST, 1
        LIMIT 1
    ) k ON true
    """
)


async def list_places(control: Executor) -> list[CellPlace]:
    """List the cells by their numbers, with where merchants have their new payments."""
    rows = await control.fetch(
        """
        SELECT c.number, c.state, c.added_at, coalesce(n.merchants, 0) AS merchants,
            v.number AS newest_change, clock() AS now
        FROM cell c
        CROSS JOIN configuration_version v
        LEFT JOIN (
            SELECT coalesce(p.cell, 0) AS cell, count(*) AS merchants
            FROM merchant m
            LEFT JOIN merchant_cell p ON p.merchant_id = m.id AND p.until IS NULL
            GROUP BY 1
        ) n ON n.cell = c.number
        ORDER BY c.number
        LIMIT $1
        """,
        _CELLS_MAX,
    )
    return [CellPlace(**row) for row in rows]


async def read_cell(database: Executor, now: datetime) -> CellFacts:
    """Look at a cell once; an id has the time at which its payment was created."""
    since = int((now - COUNTED).timestamp() * 1000)
    started = time.time()
    of_server = await database.row(_OF_SERVER)
    ended = time.time()
    of_tables = await database.row(_OF_TABLES, UUID(int=since << 80), COUNTED_MAX)
    assert of_server is not None and of_tables is not None  # noqa: S101, PT018 - of one row each
    facts = dict(of_server)
    ahead_s = outside(facts.pop("seconds"), started, ended)
    return CellFacts(clock_ahead_s=ahead_s, **facts, **of_tables)
