# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
"""The PostgreSQL driver with types: asyncpg ships none, so its casts are here alone."""

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, cast

import asyncpg

from payintent.storage.connect_errors import connect_error

Row = Mapping[str, Any]

_CONNECT_TIMEOUT_S = 10
_STATEMENTS_MAX = 200  # prepared statements that one connection keeps

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
    asyncpg.DiskFullError,
    OSError,  # includes TimeoutError: no connection in time
)
LOCK_TIMEOUT: type[BaseException] = asyncpg.LockNotAvailableError
NOT_TEXT: tuple[type[BaseException], ...] = (
    asyncpg.InvalidTextRepresentationError,
    asyncpg.UntranslatableCharacterError,
    asyncpg.CharacterNotInRepertoireError,
    asyncpg.StatementTooComplexError,
)
NO_PERMISSION: type[BaseException] = asyncpg.InsufficientPrivilegeError
OLD_SCHEMA: tuple[type[BaseException], ...] = (
    asyncpg.UndefinedTableError,
    asyncpg.UndefinedColumnError,
    asyncpg.UndefinedFunctionError,
)
_UNREACHABLE = (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, ValueError, OverflowError)


class Connection(Protocol):
    """One connection, as far as we use it."""

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

    def transaction(self) -> AbstractAsyncContextManager[object]:
        """Open a transaction; it commits at the end of the block and rolls back on an exception."""
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

    async def close(self) -> None:
        """Close the connection after telling the server."""
        ...

    def terminate(self) -> None:
        """Cut off the connection at once; harmless where it is closed."""
        ...


async def connect(url: str) -> Connection:
    """Open a single connection: for LISTEN, migrations and locks."""
    try:
        return cast("Connection", await asyncpg.connect(url, timeout=_CONNECT_TIMEOUT_S))
    except _UNREACHABLE as error:
        raise connect_error(error) from error


async def connect_as(url: str, server_settings: dict[str, str] | None) -> Connection:
    """Open a connection of a pool; without server settings it also works through a pooler."""
    behind_pooler = server_settings is None
    try:
        opened: object = await asyncpg.connect(
            url,
            timeout=_CONNECT_TIMEOUT_S,
            statement_cache_size=0 if behind_pooler else _STATEMENTS_MAX,
            server_settings=server_settings,
        )
    except _UNREACHABLE as error:
        raise connect_error(error) from error
    return cast("Connection", opened)
