# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
"""The PostgreSQL driver with types: asyncpg ships none, so its casts stand here alone."""

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, cast

import asyncpg

Row = Mapping[str, Any]

_CONNECT_TIMEOUT_S = 10
_STATEMENTS_MAX = 200  # that one connection keeps prepared

#: The database is away, ending, or has given up on us; whoever asked may ask again.
GONE: tuple[type[BaseException], ...] = (
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # its word for a socket that died between two messages
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.TooManyConnectionsError,
    asyncpg.QueryCanceledError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.DiskFullError,
    OSError,  # TimeoutError is one: nobody gave us a connection in time
)
LOCK_TIMEOUT: type[BaseException] = asyncpg.LockNotAvailableError
NOT_TEXT: tuple[type[BaseException], ...] = (
    asyncpg.InvalidTextRepresentationError,
    asyncpg.UntranslatableCharacterError,
    asyncpg.CharacterNotInRepertoireError,
    asyncpg.StatementTooComplexError,
)


OLD_SCHEMA: tuple[type[BaseException], ...] = (
    asyncpg.UndefinedTableError,
    asyncpg.UndefinedColumnError,
    asyncpg.UndefinedFunctionError,
)
_UNREACHABLE = (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, ValueError)


class Connection(Protocol):
    """One connection, as far as we use it."""

    async def fetch(self, query: str, *args: object) -> list[Row]:
        """Give all rows."""
        ...

    async def fetchrow(self, query: str, *args: object) -> Row | None:
        """Give the first row."""
        ...

    async def fetchval(self, query: str, *args: object) -> Any:
        """Give the first column of the first row."""
        ...

    async def execute(self, query: str, *args: object) -> str:
        """Run a statement, or several where there are no arguments."""
        ...

    def transaction(self) -> AbstractAsyncContextManager[object]:
        """Open a transaction."""
        ...

    async def add_listener(self, channel: str, callback: Callable[..., object]) -> None:
        """Call back for each notification on a channel."""
        ...

    def add_termination_listener(self, callback: Callable[[object], object]) -> None:
        """Call back when the connection is gone."""
        ...

    def is_closed(self) -> bool:
        """Tell whether it is of no more use."""
        ...

    def is_in_transaction(self) -> bool:
        """Tell whether a transaction is open."""
        ...

    async def close(self) -> None:
        """Close the connection."""
        ...

    def terminate(self) -> None:
        """Cut the connection off; harmless when it is closed."""
        ...


async def connect(url: str) -> Connection:
    """Open a connection of its own: for LISTEN, migrations and locks."""
    try:
        return cast("Connection", await asyncpg.connect(url, timeout=_CONNECT_TIMEOUT_S))
    except _UNREACHABLE as error:
        raise _unreachable(error) from error


async def connect_as(url: str, server_settings: dict[str, str] | None) -> Connection:
    """Open a connection of a pool; without server settings it is fit for a pooler of its own."""
    behind_pooler = server_settings is None
    try:
        opened: object = await asyncpg.connect(
            url,
            timeout=_CONNECT_TIMEOUT_S,
            statement_cache_size=0 if behind_pooler else _STATEMENTS_MAX,
            server_settings=server_settings,
        )
    except _UNREACHABLE as error:
        raise _unreachable(error) from error
    return cast("Connection", opened)


def _unreachable(error: BaseException) -> ConnectionError:
    """Name the error and no more: its message may hold the address, and with it a password."""
    return ConnectionError(f"the database cannot be reached: {type(error).__name__}")
