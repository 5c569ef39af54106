"""A whole cell on its way to another PostgreSQL server, by logical replication.

The old database goes on while everything in it is copied and followed; the new one takes no writes
but those of the subscription until the move is finished (`cell_switch`). Decision 122 says why.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from payintent.domain.errors import ErrorCode, RefusedError, StorageUnavailableError
from payintent.storage.connect_errors import connect_error
from payintent.storage.driver import (
    GONE,
    LOCK_TIMEOUT,
    OLD_SCHEMA,
    POSTGRES_ERROR,
    Connection,
    connect,
    transaction,
)

_NAME = "payintent_move"
#: Rows are only added, and taken away when they are old: it has no key to follow changes by.
_APPENDED = frozenset({"buyer_attempt"})
_NOT_MOVED = "schema_migration"  # the new database has its own
_CLOCKS_MAX_S = 1.0
_LOCKS_MS = 2_000
_NAMED_MAX = 5
#: In a URL, what PostgreSQL's own client does not know, or must not be told.
_NOT_LIBPQ = frozenset({"search_path", "target_session_attrs"})
_FACTS = """
SELECT current_database() AS database, current_schema() AS schema,
    current_setting('wal_level') AS wal_level,
    (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) AS is_superuser,
    (SELECT system_identifier FROM pg_control_system()) AS server,
    pg_encoding_to_char(encoding) || ' ' || datcollate || ' ' || datctype AS locale,
    extract(epoch FROM clock_timestamp())::float8 AS seconds,
    (SELECT count(*) FROM pg_class WHERE relname = 'installation' AND relkind = 'r') AS schemas,
    EXISTS (SELECT FROM pg_publication WHERE pubname = $1) AS is_published,
    EXISTS (SELECT FROM pg_subscription WHERE subname = $1 AND subdbid = pg_database.oid)
        AS is_subscribed,
    EXISTS (SELECT FROM pg_db_role_setting WHERE setdatabase = pg_database.oid AND setrole = 0
        AND 'default_transaction_read_only=on' = ANY (setconfig)) AS is_fenced
FROM pg_database WHERE datname = current_database()
"""
_TABLES = """
SELECT c.relname AS name, c.relpersistence = 'u' AS is_unlogged, pg_relation_size(c.oid) AS bytes,
    ARRAY(SELECT quote_ident(a.attname) FROM pg_index i, unnest(i.indkey) WITH ORDINALITY k (n, at)
        JOIN pg_attribute a ON a.attnum = k.n
        WHERE i.indrelid = c.oid AND i.indisprimary AND a.attrelid = c.oid ORDER BY k.at) AS key
FROM pg_class c
WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p')
ORDER BY 1
"""
_TRIGGERS = """
SELECT DISTINCT tgname AS name FROM pg_trigger JOIN pg_class c ON c.oid = tgrelid
WHERE tgenabled IN ('A', 'R') AND c.relnamespace = current_schema()::regnamespace ORDER BY 1
"""
_MIGRATIONS = "SELECT name || ' ' || checksum AS line FROM schema_migration"
_RIGHTS = """
SELECT format('%s on %s to %s', a.privilege_type, c.relname, a.grantee::regrole) AS line
FROM pg_class c, aclexplode(c.relacl) a
WHERE c.relnamespace = current_schema()::regnamespace AND a.grantee <> c.relowner
UNION ALL
SELECT format('%s on %s of %s to %s', a.privilege_type, t.attname, c.relname, a.grantee::regrole)
FROM pg_class c JOIN pg_attribute t ON t.attrelid = c.oid, aclexplode(t.attacl) a
WHERE c.relnamespace = current_schema()::regnamespace AND a.grantee <> c.relowner
UNION ALL
SELECT format('%s on %s to %s', a.privilege_type, p.proname, a.grantee::regrole)
FROM pg_proc p, aclexplode(p.proacl) a
WHERE p.pronamespace = current_schema()::regnamespace AND a.grantee <> p.proowner
UNION ALL
SELECT format('%s of %s', setting, r.rolname)
FROM pg_db_role_setting s JOIN pg_roles r ON r.oid = s.setrole, unnest(setconfig) setting
WHERE setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))
"""
_PROGRESS = """
SELECT c.relname AS name, r.srsubstate::text AS state, pg_relation_size(c.oid) AS bytes
FROM pg_subscription_rel r JOIN pg_class c ON c.oid = r.srrelid
    JOIN pg_subscription s ON s.oid = r.srsubid WHERE s.subname = $1 ORDER BY 1
