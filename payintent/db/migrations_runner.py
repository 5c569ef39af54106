"""Apply schema migrations: numbered, forward-only SQL files, each in its own transaction.

A file that starts with `-- concurrently` builds indexes while the tables are in use. Its statements
run separately, outside a transaction, and are repeated after an interrupted build.

Version 1.0 starts a new history at `0001_initial`. `upgrade_from_249.sql` upgrades a database from
the last version before 1.0; an older database must be upgraded to that version first.
"""

import asyncio
import hashlib
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from payintent.core.errors import LockTimeoutError, PermissionDeniedError
from payintent.db.driver import (
    INSUFFICIENT_PRIVILEGE,
    LOCK_TIMEOUT,
    NOT_SUPPORTED,
    POSTGRES_ERROR,
    UNAVAILABLE,
    Connection,
    Row,
    connect,
    transaction,
)
from payintent.db.hosts import make_storage_error

FOLDER = Path(__file__).parent / "migrations"
_LOCK = 0x7061_7969_6E74  # "payint"; only one process migrates at a time
_READ_TIMEOUT_S = 5.0
_LOCK_RETRY_S = 0.1
#: Requests queue behind a migration that waits for a table. Their own lock timeout is 2 s by
#: default, so that they do not fail while a long transaction, such as a pg_dump, uses the table.
#: After the deadlock timeout, usually 1 s, PostgreSQL ends an autovacuum that blocks the migration.
_SET_LOCK_TIMEOUT = "SET LOCAL lock_timeout = '1500ms'"
_ATTEMPTS_MAX, _ATTEMPT_PAUSE_S = 10, 2.0
_CONCURRENTLY = "-- concurrently"
_COMMENT = re.compile(r"--[^\n]*")
_INDEX = re.compile(r"INDEX CONCURRENTLY IF NOT EXISTS (\w+)")
_HISTORY_TABLE = """
CREATE TABLE IF NOT EXISTS schema_migration (
    number int PRIMARY KEY,
    name text NOT NULL,
    checksum text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
)
"""
#: The name of the first migration in databases before version 1.0.
_FIRST_BEFORE_1_0 = "0001_core"
#: The digest of the migration numbers and checksums of the last version before 1.0.
_LAST_BEFORE_1_0 = "37c24bafc8f653c4ae1c74f9d993b0439f6bd5adbb9a14421e8b2a20bf9bc8bf"
_UPGRADE = Path(__file__).parent / "upgrade_from_249.sql"


@dataclass(frozen=True, slots=True)
class Migration:
    number: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()

    @property
    def is_concurrent(self) -> bool:
        return self.sql.startswith(_CONCURRENTLY)

    @property
    def statements(self) -> list[str]:
        return [part for text in _COMMENT.sub("", self.sql).split(";") if (part := text.strip())]


class MigrationChangedError(Exception):
    """A migration was edited after it was applied, which is not allowed."""


class OldSchemaError(Exception):
    """The schema is from a version before 1.0 that cannot be upgraded directly."""


class GrantsError(Exception):
    """The statements that grant privileges failed. None of them took effect."""


def list_migrations() -> list[Migration]:
    return [
        Migration(int(path.name[:4]), path.stem, path.read_text())
        for path in sorted(FOLDER.glob("[0-9]*.sql"))
    ]


async def migrate(url: str, grants: str = "") -> list[str]:
    """Apply pending migrations and return their names. Concurrent calls are safe.

    Each migration commits separately, so earlier migrations remain applied if a later migration
    fails. The statements in `grants` run every time, after the migrations. Raises
    `PermissionDeniedError`, `LockTimeoutError`, `StorageUnavailableError` or `GrantsError`.
    """
    async with _open_connection(url, None) as connection:
        names = await _migrate(connection)
        if grants:
            await _grant(connection, grants)
        return names


@asynccontextmanager
async def _open_connection(
    url: str, statement_timeout_s: float | None
) -> AsyncGenerator[Connection]:
    try:
        connection = await connect(url, "payintent-migrate", statement_timeout_s)
        try:
            yield connection
        finally:
            await connection.close()
    except INSUFFICIENT_PRIVILEGE as error:
        raise PermissionDeniedError(str(error).partition("\n")[0]) from error
    except LOCK_TIMEOUT as error:
        raise LockTimeoutError(
            "a migration could not lock a table; wait for long transactions, such as a pg_dump, "
            "to end, and run it again"
        ) from error
    except UNAVAILABLE as error:
        raise make_storage_error(error) from error


