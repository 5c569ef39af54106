"""Run statements and transactions on pooled connections, and translate the driver's errors."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from datetime import datetime
from typing import Any, LiteralString, Protocol

from payintent.core.errors import (
    InvalidTextError,
    LockTimeoutError,
    PermissionDeniedError,
    StorageFullError,
    StorageUnavailableError,
)
from payintent.db.driver import (
    DISK_FULL,
    INSUFFICIENT_PRIVILEGE,
    INTERNAL,
    INVALID_TEXT,
    LOCK_TIMEOUT,
    READ_ONLY,
    SCHEMA_MISMATCH,
    UNAVAILABLE,
    Connection,
    Row,
    connect_as,
    transaction,
)
from payintent.db.hosts import make_storage_error
from payintent.db.pool import ConnectionPool
from payintent.db.sealing import PayerSealing
from payintent.runtime.encryption import load_encryption
from payintent.runtime.id_generator import IdGenerator
from payintent.runtime.settings import Settings

__all__ = [
    "Database",
    "Executor",
    "GuardedDatabase",
    "Row",
    "Tx",
    "get_current_time",
    "in_transaction",
]

#: True inside a transaction. Code that uses the network asserts that it is False, because a
#: transaction must not wait for the network.
in_transaction: ContextVar[bool] = ContextVar("in_transaction", default=False)

_IDLE_IN_TRANSACTION_MS = 10_000
_DEADLINE_MARGIN_S = 1.0  # added to the server's statement timeout

_FAILURES = (*INVALID_TEXT, *SCHEMA_MISMATCH, *LOCK_TIMEOUT, INSUFFICIENT_PRIVILEGE, *UNAVAILABLE)


class Executor(Protocol):
    """Runs queries, each in its own transaction (`Database`) or all in one transaction (`Tx`)."""

    @property
    def payer_sealing(self) -> PayerSealing: ...

    async def fetch(self, query: LiteralString, *args: object) -> list[Row]: ...

    async def row(self, query: LiteralString, *args: object) -> Row | None:
        """Return the first row, or None."""
        ...

    async def value(self, query: LiteralString, *args: object) -> Any:
        """Return the first column of the first row, or None if there is no row."""
        row = await self.row(query, *args)
        return None if row is None else next(iter(row.values()))


async def get_current_time(database: Executor) -> datetime:
    """Return the time of the database clock, on which all deadlines and ages are based."""
    return await database.value("SELECT clock() AS now")


class Tx(Executor):
    """An open transaction. The network must not be used while it is open."""

    def __init__(
        self,
        connection: Connection,
        pool: ConnectionPool,
        payer_sealing: PayerSealing,
        id_generator: IdGenerator,
    ) -> None:
        self._connection = connection
        self._pool = pool
        self._payer_sealing = payer_sealing
        self.id_generator = id_generator
        self.has_new_events = False  # set when an event is recorded
        self.after_commit: list[Callable[[], None]] = []

    @property
    def payer_sealing(self) -> PayerSealing:
        return self._payer_sealing

    async def fetch(self, query: LiteralString, *args: object) -> list[Row]:
        return await self._connection.fetch(query, *args)

    async def row(self, query: LiteralString, *args: object) -> Row | None:
        return await self._connection.fetchrow(query, *args)

    async def copy(
        self, table: LiteralString, columns: Sequence[str], rows: Iterable[Sequence[object]]
    ) -> None:
        """Insert rows with COPY, which is much faster than an INSERT from arrays."""
        await self._connection.copy_records_to_table(table, records=rows, columns=columns)

    async def extend_timeouts(self, *, statement_s: float, lock_s: float) -> None:
        """Extend this transaction's timeouts, for background work.

        `statement_s` also limits the idle time between two statements.
        """
        await self._connection.fetch(
            """
            SELECT set_config('statement_timeout', $1, true), set_config('lock_timeout', $2, true),
                set_config('idle_in_transaction_session_timeout', $1, true)
            """,
            f"{statement_s:.0f}s",
            f"{lock_s:.0f}s",
        )
        self._pool.set_deadline(self._connection, statement_s + _DEADLINE_MARGIN_S)


class Database(Executor):
    """A connection pool. Statements outside `transaction` commit individually."""

    def __init__(
        self,
        settings: Settings,
        process: str = "payintent",
        pool: ConnectionPool | None = None,
        id_generator: IdGenerator | None = None,
    ) -> None:
        self.settings = settings
        self.id_generator = id_generator or IdGenerator()
        self._pool = pool or _open_pool(settings, settings.database_url, process, writes=True)
        self._payer_sealing: PayerSealing | None = None  # created on first use
        #: Called after the commit of a transaction that recorded an event.
        self.on_event: Callable[[], None] = lambda: None

    @property
    def payer_sealing(self) -> PayerSealing:
        if self._payer_sealing is None:
            encryption = load_encryption(self.settings)
            self._payer_sealing = PayerSealing(encryption, is_on=self.settings.seal_payer_data)
        return self._payer_sealing

    async def open(self) -> None:
        """Connect.

        Raises `StorageUnavailableError`, or `DatabaseRefusedError` if the failure is permanent.
        """
        self._pool.release(await self._borrow())

    async def close(self) -> None:
        """Close the pool. Running statements have 5 s to finish."""
        try:
            await asyncio.wait_for(self._pool.close(), timeout=5)
        except TimeoutError:
            self._pool.terminate()

    def drop_connections(self) -> None:
        """Drop all connections. Running statements fail, and later statements reconnect."""
        self._pool.terminate()

    async def fetch(self, query: LiteralString, *args: object) -> list[Row]:
        connection = await self._borrow()
        try:
            return await connection.fetch(query, *args)
        except _FAILURES as error:
            raise self._fail(connection, error) from error
        finally:
            self._pool.release(connection)

    async def row(self, query: LiteralString, *args: object) -> Row | None:
        connection = await self._borrow()
        try:
            return await connection.fetchrow(query, *args)
        except _FAILURES as error:
            raise self._fail(connection, error) from error
        finally:
            self._pool.release(connection)

    @asynccontextmanager
    async def transaction(self, lock_timeout_ms: int | None = None) -> AsyncGenerator[Tx]:
        """Open a transaction that commits at the end of the block and rolls back on an exception.

        `lock_timeout_ms` overrides the lock timeout from the settings.
        """
        connection = await self._borrow()
        token = in_transaction.set(True)
        try:
            async with transaction(connection, lock_timeout_ms):
                tx = Tx(connection, self._pool, self.payer_sealing, self.id_generator)
                yield tx
        except _FAILURES as error:
            raise self._fail(connection, error) from error
        finally:
            self._pool.release(connection)
            in_transaction.reset(token)
        if tx.has_new_events:
            self.on_event()
        for callback in tx.after_commit:
            callback()

    def make_guarded(self, verify_lock: Callable[[], Awaitable[None]]) -> "GuardedDatabase":
        """Return a view that calls `verify_lock` before it writes; see `GuardedDatabase`."""
        guarded_database = GuardedDatabase(
            self.settings, self._pool, self.id_generator, verify_lock
        )
        guarded_database.on_event = self.on_event
        return guarded_database

    def _fail(self, connection: Connection, error: BaseException) -> Exception:
        """Translate an error. If the server has become read-only, drop its connections."""
        if isinstance(error, READ_ONLY):
            self._pool.discard(connection)
        return _translate_error(error)

    async def _borrow(self) -> Connection:
        try:
            return await self._pool.acquire(self.settings.database_acquire_timeout_s)
        except UNAVAILABLE as error:
            raise make_storage_error(error) from error


class GuardedDatabase(Database):
    """A database that verifies a lock before each commit and each statement outside a transaction.

    `verify_lock` must raise if this process no longer holds the lock, which prevents the write.
    """

    def __init__(
        self,
        settings: Settings,
        pool: ConnectionPool,
        id_generator: IdGenerator,
        verify_lock: Callable[[], Awaitable[None]],
    ) -> None:
        super().__init__(settings, pool=pool, id_generator=id_generator)
        self._verify_lock = verify_lock

    async def fetch(self, query: LiteralString, *args: object) -> list[Row]:
        await self._verify_lock()
        return await super().fetch(query, *args)

    async def row(self, query: LiteralString, *args: object) -> Row | None:
        await self._verify_lock()
        return await super().row(query, *args)

    @asynccontextmanager
    async def transaction(self, lock_timeout_ms: int | None = None) -> AsyncGenerator[Tx]:
        async with super().transaction(lock_timeout_ms) as tx:
            yield tx
            await self._verify_lock()  # last, immediately before the commit


def _translate_error(error: BaseException) -> Exception:
    if isinstance(error, INVALID_TEXT):
        return InvalidTextError()
    if isinstance(error, SCHEMA_MISMATCH):
        return StorageUnavailableError("the schema is missing or outdated; run payintent migrate")
    if isinstance(error, INSUFFICIENT_PRIVILEGE):
        return PermissionDeniedError(str(error).partition("\n")[0])
    if isinstance(error, LOCK_TIMEOUT):
        return LockTimeoutError()
    if isinstance(error, DISK_FULL):
        return StorageFullError("the database has no space left on its disk")
    name, message = type(error).__name__, str(error).partition("\n")[0]
    return StorageUnavailableError(f"{name}: {message}" if isinstance(error, INTERNAL) else name)


def open_read_pool(settings: Settings) -> ConnectionPool | None:
    """Create a pool of connections to the replica, or return None if there is no replica."""
    url = settings.database_read_url
    return _open_pool(settings, url, "payintent-read", writes=False) if url else None


def _open_pool(settings: Settings, url: str, process: str, *, writes: bool) -> ConnectionPool:
    pooled = settings.database_pooled
    server_settings = {"application_name": process}
    if not pooled:  # PgBouncer rejects unknown startup parameters
        server_settings |= {
            "statement_timeout": str(settings.database_statement_timeout_ms),
            "lock_timeout": str(settings.database_lock_timeout_ms),
            "idle_in_transaction_session_timeout": str(_IDLE_IN_TRANSACTION_MS),
            "jit": "off",
            "random_page_cost": "1.1",  # rows read by key are in memory or on flash storage
        }
        if not writes:
            server_settings["default_transaction_read_only"] = "on"
    return ConnectionPool(
        lambda: connect_as(url, server_settings, pooled=pooled, writes=writes),
        settings.database_connections_max,
        settings.database_statement_timeout_ms / 1000 + _DEADLINE_MARGIN_S,
        writes=writes,
    )
