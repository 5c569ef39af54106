"""The second cell of a run as a schema of a Citus cluster that is given, named as the database is.

A database with distributed schemas cannot be copied by CREATE DATABASE, so each test's schema is
made: from the schema's file, with the rows of its template, and distributed as docs/scale.md says.
"""

import re
from contextlib import suppress
from pathlib import Path

import asyncpg

from payintent.storage.database import Executor
from payintent.storage.migrations_runner import FOLDER, migrate
from tests.support.cell_schema import citus_url, in_schema

_SCHEMA = FOLDER.parent / "schema.sql"
_DISTRIBUTE = Path(__file__).parents[2] / "deploy" / "citus" / "distribute.sql"
_TABLES = """
    SELECT c.relname AS name,
        string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum) AS columns,
        string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum)
            FILTER (WHERE a.attidentity <> '') AS identity
    FROM pg_class c
    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
        AND a.attgenerated = ''
    WHERE c.relnamespace = $1::regnamespace AND c.relkind = 'r'
    GROUP BY c.relname
    ORDER BY c.relname
"""
_REFERENCES = """
    SELECT DISTINCT c.relname AS owner, r.relname AS referred
    FROM pg_constraint k
    JOIN pg_class c ON c.oid = k.conrelid
    JOIN pg_class r ON r.oid = k.confrelid
    WHERE k.contype = 'f' AND k.connamespace = $1::regnamespace AND k.conrelid <> k.confrelid
"""
#: Run on the nodes: at the coordinator the triggers of our append-only tables are in the way.
_TRUNCATE = """
    DO $$
    DECLARE
        tables text := (
            SELECT string_agg(c.oid::regclass::text, ', ')
            FROM pg_class c
            WHERE c.relnamespace = to_regnamespace('{schema}') AND c.relkind = 'r'
                AND c.relname ~ '_[0-9]+$'
        );
    BEGIN
        IF tables IS NOT NULL THEN
            PERFORM set_config('session_replication_role', 'replica', true),
                set_config('citus.enable_manual_changes_to_shards', 'on', true);
            EXECUTE 'TRUNCATE ' || tables;
        END IF;
    END $$
"""
_IS_DISTRIBUTED = "SELECT EXISTS (SELECT FROM pg_dist_schema WHERE schemaid = $1::regnamespace)"
#: As the first migration made it: tests set it.
_CLOCK = """
    CREATE OR REPLACE FUNCTION clock() RETURNS timestamptz LANGUAGE sql STABLE
    RETURN date_trunc('milliseconds', statement_timestamp())
"""
_OF_TESTS = r"SELECT nspname FROM pg_namespace WHERE nspname ~ '^(test_[0-9a-f]{32}|payintent_)'"
#: One after the other, of all processes: whoever makes a schema locks what others need for theirs.
_PATIENTLY = """
    SET lock_timeout = 0;
    SET statement_timeout = 0;
    SET client_min_messages = warning;
    SELECT pg_advisory_lock(20261126);
"""
_TRIES = 5
#: Others make and drop schemas at the same time.
_IN_THE_WAY = (asyncpg.DeadlockDetectedError, asyncpg.ObjectInUseError, asyncpg.InternalServerError)


async def make_schema(name: str) -> None:
    """Make a migrated schema that is not distributed: only what is copied from it is."""
    connection = await asyncpg.connect(citus_url())
    try:
        await connection.execute(f"CREATE SCHEMA {_checked(name)}")
    finally:
        await connection.close()
    await migrate(in_schema(name))


async def copy_schema(template: str, name: str, *, distributed: bool) -> None:
    """Make a schema with the rows of another one."""
    connection = await asyncpg.connect(in_schema(name))
    try:
        await connection.execute(_PATIENTLY + "SET check_function_bodies = off")
        await connection.execute(f"CREATE SCHEMA {_checked(name)}")
        await connection.execute(_SCHEMA.read_text().replace("public.", f"{name}."))
        await connection.execute("SET session_replication_role = replica")
        await _fill(connection, _checked(template), _checked(name))
        await connection.execute("SET session_replication_role = origin")
        if distributed:
            await _distribute(connection)
    finally:
        await connection.close()


