"""The copied tables: what control has changed of them, and their rows for other cells.

Control numbers its changes (`configuration_version`) and notes the keys of what each has touched
(`configuration_change`); a cell says of which number its copies are (`configuration_copy`).
"""

from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import LiteralString
from uuid import UUID, uuid4

from payintent.storage.database import Executor, Row, Tx

#: Each with the columns of its key, after those that it refers to.
COPIED: Mapping[LiteralString, tuple[LiteralString, ...]] = {
    "cell": ("number",),
    "provider": ("name",),
    "merchant": ("id",),
    "merchant_cell": ("merchant_id", "since"),
    "provider_account": ("id",),
    "payment_method": ("id",),
    "chain": ("slug",),
    "chain_contract": ("account_id",),
    "chain_token": ("chain", "symbol"),
    "api_key": ("public_id",),
    "callback_secret": ("id",),
    "fraud_rule": ("id",),
    "rate_limit": ("merchant_id", "class"),
    "restriction": ("type", "country"),
    "ring_key": ("name",),
    "tax_rate": ("country",),
}
ROWS_MAX = 1_000  # read and written at once, as `walk_rows` says too
CHANGES_MAX = 20_000  # beyond, whole tables cost less
_CHAINS_MAX = 1_000

#: When a key was used last is control's alone.
_ROW: LiteralString = "(to_jsonb(t) - 'last_used_at')::text AS row"


@dataclass(frozen=True, slots=True)
class ChangeNumber:
    """Of which change of control something is; the token tells apart two changes of one number."""

    number: int
    token: UUID


@dataclass(frozen=True, slots=True)
class CopyState:
    """Of which change a cell's copies are (None: of none), and by which schemas they were made."""

    change: ChangeNumber | None
    made_as: str
    migrations: int  # that the cell has
    copied_at: datetime | None = None  # when they were written last


@dataclass(frozen=True, slots=True)
class CopiedRow:
    """A row and its key, both as JSON of the server."""

    key: str
    row: str


Changes = Mapping[str, Sequence[str]]  # the keys of each table, as JSON


async def read_copy(cell: Executor) -> CopyState:
    """Read of which change a cell's copies are."""
    row = await cell.row(
        """
        SELECT number, token, made_as, copied_at,
            (SELECT count(*) FROM schema_migration) AS migrations
        FROM configuration_copy
        """
    )
    assert row is not None  # noqa: S101 - the table has one row
    return _copy(row)


async def lock_copy(tx: Tx) -> CopyState | None:
    """Lock a cell's copies until the end of the transaction; None where another copier has them."""
    row = await tx.row(
        """
        SELECT number, token, made_as, copied_at,
            (SELECT count(*) FROM schema_migration) AS migrations
        FROM configuration_copy
        FOR NO KEY UPDATE SKIP LOCKED
        """
    )
    return _copy(row) if row else None


async def save_copy(tx: Tx, change: ChangeNumber, made_as: str, *, written: bool) -> None:
    """Record of which change a cell's copies are; `written` has its processes read them anew."""
    await tx.fetch(
        """
        UPDATE configuration_copy
        SET number = $1, token = $2, made_as = $3, copied_at = clock()
        """,
        change.number,
        change.token,
        made_as,
    )
    if written:
        await tx.fetch("UPDATE configuration_version SET version = $1", uuid4())


async def forget_copy(tx: Tx) -> None:
    """Let the next pass of the copier write a cell's tables anew, of whatever change they were."""
    await tx.fetch("UPDATE configuration_copy SET number = NULL, token = NULL")


async def begin_snapshot(control: Tx) -> None:
    """Let all that a transaction reads be of one moment; it must be its first statement."""
    await control.fetch("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")


async def read_change(control: Executor) -> tuple[ChangeNumber, int]:
    """Read the newest change of control, and how many migrations control has."""
    row = await control.row(
        """
        SELECT number, token, (SELECT count(*) FROM schema_migration) AS migrations
        FROM configuration_version
        """
    )
    assert row is not None  # noqa: S101 - the table has one row
    return ChangeNumber(row["number"], row["token"]), row["migrations"]


async def knows_change(control: Executor, change: ChangeNumber) -> bool | None:
    """Tell whether a change was one of control's; None where that is too long ago to tell."""
    row = await control.row(
        """
        SELECT EXISTS (
                SELECT FROM configuration_change
                WHERE number = $1 AND token = $2
            ) OR EXISTS (
                SELECT FROM configuration_version
                WHERE number = $1 AND token = $2
            ) AS is_known,
            (SELECT min(number) FROM configuration_change) AS oldest
        """,
        change.number,
        change.token,
    )
    assert row is not None  # noqa: S101 - it has no FROM
    if row["is_known"]:
        return True
    return None if row["oldest"] is None or row["oldest"] > change.number else False


