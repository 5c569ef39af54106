# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUntypedBaseClass=false
"""The PostgreSQL driver with types: asyncpg ships none, so its casts are here alone.

No statement is ever cancelled: where the driver would send a CancelRequest, the connection is
closed. A commit that waits for a standby and is cancelled stays committed on this server alone.
"""

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol, cast

import asyncpg

from payintent.storage.connect_errors import RefusedConnectionError, connect_error
from payintent.storage.database_hosts import database_hosts

Row = Mapping[str, Any]

_CONNECT_TIMEOUT_S = 10.0
_HOST_TIMEOUT_S = 2.0  # of each host, where the URL has several
_CLOSE_TIMEOUT_S = 2.0
_STATEMENTS_MAX = 200  # prepared statements that one connection keeps
_OIDS_BUILT_IN = 16_384  # below it a type has the same number on every server (FirstNormalObjectId)
#: What a server said of sets of built-in types, such as arrays; the driver asks per connection.
_built_in_types: dict[frozenset[int], Sequence[Row]] = {}

#: The database is unreachable, shutting down, or has given up on us; the caller may retry.
GONE: tuple[type[BaseException], ...] = (
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # raised for a socket that died between two messages
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.TooManyConnectionsError,
    asyncpg.QueryCanceledError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.SerializationError,  # of a replica: the statement was in the way of its replay
    asyncpg.DiskFullError,
    asyncpg.InternalServerError,  # the server has a fault
    OSError,  # includes TimeoutError: no connection in time
)
INTERNAL: type[BaseException] = asyncpg.InternalServerError
DISK_FULL: type[BaseException] = asyncpg.DiskFullError
READ_ONLY: type[BaseException] = asyncpg.ReadOnlySQLTransactionError
LOCK_TIMEOUT: type[BaseException] = asyncpg.LockNotAvailableError
NOT_TEXT: tuple[type[BaseException], ...] = (
    asyncpg.InvalidTextRepresentationError,
    asyncpg.UntranslatableCharacterError,
    asyncpg.CharacterNotInRepertoireError,
    asyncpg.StatementTooComplexError,
)
POSTGRES_ERROR: type[BaseException] = asyncpg.PostgresError
NOT_SUPPORTED: type[BaseException] = asyncpg.FeatureNotSupportedError
NO_PERMISSION: type[BaseException] = asyncpg.InsufficientPrivilegeError
OLD_SCHEMA: tuple[type[BaseException], ...] = (
    asyncpg.UndefinedTableError,
    asyncpg.UndefinedColumnError,
    asyncpg.UndefinedFunctionError,
)
_UNREACHABLE = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # includes a server that takes no writes
    OSError,
    ValueError,
    OverflowError,
)


class Connection(Protocol):
    """One connection, as far as we use it."""

    server: str  # the address that it leads to

    async def fetch(self, query: str, *args: object) -> list[Row]:
        """Return all rows of a query."""
        ...

    async def fetchrow(self, query: str, *args: object) -> Row | None:
        """Return the first row, or None."""
        ...

    async def fetchval(self, query: str, *args: object) -> Any:
        """Return the first column of the first row."""
        ...

    async def execute(self, query: str, *args: object) -> str:
        """Run a statement, or several where there are no arguments."""
        ...

    async def copy_records_to_table(
        self, table_name: str, *, records: Iterable[Sequence[object]], columns: Sequence[str]
    ) -> str:
        """Write rows into a table by COPY."""
        ...

    async def add_listener(self, channel: str, callback: Callable[..., object]) -> None:
        """Call `callback` for each notification on a channel."""
        ...

    def add_termination_listener(self, callback: Callable[[object], object]) -> None:
        """Call `callback` when the connection is closed or lost."""
        ...

    def is_closed(self) -> bool:
        """Tell whether the connection can no longer be used."""
        ...

    def is_in_transaction(self) -> bool:
        """Tell whether a transaction is open."""
        ...

    def is_read_only(self) -> bool:
        """Tell whether the server has reported that it takes no writes."""
        ...

    def statement_count(self) -> int:
        """Return how many statements were begun; it stands still while one is under way."""
        ...

    async def close(self) -> None:
        """Close the connection after telling the server; cut it off where that takes long."""
        ...

    def terminate(self) -> None:
        """Cut off the connection at once; harmless where it is closed."""
        ...


@dataclass(frozen=True, slots=True)
class _NotSent:
    """Stands for a question that was not sent, so that nothing prepared before it was lost."""

    name: str = "not sent"


