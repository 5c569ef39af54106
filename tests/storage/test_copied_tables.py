"""What keeps copied tables copies: their triggers, their order, and the rights of a worker."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from payintent.config import Settings
from payintent.domain.errors import PermissionDeniedError
from payintent.id_generator import IdGenerator
from payintent.operations.copy_tables import CellCopier
from payintent.storage import migrations_runner
from payintent.storage.copied_tables import COPIED
from payintent.storage.database import Database
from payintent.storage.migrations_runner import Migration
from payintent.storage.table_homes import TABLE_HOMES, TableHome
from tests.support.copying import CELL, copied_rows
from tests.support.roles import database_with_roles

_TRIGGERS = """
    SELECT t.tgname AS name, c.relname AS table, pg_get_triggerdef(t.oid) AS text,
        ARRAY(SELECT a.attname FROM pg_attribute a WHERE a.attrelid = c.oid
            AND a.attnum = ANY (t.tgattr)) AS columns,
        ARRAY(SELECT a.attname FROM pg_attribute a WHERE a.attrelid = c.oid
            AND a.attnum > 0 AND NOT a.attisdropped) AS all_columns
    FROM pg_trigger t
    JOIN pg_class c ON c.oid = t.tgrelid
    WHERE t.tgname IN ('copied_only', 'note_change')
"""
_KEYS = """
    SELECT i.indrelid::regclass::text AS table, array_agg(a.attname ORDER BY k.place) AS columns
    FROM pg_index i
    CROSS JOIN LATERAL unnest(i.indkey) WITH ORDINALITY AS k (number, place)
    JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
    WHERE i.indisprimary AND i.indrelid::regclass::text = ANY ($1)
    GROUP BY i.indrelid
"""
_REFERENCES = """
    SELECT conrelid::regclass::text AS table, confrelid::regclass::text AS other
    FROM pg_constraint
    WHERE contype = 'f' AND conrelid::regclass::text = ANY ($1) AND conrelid <> confrelid
"""
_PLAIN_COLUMN = """
    SELECT attname FROM pg_attribute
    WHERE attrelid = $1::text::regclass AND attnum > 0 AND attidentity = ''
    ORDER BY attnum
    LIMIT 1