async def is_foreign(control: Executor, change: ChangeNumber) -> bool:
    """Tell whether a cell's copies are of a change that control has not, or has not any more."""
    newest, _ = await read_change(control)
    return change.number > newest.number or await knows_change(control, change) is False


async def list_changes(control: Executor, after: int) -> Changes | None:
    """List the keys that changed after a number, by table; None where there are too many."""
    rows = await control.fetch(
        """
        SELECT DISTINCT table_name, key::text AS key
        FROM configuration_change
        WHERE number > $1
        LIMIT $2
        """,
        after,
        CHANGES_MAX + 1,
    )
    if len(rows) > CHANGES_MAX:
        return None
    changes: defaultdict[str, list[str]] = defaultdict(list)
    for row in rows:
        changes[row["table_name"]].append(row["key"])
    return changes


async def read_rows(
    control: Executor, table: LiteralString, keys: Sequence[str]
) -> list[CopiedRow]:
    """Read the rows of some keys, in their order; what is gone is left out."""
    rows = await control.fetch(_BY_KEY[table], f"[{','.join(keys)}]", len(keys))
    return [CopiedRow(**row) for row in rows]


async def walk_rows(control: Tx, table: LiteralString) -> AsyncIterator[list[CopiedRow]]:
    """Read a whole table, some rows at a time, in the order of their keys."""
    await control.fetch(_DECLARED[table])
    fetched: LiteralString = "FETCH 1000 FROM copied_rows"
    while rows := await control.fetch(fetched):
        yield [CopiedRow(**row) for row in rows]
    closed: LiteralString = "CLOSE copied_rows"
    await control.fetch(closed)


async def begin_copying(cell: Tx) -> None:
    """Say who writes, and check unique keys at the end.

    A lost row may be in the way of the one that replaced it. On Citus a node knows of a SET, not
    of what `copies_begin` sets; a schema that was moved has triggers of statements there.
    """
    await cell.fetch("SET LOCAL payintent.copied_by = 'copier'")
    await cell.fetch("SET CONSTRAINTS ALL DEFERRED")


async def write_rows(cell: Tx, table: LiteralString, rows: Sequence[CopiedRow]) -> int:
    """Insert or update copies; gives how many differed."""
    given = f"[{','.join(row.row for row in rows)}]"
    written = await cell.row("SELECT copy_rows($1, $2::jsonb) AS rows", table, given)
    return written["rows"] if written else 0


async def drop_rows(
    cell: Tx, table: LiteralString, changed: Sequence[str] | None, kept: Sequence[str]
) -> int:
    """Delete copies of what control has not any more: those of `changed` (None: all) but `kept`."""
    dropped = await cell.row(
        "SELECT drop_copies($1, $2::jsonb, $3::jsonb) AS rows",
        table,
        None if changed is None else f"[{','.join(changed)}]",
        f"[{','.join(kept)}]",
    )
    return dropped["rows"] if dropped else 0


async def begin_cursors(control: Executor, cell: Executor) -> None:
    """Let a cell read each chain on from where control is, where it does not read it yet.

    That is a final block of before the contract came into the cell, and so of before its first
    session there.
    """
    rows = await control.fetch(
        "SELECT chain, block FROM chain_cursor ORDER BY chain LIMIT $1", _CHAINS_MAX
    )
    await cell.fetch(
        """
        INSERT INTO chain_cursor (chain, block)
        SELECT new.chain, new.block
        FROM unnest($1::text[], $2::bigint[]) AS new (chain, block)
        ON CONFLICT (chain) DO NOTHING
        """,
        [row["chain"] for row in rows],
        [row["block"] for row in rows],
    )


def _copy(row: Row) -> CopyState:
    change = ChangeNumber(row["number"], row["token"]) if row["number"] is not None else None
    return CopyState(change, row["made_as"], row["migrations"], row["copied_at"])


def _selected(table: LiteralString, key: tuple[LiteralString, ...]) -> LiteralString:
    named = ", ".join(f"'{column}', t.{column}" for column in key)
    return f"SELECT jsonb_build_object({named})::text AS key, {_ROW} FROM {table} t"


def _by_key(table: LiteralString, key: tuple[LiteralString, ...]) -> LiteralString:
    same = " AND ".join(f"k.{column} = t.{column}" for column in key)
    joined = f" JOIN jsonb_populate_recordset(NULL::{table}, $1::jsonb) k ON {same}"
    return _selected(table, key) + joined + _ordered(key) + " LIMIT $2"


def _ordered(key: tuple[LiteralString, ...]) -> LiteralString:
    return " ORDER BY " + ", ".join(f"t.{column}" for column in key)


_BY_KEY: Mapping[str, LiteralString] = {table: _by_key(table, key) for table, key in COPIED.items()}
_DECLARED: Mapping[str, LiteralString] = {
    table: "DECLARE copied_rows NO SCROLL CURSOR FOR " + _selected(table, key) + _ordered(key)
    for table, key in COPIED.items()
}
