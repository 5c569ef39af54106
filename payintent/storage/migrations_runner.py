"""Schema migrations: numbered SQL files, forward only, each in a transaction with its record."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from payintent.domain.errors import StorageUnavailableError
from payintent.storage.driver import GONE, Connection, connect, transaction

FOLDER = Path(__file__).parent / "migrations"
_LOCK = 0x7061_7969_6E74  # "payint": one migration at a time, in whichever process
_ANSWER_S = 5.0  # how long the server may take, where nothing is changed
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


class MigrationChangedError(Exception):
    """The text of an applied migration has changed; migrations must never be edited."""


def all_migrations() -> list[Migration]:
    """Read the files in their order."""
    return [
        Migration(int(path.name[:4]), path.stem, path.read_text())
        for path in sorted(FOLDER.glob("[0-9]*.sql"))
    ]


async def migrate(url: str) -> list[str]:
    """Apply the missing migrations and return their names; safe from many processes at once."""
    connection = await connect(url, "payintent-migrate")
    try:
        await connection.execute("SELECT pg_advisory_lock($1)", _LOCK)
        await connection.execute(_RECORDS)
        applied = await _applied(connection)
        return [
            migration.name
            for migration in all_migrations()
            if await _apply(connection, migration, applied.get(migration.number))
        ]
    finally:
        await connection.close()


async def pending(url: str) -> list[str]:
    """Return the migrations that the database lacks (unreachable: `StorageUnavailableError`)."""
    try:
        connection = await connect(url, "payintent-migrate", _ANSWER_S)
        try:
            has_table = await connection.fetchval(
                "SELECT to_regclass('schema_migration') IS NOT NULL"
            )
            applied = await _applied(connection) if has_table else {}
        finally:
            await connection.close()
    except GONE as error:
        raise StorageUnavailableError(str(error) or type(error).__name__) from error
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
    async with transaction(connection):
        await connection.execute("SET LOCAL lock_timeout = '5s'")
        await connection.execute(migration.sql)
        await connection.execute(
            "INSERT INTO schema_migration (number, name, checksum) VALUES ($1, $2, $3)",
            migration.number,
            migration.name,
            migration.checksum,
        )
    return True