async def refill_schema(template: str, name: str) -> None:
    """Give a distributed schema that a test has left the rows of a template: it takes less time."""
    connection = await asyncpg.connect(in_schema(_checked(name)))
    try:
        await connection.execute(_PATIENTLY + "SET session_replication_role = replica")
        done = await connection.fetch(
            "SELECT success, result FROM run_command_on_workers($1)", _TRUNCATE.format(schema=name)
        )
        assert all(row["success"] for row in done), done
        await connection.execute(_CLOCK)
        await _fill(connection, _checked(template), name)
    finally:
        await connection.close()


async def drop_schema(name: str) -> None:
    """Drop a schema; its connections may still be at it."""
    connection = await asyncpg.connect(citus_url())
    try:
        await connection.execute(_PATIENTLY)
        for _ in range(_TRIES):
            with suppress(*_IN_THE_WAY):
                await connection.execute(f"DROP SCHEMA IF EXISTS {_checked(name)} CASCADE")
                return
    finally:
        await connection.close()


async def run_on_nodes(database: Executor, statement: str) -> None:
    """Run a statement on every node; `{schema}` in it is the schema of the cell."""
    schema = await database.row("SELECT current_schema() AS name")
    assert schema is not None
    done = await database.fetch(
        "SELECT success, result FROM run_command_on_workers($1)",
        "SET citus.enable_ddl_propagation = off;" + statement.replace("{schema}", schema["name"]),
    )
    assert all(row["success"] for row in done), [tuple(row.values()) for row in done]


async def set_up_roles() -> None:
    """Have locks given up on the nodes too, as docs/scale.md says."""
    connection = await asyncpg.connect(citus_url())
    await connection.execute("ALTER ROLE CURRENT_USER SET lock_timeout = '2s'")
    await connection.close()


async def drop_schemas() -> None:
    """Drop what tests have left: the database is given for them."""
    connection = await asyncpg.connect(citus_url())
    names = [row["nspname"] for row in await connection.fetch(_OF_TESTS)]
    await connection.close()
    for name in names:
        await drop_schema(name)


async def _fill(connection: asyncpg.Connection, template: str, name: str) -> None:
    """Copy rows: what others refer to first, for a node knows no `session_replication_role`.

    Before them the installation: the triggers of control do nothing where that is another cell's.
    """
    tables = {row["name"]: row for row in await connection.fetch(_TABLES, name)}
    filled = [
        table
        for table in sorted(tables, key=lambda table: table != "installation")
        if await connection.fetchval(f"SELECT EXISTS (SELECT FROM {template}.{table})")
    ]
    refers = await connection.fetch(_REFERENCES, name)
    while filled:
        waiting = {row["owner"] for row in refers if row["referred"] in filled}
        table = next(table for table in filled if table not in waiting)
        filled.remove(table)
        columns, identity = tables[table]["columns"], tables[table]["identity"]
        async with connection.transaction():
            # What reaches a node as COPY meets the triggers that guard copies.
            await connection.execute("SET LOCAL payintent.copied_by = 'migration'")
            await connection.execute(
                f"INSERT INTO {name}.{table} ({columns}) OVERRIDING SYSTEM VALUE "
                f"SELECT {columns} FROM {template}.{table}"
            )
        # Citus gives the sequences of a distributed table a range far beyond the template's.
        if identity and not await connection.fetchval(_IS_DISTRIBUTED, name):
            await connection.execute(
                f"SELECT setval(pg_get_serial_sequence('{name}.{table}', '{identity}'), "
                f"max({identity}) + 1, false) FROM {name}.{table}"
            )


async def _distribute(connection: asyncpg.Connection) -> None:
    for attempt in range(_TRIES):
        try:
            await connection.execute(_DISTRIBUTE.read_text())
        except _IN_THE_WAY:
            if attempt == _TRIES - 1:
                raise
        else:
            return


def _checked(name: str) -> str:
    assert re.fullmatch(r"\w+", name), name
    return name
