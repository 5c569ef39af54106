"""Fill a database with more payments than `payintent seed` can write in a reasonable time.

`seed` writes some of the payments, and each row is then copied several times, with a new id but
the same times and text. The copies of a row are adjacent, so that rows stay in chronological
order, as the service writes them. Constraints are not checked, and indexes are rebuilt at the end.
"""

import asyncio
from collections.abc import Sequence
from itertools import pairwise, zip_longest

import asyncpg

from payintent.cli.common import show_progress

COPIES_MAX = 4_096  # three hexadecimal digits of an id are the copy's number
_TABLES = (
    *("payment", "session", "checkout", "idempotency", "callback", "capture", "refund"),
    *("money_case", "ledger_entry", "event", "delivery", "attempt"),
)
_TEXT_IDS = {("checkout", "id"), ("payment", "checkout_id")} | {
    (table, column)
    for table in ("session", "callback", "capture", "refund")
    for column in ("reference", "callback_id")
}
_PARTS = 60  # per table; each part is written in a single transaction
_CONNECTION = """
SET session_replication_role = replica; SET statement_timeout = 0; SET lock_timeout = 0;
SET allow_system_table_mods = on; SET synchronous_commit = off; SET maintenance_work_mem = '512MB';
SET idle_in_transaction_session_timeout = 0; SET max_parallel_maintenance_workers = 0
"""
_COLUMNS = """
SELECT attname, atttypid::regtype::text AS kind
FROM pg_attribute
WHERE attrelid = $1::text::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = ''
    AND attidentity = ''
ORDER BY attnum
"""
#: `0 * t.tableoid` makes the join depend on the row, so that the copies of a row stay adjacent.
_COPY = """
INSERT INTO {table} ({columns})
SELECT {values}
FROM part.{table} t
CROSS JOIN LATERAL (
    SELECT lpad(to_hex(one), 3, '0') AS mark
    FROM generate_series(0, {last} + 0 * t.tableoid::int) AS one
) s
"""
#: Disable the indexes. Writes do not update them until they are rebuilt.
_NO_INDEXES = """
UPDATE pg_index SET indisready = false, indisvalid = false
WHERE indrelid = ANY ($1::text[]::regclass[])
"""
_INDEXES = """
SELECT indexrelid::regclass::text
FROM pg_index
WHERE indrelid = ANY ($1::text[]::regclass[])
ORDER BY pg_relation_size(indrelid) DESC
"""


async def multiply(url: str, copies: int, jobs: int) -> None:
    """Replace each row with this many copies. Requires a superuser connection."""
    assert copies <= COPIES_MAX
    one = await _connect(url)
    await one.execute("CREATE SCHEMA part")
    for table in _TABLES:
        await one.execute(f"CREATE TABLE part.{table} AS TABLE {table}")
    await one.execute(f"TRUNCATE {', '.join(_TABLES)} CASCADE")
    await one.execute(_NO_INDEXES, list(_TABLES))
    await _run(url, jobs, "writing copies", await _list_writes(one, copies))
    await one.execute("DROP SCHEMA part CASCADE")
    indexes = [row[0] for row in await one.fetch(_INDEXES, list(_TABLES))]
    await _run(url, jobs, "building indexes", [f"REINDEX INDEX {name}" for name in indexes])
    await _run(url, jobs, "vacuum", [f"VACUUM (ANALYZE) {table}" for table in _TABLES])
    await one.close()


async def _connect(url: str) -> asyncpg.Connection:
    connection = await asyncpg.connect(url)
    await connection.execute(_CONNECTION)
    return connection


async def _list_writes(one: asyncpg.Connection, copies: int) -> list[str]:
    """List the statements that write the copies, alternating between the tables."""
    writes = [await _writes_of(one, table, copies) for table in _TABLES]
    return [write for parts in zip_longest(*writes) for write in parts if write is not None]


async def _writes_of(one: asyncpg.Connection, table: str, copies: int) -> list[str]:
    columns = await one.fetch(_COLUMNS, table)
    size = "SELECT pg_relation_size($1::text::regclass) / 8192"
    blocks: int = await one.fetchval(size, f"part.{table}")
    write = _COPY.format(
        table=table,
        columns=", ".join(f'"{row[0]}"' for row in columns),
        values=", ".join(_value(table, row[0], row[1]) for row in columns),
        last=copies - 1,
    )
    ends = [blocks * number // _PARTS for number in range(_PARTS + 1)]
    return [
        f"{write} WHERE t.ctid >= '({first},0)' AND t.ctid < '({end},0)'"
        for first, end in pairwise(ends)
        if first < end
    ]


def _value(table: str, column: str, kind: str) -> str:
    if kind == "uuid":
        return f'overlay(t."{column}"::text PLACING s.mark FROM 21 FOR 3)::uuid'
    if (table, column) in _TEXT_IDS:
        return f'left(t."{column}", -3) || s.mark'
    return f't."{column}"'


async def _run(url: str, jobs: int, what: str, statements: Sequence[str]) -> None:
    """Run statements with this many concurrent connections."""
    waiting = list(reversed(statements))

    async def work() -> None:
        connection = await _connect(url)
        while waiting:
            await connection.execute(waiting.pop())
            advance(1)
        await connection.close()

    with show_progress(what, len(statements)) as advance:
        async with asyncio.TaskGroup() as group:
            for _ in range(jobs):
                group.create_task(work())
