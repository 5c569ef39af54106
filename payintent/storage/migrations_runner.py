"""Schema migrations: numbered SQL files, forward only, each in a transaction with its record.

A file that begins with `-- concurrently` builds indexes while the tables are written: its
statements run one by one outside a transaction, and begin anew where they broke off.
"""

import asyncio
import hashlib
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from payintent.domain.errors import LockTimeoutError, PermissionDeniedError
from payintent.storage.connect_errors import storage_error
from payintent.storage.driver import (
    GONE,
    LOCK_TIMEOUT,
    NO_PERMISSION,
    POSTGRES_ERROR,
    Connection,
    connect,
    transaction,
)

FOLDER = Path(__file__).parent / "migrations"
_LOCK = 0x7061_7969_6E74  # "payint": one migration at a time, in whichever process
_ANSWER_S = 5.0  # how long the server may take, where nothing is changed
_LOCK_EVERY_S = 0.1
#: A migration writes copied tables in every cell, and the copier mends what came out otherwise.
_SETTINGS = "SET LOCAL lock_timeout = '5s'; SET LOCAL payintent.copied_by = 'migration'"
_CONCURRENTLY = "-- concurrently"
_COMMENT = re.compile(r"--[^\n]*")
_INDEX = re.compile(r"INDEX CONCURRENTLY IF NOT EXISTS (\w+)")
_RECORDS = """
CREATE TABLE IF NOT EXISTS schema_migration (
    number int PRIMARY KEY,
    name text NOT NULL,
    checksum text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
)
"""


@dataclass(frozen=True, slots=True)
class Migration:
    """One file: `0001_core.sql` has the number 1."""

    number: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        """Return the digest that reveals a change of a file after it was applied."""
        return hashlib.sha256(self.sql.encode()).hexdigest()

    @property
    def is_concurrent(self) -> bool:
        """Tell whether its statements run one by one, outside a transaction."""
        return self.sql.startswith(_CONCURRENTLY)

    @property
    def statements(self) -> list[str]:
        """Return the statements of a concurrent file."""
        return [part for text in _COMMENT.sub("", self.sql).split(";") if (part := text.strip())]


class MigrationChangedError(Exception):
    """The text of an applied migration has changed; migrations must never be edited."""


class GrantsError(Exception):
    """The statements that grant rights were refused; none of them holds."""


def all_migrations() -> list[Migration]:
    """Read the files in their order."""
    return [
        Migration(int(path.name[:4]), path.stem, path.read_text())
        for path in sorted(FOLDER.glob("[0-9]*.sql"))
    ]


async def migrate(url: str, grants: str = "") -> list[str]:
    """Apply the missing migrations and return their names; safe from many processes at once.

    Each is a transaction: where one fails, those before it stay (`PermissionDeniedError`,
    `LockTimeoutError`, `StorageUnavailableError`). `grants` are statements that run after them,
    each time (`GrantsError`).
    """
    async with _connected(url, None) as connection:
        done = await _migrate(connection)
        if grants:
            await _grant(connection, grants)
        return done


@asynccontextmanager
async def _connected(url: str, statement_timeout_s: float | None) -> AsyncGenerator[Connection]:
    """Connect for a block, with the driver's errors as our own."""
    try:
        connection = await connect(url, "payintent-migrate", statement_timeout_s)
        try:
            yield connection
        finally:
            await connection.close()
    except NO_PERMISSION as error:
        raise PermissionDeniedError(str(error).partition("\n")[0]) from error
    except LOCK_TIMEOUT as error:
        raise LockTimeoutError("a migration waited too long for a lock; start it again") from error
    except GONE as error:
        raise storage_error(error) from error


async def _migrate(connection: Connection) -> list[str]:
    await _lock(connection)
    await connection.execute(_RECORDS)
    applied = await _applied(connection)
    return [
        migration.name
        for migration in all_migrations()
        if await _apply(connection, migration, applied.get(migration.number))
    ]


async def _grant(connection: Connection, grants: str) -> None:
    try:
        await connection.execute(grants)
    except POSTGRES_ERROR as error:
        raise GrantsError(f"the grants were refused: {str(error).partition(chr(10))[0]}") from error


async def _lock(connection: Connection) -> None:
    """Take the lock by trying: who waits in a statement would be waited for by an index build."""
    while True:
        if await connection.fetchval("SELECT pg_try_advisory_lock($1)", _LOCK):
            return
        await asyncio.sleep(_LOCK_EVERY_S)


async def pending(url: str) -> list[str]:
    """Return the migrations that the database lacks.

    Raises `StorageUnavailableError` where it is away, `PermissionDeniedError` without a grant.
    """
    async with _connected(url, _ANSWER_S) as connection:
        has_table = await connection.fetchval("SELECT to_regclass('schema_migration') IS NOT NULL")
        applied = await _applied(connection) if has_table else {}
    return [item.name for item in all_migrations() if item.number not in applied]


async def _applied(connection: Connection) -> dict[int, str]:
    rows = await connection.fetch(
        "SELECT number, checksum FROM schema_migration ORDER BY number LIMIT 10000"
    )
    return {row["number"]: row["checksum"] for row in rows}


async def _apply(connection: Connection, migration: Migration, applied: str | None) -> bool:
    if applied is not None:
        if applied != migration.checksum:
            raise MigrationChangedError(f"{migration.name} was edited after it was applied")
        return False
    if migration.is_concurrent:
        await _build_indexes(connection, migration)
        await _record(connection, migration)
        return True
    async with transaction(connection):
        await connection.execute(_SETTINGS)
        await connection.execute(migration.sql)
        await _record(connection, migration)
    return True


async def _build_indexes(connection: Connection, migration: Migration) -> None:
    """Run the statements of a concurrent file, without what a broken build has left behind."""
    for statement in migration.statements:
        if named := _INDEX.search(statement):
            await _drop_broken(connection, named[1])
        await connection.execute(statement)


async def _drop_broken(connection: Connection, index: str) -> None:
    """Drop an index whose build broke off: it is not used, and would count as made."""
    is_broken = await connection.fetchval(
        "SELECT NOT indisvalid FROM pg_index WHERE indexrelid = to_regclass($1)", index
    )
    if is_broken:
        await connection.execute(f"DROP INDEX CONCURRENTLY {index}")


async def _record(connection: Connection, migration: Migration) -> None:
    await connection.execute(
        "INSERT INTO schema_migration (number, name, checksum) VALUES ($1, $2, $3)",
        migration.number,
        migration.name,
        migration.checksum,
    )