"""
_SLOT = """
SELECT active, wal_status,
    pg_wal_lsn_diff(pg_current_wal_insert_lsn(), confirmed_flush_lsn)::int8 AS behind
FROM pg_replication_slots WHERE slot_name = $1
"""
_STATES = {"i": "waits", "d": "is copied", "f": "is copied", "s": "catches up", "r": "follows"}


@dataclass(frozen=True, slots=True)
class MovedTable:
    """A table of the cell, as the old database has it."""

    name: str
    key: Sequence[str]  # the columns of its primary key
    is_unlogged: bool  # no server sends it to another
    bytes: int

    @property
    def is_followed(self) -> bool:
        """Tell whether all changes are followed, not added rows alone."""
        return self.name not in _APPENDED


@dataclass(frozen=True, slots=True)
class TableProgress:
    """How far a table is on the new server."""

    name: str
    state: str
    bytes: int


@dataclass(frozen=True, slots=True)
class MoveProgress:
    """How far a move is; `behind` is the log, in bytes, that the new server has not confirmed."""

    tables: Sequence[TableProgress]
    behind: int
    follows: bool  # every table does, and the new server is connected


class CellMove:
    """Both databases of a cell that is moved, each as a superuser."""

    def __init__(self, cell: int, old: Connection, new: Connection) -> None:
        self.cell = cell
        self.old = old
        self.new = new

    @property
    def slot(self) -> str:
        """Name the slot that the old server keeps its log by."""
        return f"{_NAME}_{self.cell}"

    async def facts(self) -> tuple[Any, Any]:
        """Read what each server is, and how far it is in a move."""
        old, new = await asyncio.gather(
            *(side.fetchrow(_FACTS, _NAME) for side in (self.old, self.new))
        )
        return old, new

    async def tables(self) -> list[MovedTable]:
        """List the tables that are moved, and those that begin anew."""
        rows = await self.old.fetch(_TABLES)
        return [MovedTable(**row) for row in rows if row["name"] != _NOT_MOVED]

    async def begin(self) -> None:
        """Let the new server copy everything, and follow (`RefusedError`)."""
        old, new = await self.facts()
        if old["is_published"] or new["is_subscribed"]:
            raise _refused("a move was begun here already: go on with it, or abort it")
        tables = await self.tables()
        _require_servers(old, new, tables)
        await self._require_cell()
        await self._require_empty()
        await self._require_alike()
        await self._publish(old["schema"], tables)
        await self._subscribe(new, tables)

    async def _require_cell(self) -> None:
        row = await self.old.fetchrow("SELECT cell FROM installation LIMIT 1")
        if row is None or row["cell"] != self.cell:
            found = "of no cell yet" if row is None else f"that of cell {row['cell']}"
            raise _refused(f"the old database is {found}, not that of cell {self.cell}")

    async def _require_empty(self) -> None:
        used = await self.new.fetchval(
            "SELECT EXISTS (SELECT FROM installation) OR EXISTS (SELECT FROM payment)"
        )
        if used:
            raise _refused("the new database is in use: make an empty one, and migrate it")

    async def _require_alike(self) -> None:
        """Compare schemas, rights and the settings of roles."""
        triggers = await self.new.fetch(_TRIGGERS)
        if triggers:
            names = ", ".join(row["name"] for row in triggers[:_NAMED_MAX])
            raise _refused(f"triggers that fire for what is followed would act twice: {names}")
        if await self._missing(_MIGRATIONS) or await self._missing(_MIGRATIONS, turned=True):
            raise _refused("the schemas differ: run the same `payintent migrate` at both")
        if missing := await self._missing(_RIGHTS):
            names = ", ".join(missing[:_NAMED_MAX])
            raise _refused(f"the new database lacks rights or roles' settings: {names}")

    async def _missing(self, query: str, *, turned: bool = False) -> list[str]:
        old, new = await asyncio.gather(self.old.fetch(query), self.new.fetch(query))
        found, other = {row["line"] for row in old}, {row["line"] for row in new}
        return sorted(other - found if turned else found - other)

    async def require_same_schema(self) -> None:
        """Refuse where one of the two was migrated since the move began."""
        if await self._missing(_MIGRATIONS) or await self._missing(_MIGRATIONS, turned=True):
            raise _refused("a database was migrated since the move began: abort it, and begin anew")

    async def _publish(self, schema: str, tables: Sequence[MovedTable]) -> None:
        async with transaction(self.old, _LOCKS_MS):
            for name, names in _publications(tables).items():
                listed = ", ".join(f'"{schema}"."{table}"' for table in names)
                how = "insert" if name != _NAME else "insert, update, delete, truncate"
                await self.old.execute(
                    f"CREATE PUBLICATION {name} FOR TABLE {listed} WITH (publish = '{how}')"
                )

    async def _subscribe(self, new: Any, tables: Sequence[MovedTable]) -> None:
        """Empty the new database of what migrations wrote, close it to others, and subscribe."""
        await empty(self.new, tables)
        await fence(self.new, new["database"])
        address = await self.new.fetchval("SELECT quote_literal($1::text)", self._address())
        publications = ", ".join(_publications(tables))
        # The statement holds a password: the server's log must not.
        await self.new.execute("SET log_statement = 'none'")
        await self.new.execute("SET log_min_duration_statement = -1")
        await self.new.execute("SET log_min_error_statement = 'panic'")
        await self.new.execute(
            f"CREATE SUBSCRIPTION {_NAME} CONNECTION {address} PUBLICATION {publications} "
            f"WITH (slot_name = '{self.slot}')"
        )

    def _address(self) -> str:
        """Give the old server's address in the words of PostgreSQL's own client.

        That one refuses a `%` which the driver takes for itself, and its error quotes the password.
        """
        parts = urlsplit(self.old.server)
        login, at, hosts = parts.netloc.rpartition("@")
        login = ":".join(quote(unquote(part), safe="") for part in login.split(":", 1))
        query = [(key, value) for key, value in parse_qsl(parts.query) if key not in _NOT_LIBPQ]
        return urlunsplit(parts._replace(netloc=login + at + hosts, query=urlencode(query)))

    async def progress(self) -> MoveProgress:
        """Say how far each table is, and how much of the log is left (`RefusedError`)."""
        rows = await self.new.fetch(_PROGRESS, _NAME)
        slot = await self.old.fetchrow(_SLOT, self.slot)
        if not rows or slot is None:
            raise _refused(f"no move of cell {self.cell} is under way")
        if slot["wal_status"] == "lost":
            raise _refused("the old server threw away log that the new one needs: abort the move")
        tables = [TableProgress(row["name"], _STATES[row["state"]], row["bytes"]) for row in rows]
        ready = all(row["state"] == "r" for row in rows)
        return MoveProgress(tables, slot["behind"], ready and slot["active"])

    async def abort(self) -> None:
        """Give the move up: the old database is as it was, the new one empty (`RefusedError`)."""
        old, new = await self.facts()
        if not old["is_published"]:
            raise _refused(f"no move of cell {self.cell} is under way")
        if old["is_fenced"] and not new["is_fenced"]:
            raise _refused("the move is finished: the new database has the cell")
        if new["is_subscribed"]:
            await self.new.execute(f"DROP SUBSCRIPTION {_NAME}")
        if new["is_fenced"]:  # else it was not begun there, and may be anybody's
            await empty(self.new, await self.tables())
            await open_again(self.new, new["database"])
        await self.unpublish()
        await open_again(self.old, old["database"])

    async def unpublish(self) -> None:
        """Take the publications away."""
        await self.old.execute(f"DROP PUBLICATION IF EXISTS {_NAME}, {_NAME}_appended")

    async def unsubscribe(self) -> None:
        """Take the subscription away, with the old server's slot."""
        await self.new.execute(f"DROP SUBSCRIPTION IF EXISTS {_NAME}")

    async def stop_following(self) -> None:
        """Let nothing more come from the old server."""
        await self.new.execute(f"ALTER SUBSCRIPTION {_NAME} DISABLE")

    async def follow_again(self) -> None:
        """Let what happens at the old server come again."""
        await self.new.execute(f"ALTER SUBSCRIPTION {_NAME} ENABLE")