"""


@pytest.fixture
async def connection(database_url: str) -> AsyncIterator[asyncpg.Connection]:
    made = await asyncpg.connect(database_url)
    yield made
    await made.close()


async def test_the_copied_tables_are_named_after_what_they_refer_to_with_their_keys(
    connection: asyncpg.Connection,
) -> None:
    homes = {name for name, home in TABLE_HOMES.items() if home is TableHome.COPIED}
    assert set(COPIED) == homes
    names = list(COPIED)
    keys = await connection.fetch(_KEYS, names)
    assert {row["table"]: tuple(row["columns"]) for row in keys} == dict(COPIED)
    references = await connection.fetch(_REFERENCES, names)
    assert len(references) > 10
    wrong = [row for row in references if names.index(row["other"]) > names.index(row["table"])]
    assert wrong == []


async def test_every_copied_table_notes_its_changes_and_refuses_other_writers(
    connection: asyncpg.Connection,
) -> None:
    triggers = await connection.fetch(_TRIGGERS)
    assert sorted((row["table"], row["name"]) for row in triggers) == sorted(
        (table, name) for table in COPIED for name in ("copied_only", "note_change")
    )
    for row in triggers:
        events = "INSERT OR DELETE OR UPDATE"
        not_seen = {"last_used_at"} if row["table"] == "api_key" else set()
        if row["columns"]:
            assert set(row["all_columns"]) - set(row["columns"]) == not_seen
        else:
            assert not not_seen
            assert events in row["text"]
        if row["name"] == "note_change":
            key = ", ".join(f"'{column}'" for column in COPIED[row["table"]])
            assert f"note_change({key})" in row["text"]
            assert "INITIALLY DEFERRED FOR EACH ROW" in row["text"]


async def test_a_transaction_has_one_number_however_much_it_changes(
    connection: asyncpg.Connection,
) -> None:
    await connection.execute("INSERT INTO cell (number) VALUES (7)")
    before = await connection.fetchval("SELECT number FROM configuration_version")
    for number in (before + 1, before + 2):
        async with connection.transaction():
            await connection.execute("UPDATE provider SET enabled = false")
            await connection.execute("INSERT INTO restriction VALUES ('CRYPTO', 'TQ')")
            await connection.execute("DELETE FROM restriction WHERE country = 'TQ'")
        noted = await connection.fetch(
            "SELECT * FROM configuration_change WHERE number > $1", before
        )
        assert {row["number"] for row in noted} == set(range(before + 1, number + 1))
        assert len({row["token"] for row in noted}) == number - before


async def test_ten_thousand_changes_are_remembered(connection: asyncpg.Connection) -> None:
    await connection.execute("INSERT INTO cell (number) VALUES (7)")
    await connection.execute("UPDATE configuration_version SET number = 10000")
    await connection.execute("UPDATE chain SET grace_s = 1 WHERE slug = 'bsc'")
    noted = await connection.fetch("SELECT number FROM configuration_change WHERE number > 10000")
    assert [row["number"] for row in noted] == [10001]


@pytest.mark.parametrize("table", COPIED)
async def test_a_cell_refuses_who_is_no_copier(connection: asyncpg.Connection, table: str) -> None:
    column = await connection.fetchval(_PLAIN_COLUMN, table)
    writes = (
        f"INSERT INTO {table} OVERRIDING SYSTEM VALUE SELECT * FROM {table} WHERE false",
        f"UPDATE {table} SET {column} = {column}",
        f"DELETE FROM {table} WHERE false",
    )
    for write in writes:  # which control lets through
        await connection.execute(write)
    await _make_cell(connection)
    for write in (*writes, f"TRUNCATE {table} CASCADE"):
        with pytest.raises(
            asyncpg.CheckViolationError, match=f"table {table} of this cell is a copy"
        ):
            await connection.execute(write)


async def test_a_migration_writes_copied_tables_in_a_cell_too(
    connection: asyncpg.Connection, database_url: str
) -> None:
    await _make_cell(connection)
    later = Migration(9999, "9999_later", "UPDATE provider SET enabled = false")
    assert await migrations_runner._apply(connection, later, None)
    assert not await connection.fetchval("SELECT bool_or(enabled) FROM provider")


async def test_the_api_copies_by_its_own_rights_and_a_worker_may_not(
    server_url: str, any_settings: Settings
) -> None:
    async with database_with_roles(server_url) as control, database_with_roles(server_url) as cell:
        owner, looking = [await asyncpg.connect(urls["superuser"]) for urls in (control, cell)]
        await _make_cell(looking)
        await owner.execute("INSERT INTO cell (number) VALUES ($1)", CELL)
        await owner.execute("INSERT INTO tax_rate VALUES ('TH', 0.07), ('DE', 0.19)")
        async with _copier(any_settings, control, cell, "payintent_worker") as copier:
            with pytest.raises(PermissionDeniedError):
                await copier.step()
        async with _copier(any_settings, control, cell, "payintent_api") as copier:
            await copier.step()
            await owner.execute("DELETE FROM tax_rate WHERE country = 'TQ'")
            await owner.execute("UPDATE provider SET enabled = false")
            await copier.step()
        assert await copied_rows(looking) == await copied_rows(owner)
        await asyncio.gather(owner.close(), looking.close())


@asynccontextmanager
async def _copier(
    settings: Settings, control: dict[str, str], cell: dict[str, str], role: str
) -> AsyncIterator[CellCopier]:
    databases = [
        Database(settings.model_copy(update={"database_url": urls[role]}), id_generator=generator)
        for urls, generator in ((control, IdGenerator()), (cell, IdGenerator(cell=CELL)))
    ]
    yield CellCopier(*databases)
    for database in databases:
        await database.close()


async def _make_cell(connection: asyncpg.Connection) -> None:
    await connection.execute("DELETE FROM installation")
    await connection.execute("INSERT INTO installation (cell) VALUES ($1)", CELL)
