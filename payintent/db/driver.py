"""A typed interface to asyncpg, which has no type annotations. All casts are in this module.

Statements are never cancelled. Instead of sending a CancelRequest, the driver closes the
connection, because cancelling a commit that is waiting for a standby would leave the transaction
committed on the primary only.
"""

import socket
import sys
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol, cast

import asyncpg

from payintent.db.hosts import RefusedConnectionError, get_database_hosts, make_connection_error

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUntypedBaseClass=false


Row = Mapping[str, Any]

_CONNECT_TIMEOUT_S = 10.0
_HOST_TIMEOUT_S = 2.0  # per host, if the URL has several
_CLOSE_TIMEOUT_S = 2.0
_KEEPALIVE_S, _KEEPALIVE_RETRY_S, _KEEPALIVE_RETRIES = 60, 10, 3
_STATEMENTS_MAX = 200  # prepared statements per connection
_FIRST_CUSTOM_OID = 16_384  # lower OIDs are the same on every server (FirstNormalObjectId)
#: Descriptions of built-in types, such as arrays. Without this cache, the driver would query them
#: again for each connection.
_built_in_types: dict[frozenset[int], Sequence[Row]] = {}

#: The database is unreachable, is shutting down, or has ended our session. The caller may retry.
UNAVAILABLE: tuple[type[BaseException], ...] = (
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # a socket closed between two messages
    asyncpg.OperatorInterventionError,  # a shutdown or a timeout
    asyncpg.InsufficientResourcesError,  # out of disk space, memory or connections
    asyncpg.PostgresSystemError,  # an I/O error
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.TransactionTimeoutError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.SerializationError,  # on a replica: the statement conflicts with recovery
    asyncpg.InternalServerError,
    OSError,  # includes TimeoutError
)
INTERNAL: type[BaseException] = asyncpg.InternalServerError
DISK_FULL: type[BaseException] = asyncpg.DiskFullError
READ_ONLY: type[BaseException] = asyncpg.ReadOnlySQLTransactionError
#: The transaction waited too long for a lock, or was ended because of a deadlock.
LOCK_TIMEOUT: tuple[type[BaseException], ...] = (
    asyncpg.LockNotAvailableError,
    asyncpg.DeadlockDetectedError,
)
INVALID_TEXT: tuple[type[BaseException], ...] = (
    asyncpg.InvalidTextRepresentationError,
    asyncpg.UntranslatableCharacterError,
    asyncpg.CharacterNotInRepertoireError,
    asyncpg.StatementTooComplexError,
)
POSTGRES_ERROR: type[BaseException] = asyncpg.PostgresError
NOT_SUPPORTED: type[BaseException] = asyncpg.FeatureNotSupportedError
INSUFFICIENT_PRIVILEGE: type[BaseException] = asyncpg.InsufficientPrivilegeError
SCHEMA_MISMATCH: tuple[type[BaseException], ...] = (
    asyncpg.UndefinedTableError,
    asyncpg.UndefinedColumnError,
    asyncpg.UndefinedFunctionError,
)
_UNREACHABLE = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # includes a read-only server
    OSError,
    ValueError,
    OverflowError,
)


class Connection(Protocol):
    """The methods of asyncpg's connection that we use."""

    server: str  # the host's URL

    async def fetch(self, query: str, *args: object) -> list[Row]: ...

    async def fetchrow(self, query: str, *args: object) -> Row | None: ...

    async def fetchval(self, query: str, *args: object) -> Any: ...

    async def execute(self, query: str, *args: object) -> str:
        """Run a statement, or several statements if there are no arguments."""
        ...

    async def copy_records_to_table(
        self, table_name: str, *, records: Iterable[Sequence[object]], columns: Sequence[str]
    ) -> str: ...

    async def add_listener(self, channel: str, callback: Callable[..., object]) -> None: ...

    def add_termination_listener(self, callback: Callable[[object], object]) -> None: ...

    def is_closed(self) -> bool: ...

    def is_in_transaction(self) -> bool: ...

    def is_read_only(self) -> bool:
        """Return whether the server has reported that it is read-only."""
        ...

    def get_statement_count(self) -> int:
        """Return the number of started statements. It is constant while a statement is running."""
        ...

    async def close(self) -> None:
        """Close the connection gracefully, or terminate it after 2 s."""
        ...

    def terminate(self) -> None:
        """Drop the connection immediately. Does nothing if it is already closed."""
        ...


@dataclass(frozen=True, slots=True)
class _NotSent:
    """A placeholder for an introspection statement that was not needed."""

    name: str = "not sent"