@asynccontextmanager
async def open_move(cell: int, old_url: str, new_url: str) -> AsyncGenerator[CellMove]:
    """Connect to both, also where one takes no writes, with the driver's errors as our own."""
    opened: list[Connection] = []
    try:
        for which, url in (("old", old_url), ("new", new_url)):
            try:
                opened.append(await _connect(url))
            except ConnectionError as error:
                raise StorageUnavailableError(f"the {which} server: {error}") from error
        yield CellMove(cell, *opened)
    except OLD_SCHEMA as error:
        raise _refused("a schema is missing or old: run `payintent migrate` at both") from error
    except LOCK_TIMEOUT as error:
        raise _refused("a table was in use for too long; try again") from error
    except GONE as error:
        raise StorageUnavailableError(f"a server went away: {type(error).__name__}") from error
    except POSTGRES_ERROR as error:  # its first line; the others may quote a statement
        raise _refused(f"PostgreSQL says: {str(error).partition(chr(10))[0]}") from error
    finally:
        for connection in opened:
            await connection.close()


async def _connect(url: str) -> Connection:
    try:
        parts = urlsplit(url)
    except ValueError as error:  # it may quote the password
        raise connect_error(error) from None
    query = [*parse_qsl(parts.query), ("target_session_attrs", "any")]
    opened = await connect(urlunsplit(parts._replace(query=urlencode(query))), "payintent-move")
    # What both show as text must look the same, and our own statements pass the fence.
    await opened.execute(
        "SET default_transaction_read_only = off; SET synchronous_commit = on; "
        "SET TimeZone = 'UTC'; SET DateStyle = 'ISO'; SET extra_float_digits = 1; SET jit = off"
    )
    return opened