class _UncancelledConnection(asyncpg.Connection):
    """A connection that is closed where the driver would have its statement cancelled."""

    server = ""

    async def _introspect_types(
        self,
        typeoids: Iterable[int],
        timeout: float | None,  # noqa: ASYNC109 - the driver's own
    ) -> tuple[Any, Any]:
        """Ask about built-in types once in a process: it takes three round trips and 3 ms."""
        oids = frozenset(typeoids)
        if oids in _built_in_types:
            return _built_in_types[oids], _NotSent()
        types, statement = await super()._introspect_types(oids, timeout)
        if max(oids) < _OIDS_BUILT_IN:
            _built_in_types[oids] = types
        return types, statement

    def _cancel_current_command(self, waiter: object, cancel_waiter: object = None) -> None:
        """Close the socket: the driver calls this after a timeout and for a cancelled task.

        The protocol is still at work, so that it learns of it in the next turn of the loop.
        """
        del waiter, cancel_waiter
        self._aborted = True
        self._transport.abort()

    def is_read_only(self) -> bool:
        """Tell whether the server has reported that it takes no writes."""
        reported = cast("object", self.get_settings())
        return (
            getattr(reported, "default_transaction_read_only", "off") == "on"
            or getattr(reported, "in_hot_standby", "off") == "on"
        )

    def statement_count(self) -> int:
        """Return how many statements were begun; it stands still while one is under way."""
        return self._protocol.queries_count if self._protocol else 0

    async def close(self, *, timeout: float | None = _CLOSE_TIMEOUT_S) -> None:  # noqa: ASYNC109
        """Close the connection after telling the server; cut it off where that takes long."""
        try:
            await super().close(timeout=timeout)
        except GONE:
            self.terminate()


async def connect(
    url: str, name: str = "payintent", statement_timeout_s: float | None = None
) -> Connection:
    """Open a connection of its own, for LISTEN, migrations or locks, under a name.

    A statement that takes longer than `statement_timeout_s` ends the connection.
    """
    return await _connect(
        url,
        _CONNECT_TIMEOUT_S,
        server_settings={"application_name": name},
        command_timeout=statement_timeout_s,
        target_session_attrs=_writable(url),
    )


async def connect_as(
    url: str, server_settings: dict[str, str], *, pooled: bool, writes: bool = True
) -> Connection:
    """Open a connection of a pool; `pooled` where a pooler stands between.

    A server that takes no writes is refused, unless the pool only reads; then there is another
    server to read from, and this one gets little time to answer.
    """
    return await _connect(
        url,
        _CONNECT_TIMEOUT_S if writes else _HOST_TIMEOUT_S,
        statement_cache_size=0 if pooled else _STATEMENTS_MAX,
        server_settings=server_settings,
        target_session_attrs=_writable(url) if writes else None,
    )


@asynccontextmanager
async def transaction(
    connection: Connection, lock_timeout_ms: int | None = None
) -> AsyncGenerator[None]:
    """Open a transaction; it commits at the end of the block and rolls back on an exception.

    It waits for each lock so long; without `lock_timeout_ms`, as long as the connection is set to.
    """
    patience = f"; SET LOCAL lock_timeout = {lock_timeout_ms:d}" if lock_timeout_ms else ""
    await connection.execute(f"BEGIN{patience}")
    try:
        yield
    except BaseException:
        await _roll_back(connection)
        raise
    if await connection.execute("COMMIT") != "COMMIT":  # one of its statements had failed
        raise asyncpg.InterfaceError("the transaction was rolled back")


async def _roll_back(connection: Connection) -> None:
    """Roll back; a connection that cannot is cut off, and with it its transaction."""
    try:
        if not connection.is_closed():
            await connection.execute("ROLLBACK")
    except GONE:
        connection.terminate()


def _writable(url: str) -> str | None:
    """Ask for a server that takes writes, unless the URL itself says which one it wants."""
    return None if "target_session_attrs=" in url else "read-write"


async def _connect(url: str, timeout_s: float, **options: Any) -> Connection:
    """Try the hosts of a URL one by one, for as long each as one may take."""
    try:
        hosts = database_hosts(url)
    except ValueError as error:
        raise connect_error(error) from error
    order = hosts.in_order()
    if len(order) > 1:
        timeout_s = _HOST_TIMEOUT_S
    failures: list[ConnectionError] = []
    for number, host_url in order:
        try:
            connection = await _connect_host(host_url, timeout_s, options)
        except ConnectionError as error:
            hosts.mark_bad(number)
            failures.append(error)
        except BaseException:
            hosts.mark_bad(number)  # cancelled while this host gave no answer
            raise
        else:
            hosts.mark_good(number)
            return connection
    # What trying again cannot mend is said only where every host says so.
    passing = [error for error in failures if not isinstance(error, RefusedConnectionError)]
    raise (passing or failures)[0]


async def _connect_host(url: str, timeout_s: float, options: dict[str, Any]) -> Connection:
    try:
        opened = await asyncpg.connect(
            url,
            timeout=timeout_s,  # type: ignore[arg-type] - a float will do
            connection_class=_UncancelledConnection,
            **options,
        )
    except _UNREACHABLE as error:
        raise connect_error(error) from error
    opened.server = url
    return cast("Connection", opened)
