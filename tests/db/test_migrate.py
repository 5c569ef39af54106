"""Migrations of separate databases, with the released files and with test files."""

import asyncio
from pathlib import Path

import asyncpg
import pytest

from payintent.core.errors import LockTimeoutError, StorageUnavailableError
from payintent.db import migrations_runner
from payintent.runtime.settings import Settings
from tests.support.ports import free_port
from tests.support.timeouts import PATIENCE_S

NAMES = [migration.name for migration in migrations_runner.list_migrations()]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a single small migration instead of the released migrations."""
    (tmp_path / "0001_first.sql").write_text("CREATE TABLE first (id int)")
    monkeypatch.setattr(migrations_runner, "FOLDER", tmp_path)
    return tmp_path


async def _get_tables(url: str) -> set[str]:
    connection = await asyncpg.connect(url)
    rows = await connection.fetch(
        "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
    )
    await connection.close()
    return {row["relname"] for row in rows}


async def test_every_migration_is_applied_once_and_its_name_returned(empty_url: str) -> None:
    assert await migrations_runner.list_pending_migrations(empty_url) == NAMES
    assert await migrations_runner.migrate(empty_url) == NAMES
    assert await migrations_runner.migrate(empty_url) == []
    assert await migrations_runner.list_pending_migrations(empty_url) == []


async def test_several_processes_can_migrate_concurrently(empty_url: str) -> None:
    name_lists = await asyncio.gather(*(migrations_runner.migrate(empty_url) for _ in range(4)))
    assert sorted(name for names in name_lists for name in names) == NAMES


async def test_only_new_migrations_are_applied(empty_url: str, folder: Path) -> None:
    assert await migrations_runner.migrate(empty_url) == ["0001_first"]
    (folder / "0002_second.sql").write_text("CREATE TABLE second (id int)")
    assert await migrations_runner.list_pending_migrations(empty_url) == ["0002_second"]
    assert await migrations_runner.migrate(empty_url) == ["0002_second"]
    assert await _get_tables(empty_url) == {"first", "second", "schema_migration"}


async def test_an_edited_migration_is_refused_before_any_change(
    empty_url: str, folder: Path
) -> None:
    await migrations_runner.migrate(empty_url)
    (folder / "0001_first.sql").write_text("CREATE TABLE first (id bigint)")
    (folder / "0002_second.sql").write_text("CREATE TABLE second (id int)")
    with pytest.raises(migrations_runner.MigrationChangedError, match="0001_first"):
        await migrations_runner.migrate(empty_url)
    assert "second" not in await _get_tables(empty_url)


async def test_a_failed_migration_leaves_no_changes(empty_url: str, folder: Path) -> None:
    (folder / "0002_bad.sql").write_text("CREATE TABLE half (id int); SELECT 1 / 0")
    with pytest.raises(asyncpg.DivisionByZeroError):
        await migrations_runner.migrate(empty_url)
    assert await _get_tables(empty_url) == {"first", "schema_migration"}
    assert await migrations_runner.list_pending_migrations(empty_url) == ["0002_bad"]


async def test_a_migration_and_its_record_are_committed_together(
    empty_url: str, folder: Path
) -> None:
    unrecorded = "ALTER TABLE schema_migration ADD CHECK (number < 2)"
    (folder / "0002_bad.sql").write_text(f"CREATE TABLE half (id int); {unrecorded}")
    with pytest.raises(asyncpg.CheckViolationError):
        await migrations_runner.migrate(empty_url)
    assert await _get_tables(empty_url) == {"first", "schema_migration"}


async def test_a_migration_is_repeated_after_a_deadlock(empty_url: str, folder: Path) -> None:
    (folder / "0002_second.sql").write_text("CREATE TABLE second (id int)")
    await migrations_runner.migrate(empty_url)
    (folder / "0003_both.sql").write_text(
        "SET LOCAL deadlock_timeout = '2s'; SET LOCAL lock_timeout = 0;"
        "ALTER TABLE second ADD a int; ALTER TABLE first ADD a int"
    )
    writer = await asyncpg.connect(empty_url)
    async with writer.transaction():
        await writer.execute("SET LOCAL deadlock_timeout = '1min'; INSERT INTO first VALUES (1)")
        migrating = asyncio.create_task(migrations_runner.migrate(empty_url))
        await _wait_for_lock(empty_url, "second")
        await writer.execute("INSERT INTO second VALUES (1)")
    await writer.close()
    assert await migrating == ["0003_both"]


async def test_requests_do_not_fail_while_a_migration_waits_for_a_long_transaction(
    empty_url: str, folder: Path
) -> None:
    await migrations_runner.migrate(empty_url)
    (folder / "0002_column.sql").write_text("ALTER TABLE first ADD a int")
    dump, request = await asyncpg.connect(empty_url), await asyncpg.connect(empty_url)
    default_ms = Settings.model_fields["database_lock_timeout_ms"].default
    await request.execute(f"SET lock_timeout = {default_ms}")
    async with dump.transaction():
        await dump.execute("SELECT FROM first")
        migrating = asyncio.create_task(migrations_runner.migrate(empty_url))
        await _wait_for_lock(empty_url, "first")
        await request.execute("INSERT INTO first VALUES (1)")
        assert not migrating.done()
    assert await migrating == ["0002_column"]
    await asyncio.gather(dump.close(), request.close())


async def test_a_migration_that_never_gets_its_lock_reports_what_to_do(
    empty_url: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrations_runner, "_ATTEMPTS_MAX", 2)
    monkeypatch.setattr(migrations_runner, "_ATTEMPT_PAUSE_S", 0.0)
    await migrations_runner.migrate(empty_url)
    (folder / "0002_column.sql").write_text("ALTER TABLE first ADD a int")
    dump = await asyncpg.connect(empty_url)
    async with dump.transaction():
        await dump.execute("SELECT FROM first")
        with pytest.raises(LockTimeoutError, match=r"long transactions, .* run it again"):
            await migrations_runner.migrate(empty_url)
    await dump.close()


async def _wait_for_lock(url: str, table: str) -> None:
    """Wait until a migration holds the lock of a table, or waits for it."""
    connection = await asyncpg.connect(url)
    query = "SELECT EXISTS (SELECT FROM pg_locks WHERE relation = to_regclass($1) AND mode = $2)"
    async with asyncio.timeout(PATIENCE_S):
        while not await connection.fetchval(query, table, "AccessExclusiveLock"):
            await asyncio.sleep(0.01)
    await connection.close()


_CONCURRENT = """-- concurrently: while rows are written
CREATE INDEX CONCURRENTLY IF NOT EXISTS first_id ON first (id);  -- one; of two
CREATE UNIQUE INDEX CONCURRENTLY IF NOT EXISTS first_once ON first (id);
"""


async def test_indexes_are_built_while_rows_are_written(empty_url: str, folder: Path) -> None:
    await migrations_runner.migrate(empty_url)
    (folder / "0002_indexes.sql").write_text(_CONCURRENT)
    writer = await asyncpg.connect(empty_url)
    async with writer.transaction():
        await writer.execute("INSERT INTO first VALUES (1)")
        building = asyncio.create_task(migrations_runner.migrate(empty_url))
        second_writer = await asyncpg.connect(empty_url)
        async with asyncio.timeout(60):
            while not await second_writer.fetchval("SELECT to_regclass('first_id') IS NOT NULL"):
                await asyncio.sleep(0.01)
        await second_writer.execute("SET lock_timeout = '5s'")
        # This would block if the index were built in a transaction.
        await second_writer.execute("INSERT INTO first VALUES (2)")
        await second_writer.close()
    await writer.close()
    assert await building == ["0002_indexes"]
    assert await _get_index_validity(empty_url) == {"first_id": True, "first_once": True}


async def test_a_failed_index_build_is_restarted(empty_url: str, folder: Path) -> None:
    await migrations_runner.migrate(empty_url)
    (folder / "0002_indexes.sql").write_text(_CONCURRENT)
    connection = await asyncpg.connect(empty_url)
    await connection.execute("INSERT INTO first VALUES (1), (1)")
    with pytest.raises(asyncpg.UniqueViolationError):
        await migrations_runner.migrate(empty_url)
    assert await _get_index_validity(empty_url) == {"first_id": True, "first_once": False}
    assert await migrations_runner.list_pending_migrations(empty_url) == ["0002_indexes"]
    await connection.execute("TRUNCATE first")
    await connection.close()
    assert await migrations_runner.migrate(empty_url) == ["0002_indexes"]
    assert await _get_index_validity(empty_url) == {"first_id": True, "first_once": True}


async def _get_index_validity(url: str) -> dict[str, bool]:
    connection = await asyncpg.connect(url)
    rows = await connection.fetch(
        "SELECT indexrelid::regclass::text AS name, indisvalid FROM pg_index "
        "WHERE indrelid = 'first'::regclass"
    )
    await connection.close()
    return {row["name"]: row["indisvalid"] for row in rows}


async def test_an_unreachable_database_is_reported_as_unavailable() -> None:
    with pytest.raises(StorageUnavailableError):
        await migrations_runner.list_pending_migrations(
            f"postgresql://payintent@127.0.0.1:{free_port()}/payintent"
        )