async def reopen_old(url: str) -> None:
    """Let the old database take writes again, while the new server is away."""
    try:
        old = await _connect(url)
        try:
            await open_again(old, await old.fetchval("SELECT current_database()"))
        finally:
            await old.close()
    except GONE as error:
        raise StorageUnavailableError(f"the old server is away: {type(error).__name__}") from error


async def fence(side: Connection, database: str) -> None:
    """Let a database take no writes of connections that begin from now on."""
    await side.execute(f'ALTER DATABASE "{database}" SET default_transaction_read_only = on')


async def open_again(side: Connection, database: str) -> None:
    """Let a database take writes again."""
    await side.execute(f'ALTER DATABASE "{database}" RESET default_transaction_read_only')


async def empty(side: Connection, tables: Sequence[MovedTable]) -> None:
    """Empty all tables; triggers and references do not count for a replica."""
    names = ", ".join(f'"{table.name}"' for table in tables)
    async with transaction(side, _LOCKS_MS):
        await side.execute("SET LOCAL session_replication_role = replica")
        await side.execute(f"TRUNCATE {names} RESTART IDENTITY")


def _publications(tables: Sequence[MovedTable]) -> dict[str, list[str]]:
    """Give the tables of each publication: all changes, or only what is added."""
    sent = [table for table in tables if not table.is_unlogged]
    found = {
        _NAME: [table.name for table in sent if table.is_followed],
        f"{_NAME}_appended": [table.name for table in sent if not table.is_followed],
    }
    return {name: names for name, names in found.items() if names}


def _require_servers(old: Any, new: Any, tables: Sequence[MovedTable]) -> None:
    """Refuse servers between which no cell can be moved."""
    if old["server"] == new["server"]:
        raise _refused("both databases are of one server, or of one and its copy")
    for which, side in (("old", old), ("new", new)):
        if not side["is_superuser"]:
            raise _refused(f"the role at the {which} server has to be a superuser")
        if side["schemas"] > 1:
            raise _refused(f"the {which} database has several cells in schemas: they go together")
    if old["wal_level"] != "logical":
        raise _refused(
            f"wal_level is {old['wal_level']} at the old server: set it to logical, and restart it"
        )
    if old["schema"] != new["schema"]:
        raise _refused(f"the schema is {old['schema']} here and {new['schema']} there")
    if old["locale"] != new["locale"]:
        raise _refused(f"the locale is {old['locale']} here and {new['locale']} there")
    if abs(old["seconds"] - new["seconds"]) > _CLOCKS_MAX_S:
        raise _refused("the servers' clocks are more than a second apart")
    keyless = [table.name for table in tables if table.is_followed and not table.key]
    if keyless:
        raise _refused(f"tables without a primary key cannot be followed: {', '.join(keyless)}")


def _refused(why: str) -> RefusedError:
    return RefusedError(ErrorCode.CONFLICT, why)