async def _migrate(connection: Connection) -> list[str]:
    await _acquire_lock(connection)
    await connection.execute(_HISTORY_TABLE)
    migrations = list_migrations()
    applied_migrations = await _read_applied(connection)
    names = list[str]()
    if (first_migration := applied_migrations.get(1)) and first_migration[
        "name"
    ] == _FIRST_BEFORE_1_0:
        _require_last_before_1_0(applied_migrations)
        await _retry_locking(partial(_upgrade, connection, migrations[0]))
        names.append(migrations[0].name)
        applied_migrations = await _read_applied(connection)
    for migration in migrations:
        if await _apply(connection, migration, applied_migrations.get(migration.number)):
            names.append(migration.name)
    return names


async def _grant(connection: Connection, grants: str) -> None:
    try:
        await connection.execute(grants)
    except POSTGRES_ERROR as error:
        raise GrantsError(f"the grants failed: {str(error).partition(chr(10))[0]}") from error


async def _acquire_lock(connection: Connection) -> None:
    """Poll for the lock. A statement that waits for it would block concurrent index builds."""
    while True:
        if await connection.fetchval("SELECT pg_try_advisory_lock($1)", _LOCK):
            return
        await asyncio.sleep(_LOCK_RETRY_S)


async def list_pending_migrations(url: str) -> list[str]:
    """Return the names of migrations that are pending or were applied with different SQL.

    Raises `StorageUnavailableError`, or `PermissionDeniedError` if a privilege is missing.
    """
    async with _open_connection(url, _READ_TIMEOUT_S) as connection:
        has_table = await connection.fetchval("SELECT to_regclass('schema_migration') IS NOT NULL")
        applied_migrations = await _read_applied(connection) if has_table else {}
    checksums = {number: row["checksum"] for number, row in applied_migrations.items()}
    return [
        migration.name
        for migration in list_migrations()
        if checksums.get(migration.number) != migration.checksum
    ]


async def _read_applied(connection: Connection) -> dict[int, Row]:
    rows = await connection.fetch(
        "SELECT number, name, checksum FROM schema_migration ORDER BY number LIMIT 10000"
    )
    return {row["number"]: row for row in rows}


def _require_last_before_1_0(applied_migrations: Mapping[int, Row]) -> None:
    history = "".join(f"{number} {row['checksum']}\n" for number, row in applied_migrations.items())
    if hashlib.sha256(history.encode()).hexdigest() != _LAST_BEFORE_1_0:
        raise OldSchemaError(
            "the schema is older than the last version before 1.0; upgrade to that version first"
        )


async def _upgrade(connection: Connection, initial: Migration) -> None:
    try:
        async with transaction(connection):
            await connection.execute(_SET_LOCK_TIMEOUT)
            await connection.execute(_UPGRADE.read_text())
            await connection.execute("DELETE FROM schema_migration")
            await _record(connection, initial)
    except NOT_SUPPORTED as error:
        raise OldSchemaError(f"the database cannot be upgraded: {error}") from error


async def _apply(
    connection: Connection, migration: Migration, applied_migration: Row | None
) -> bool:
    if applied_migration is not None:
        if applied_migration["checksum"] != migration.checksum:
            raise MigrationChangedError(f"{migration.name} was edited after it was applied")
        return False
    if migration.is_concurrent:
        await _build_indexes(connection, migration)
        await _record(connection, migration)
        return True
    await _retry_locking(partial(_run, connection, migration))
    return True


async def _retry_locking(run: Callable[[], Awaitable[None]]) -> None:
    """Call `run`, and repeat it if it cannot get a lock."""
    for _ in range(_ATTEMPTS_MAX - 1):
        try:
            return await run()
        except LOCK_TIMEOUT:
            await asyncio.sleep(_ATTEMPT_PAUSE_S)
    return await run()


async def _run(connection: Connection, migration: Migration) -> None:
    async with transaction(connection):
        await connection.execute(_SET_LOCK_TIMEOUT)
        await connection.execute(migration.sql)
        await _record(connection, migration)


async def _build_indexes(connection: Connection, migration: Migration) -> None:
    for statement in migration.statements:
        if index := _INDEX.search(statement):
            await _drop_invalid_index(connection, index[1])
        await connection.execute(statement)


async def _drop_invalid_index(connection: Connection, index: str) -> None:
    """Drop the invalid index of an interrupted build. It is unused, but its name is taken."""
    is_invalid = await connection.fetchval(
        "SELECT NOT indisvalid FROM pg_index WHERE indexrelid = to_regclass($1)", index
    )
    if is_invalid:
        await connection.execute(f"DROP INDEX CONCURRENTLY {index}")


async def _record(connection: Connection, migration: Migration) -> None:
    await connection.execute(
        "INSERT INTO schema_migration (number, name, checksum) VALUES ($1, $2, $3)",
        migration.number,
        migration.name,
        migration.checksum,
    )