class _UncancelledConnection(asyncpg.Connection):
    """A connection that closes itself instead of cancelling its statement."""

    server = ""

    async def _introspect_types(
        self,
        typeoids: Iterable[int],
        timeout: float | None,  # noqa: ASYNC109 - the driver's parameter
    ) -> tuple[Any, Any]:
        """Query built-in types once per process. The queries take three round trips and 3 ms."""
        oids = frozenset(typeoids)
        if oids in _built_in_types:
            return _built_in_types[oids], _NotSent()
        types, statement = await super()._introspect_types(oids, timeout)
        if max(oids) < _FIRST_CUSTOM_OID:
            _built_in_types[oids] = types
        return types, statement

    def _cancel_current_command(self, waiter: object, cancel_waiter: object = None) -> None:
        """Close the socket. The driver calls this after a timeout or when a task is cancelled.

        The protocol is still active, and detects the closed socket in the next iteration of the
        event loop.
        """
        del waiter, cancel_waiter
        self._aborted = True
        self._transport.abort()

    def enable_keepalives(self) -> None:
        """Keep the connection open during a long statement, such as an index build.

        Firewalls and load balancers drop idle connections without notice. The response would never
        arrive.
        """
        stream = self._transport.get_extra_info("socket")
        if sys.platform == "linux" and stream.family != socket.AF_UNIX:
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEPALIVE_S)
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _KEEPALIVE_RETRY_S)
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _KEEPALIVE_RETRIES)

    def is_read_only(self) -> bool:
        settings = cast("object", self.get_settings())
        return (
            getattr(settings, "default_transaction_read_only", "off") == "on"
            or getattr(settings, "in_hot_standby", "off") == "on"
        )

    def get_statement_count(self) -> int:
        return self._protocol.queries_count if self._protocol else 0

    async def close(self, *, timeout: float | None = _CLOSE_TIMEOUT_S) -> None:  # noqa: ASYNC109
        try:
            await super().close(timeout=timeout)
        except UNAVAILABLE:
            self.terminate()


async def connect(
    url: str, name: str = "payintent", statement_timeout_s: float | None = None
) -> Connection:
    """Open a connection outside a pool, for LISTEN, migrations or locks.

    `name` is the `application_name`. The connection is closed if a statement exceeds
    `statement_timeout_s`.
    """
    return await _connect(
        url,
        _CONNECT_TIMEOUT_S,
        server_settings={"application_name": name},
        command_timeout=statement_timeout_s,
        target_session_attrs=_get_session_attributes(url),
    )


async def connect_as(
    url: str, server_settings: dict[str, str], *, pooled: bool, writes: bool = True
) -> Connection:
    """Open a connection for a pool. `pooled` is True if `url` is a pooler such as PgBouncer.

    If `writes` is True, read-only servers are rejected. Otherwise, the timeout is short, because
    reads can fall back to the primary.
    """
    return await _connect(
        url,
        _CONNECT_TIMEOUT_S if writes else _HOST_TIMEOUT_S,
        statement_cache_size=0 if pooled else _STATEMENTS_MAX,
        server_settings=server_settings,
        target_session_attrs=_get_session_attributes(url) if writes else None,
    )


@asynccontextmanager
async def transaction(
    connection: Connection, lock_timeout_ms: int | None = None
) -> AsyncGenerator[None]:
    """Open a transaction that commits at the end of the block and rolls back on an exception.

    `lock_timeout_ms` overrides the lock timeout of the connection.
    """
    lock_timeout = f"; SET LOCAL lock_timeout = {lock_timeout_ms:d}" if lock_timeout_ms else ""
    await connection.execute(f"BEGIN{lock_timeout}")
    try:
        yield
    except BaseException:
        await _roll_back(connection)
        raise
    if await connection.execute("COMMIT") != "COMMIT":  # a statement had failed
        raise asyncpg.InterfaceError("the transaction was rolled back")


async def _roll_back(connection: Connection) -> None:
    """Roll back. If that fails, drop the connection, which ends the transaction."""
    try:
        if not connection.is_closed():
            await connection.execute("ROLLBACK")
    except UNAVAILABLE:
        connection.terminate()


def _get_session_attributes(url: str) -> str | None:
    """Return the setting that requires a writable server; None if the URL specifies it."""
    return None if "target_session_attrs=" in url else "read-write"


async def _connect(url: str, timeout_s: float, **options: Any) -> Connection:
    """Connect to the first available host of a URL, with a separate timeout for each host."""
    try:
        hosts = get_database_hosts(url)
    except ValueError as error:
        raise make_connection_error(error) from error
    ordered_hosts = hosts.list_in_order()
    if len(ordered_hosts) > 1:
        timeout_s = _HOST_TIMEOUT_S
    failures: list[ConnectionError] = []
    for number, host_url in ordered_hosts:
        try:
            connection = await _connect_host(host_url, timeout_s, options)
        except ConnectionError as error:
            hosts.mark_unreachable(number)
            failures.append(error)
        except BaseException:
            hosts.mark_unreachable(number)  # cancelled while waiting for this host
            raise
        else:
            hosts.mark_reachable(number)
            return connection
    # Report a permanent failure only if all hosts fail permanently.
    temporary = [error for error in failures if not isinstance(error, RefusedConnectionError)]
    raise (temporary or failures)[0]


async def _connect_host(url: str, timeout_s: float, options: dict[str, Any]) -> Connection:
    try:
        connection = await asyncpg.connect(
            url,
            timeout=timeout_s,  # type: ignore[arg-type] - a float is accepted
            connection_class=_UncancelledConnection,
            **options,
        )
    except _UNREACHABLE as error:
        raise make_connection_error(error) from error
    connection.enable_keepalives()
    connection.server = url
    return cast("Connection", connection)
