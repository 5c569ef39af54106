"""How far merchants' days are closed, and the ledger's entries that are in no statement yet."""

import asyncio
from dataclasses import dataclass
from datetime import date, datetime

from payintent.domain.ledger import Fact
from payintent.domain.statement import EntrySum, Part
from payintent.storage.database import Executor, Tx
from payintent.storage.statements import PART, UNSTATED

_LOOKS_MAX = 10
_LOOK_EVERY_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Closing:
    """Up to where a merchant's entries are in statements; before the first, nothing is."""

    merchant_id: int
    time_zone: str
    now: datetime
    day: date | None
    closed_at: datetime
    closed_number: int
    next_number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrencySums:
    """What the entries of one currency that are in no statement sum to."""

    currency: str
    chain: str  # of a token, else ''
    sums: list[EntrySum]


async def read_watermark(database: Executor) -> int | None:
    """Return a number up to which every entry is committed or never will be.

    A transaction gets numbers for its entries while it holds a lock on their table until it ends.
    So those that held one after the last number was read are waited for. None: one took too long.
    """
    row = await database.row(
        "SELECT coalesce(pg_sequence_last_value('ledger_entry_entry_number_seq'), 0) AS number"
    )
    assert row is not None  # noqa: S101 - a function gives one row
    begun = await _list_writers(database)
    for _ in range(_LOOKS_MAX):
        if not begun:
            return row["number"]
        await asyncio.sleep(_LOOK_EVERY_S)
        begun &= await _list_writers(database)
    return None


async def _list_writers(database: Executor) -> set[str]:
    """List the transactions that may have written entries and have not ended."""
    rows = await database.fetch(
        """
        SELECT virtualtransaction
        FROM pg_locks
        WHERE locktype = 'relation' AND relation = 'ledger_entry'::regclass AND granted
            AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
            AND mode NOT IN ('AccessShareLock', 'RowShareLock', 'ShareUpdateExclusiveLock')
        """
    )
    return {row["virtualtransaction"] for row in rows}


async def list_due(database: Executor, limit: int) -> list[int]:
    """List merchants with entries in no statement, whose next day is over."""
    rows = await database.fetch(
        """
        SELECT m.id
        FROM merchant m
        LEFT JOIN statement_close c ON c.merchant_id = m.id
        WHERE m.livemode
            AND (c.day IS NULL OR (c.day + 2)::timestamp AT TIME ZONE m.time_zone <= clock())
            AND EXISTS (SELECT FROM ledger_entry e WHERE e.merchant_id = m.id
                AND e.entry_number >= coalesce(c.next_number, 0))
        ORDER BY c.day NULLS FIRST, m.id
        LIMIT $1
        """,
        limit,
    )
    return [row["id"] for row in rows]


async def lock_closing(tx: Tx, merchant_id: int) -> Closing:
    """Lock how far a merchant's days are closed, until the transaction ends."""
    await tx.fetch(
        "INSERT INTO statement_close (merchant_id, day, closed_at, closed_number, next_number)"
        " VALUES ($1, '-infinity', '-infinity', -1, 0) ON CONFLICT DO NOTHING",
        merchant_id,
    )
    await tx.fetch("SELECT FROM statement_close WHERE merchant_id = $1 FOR UPDATE", merchant_id)
    row = await tx.row(
        """
        SELECT m.time_zone, clock() AS now, nullif(c.day, '-infinity') AS day,
            CASE WHEN isfinite(c.closed_at) THEN c.closed_at ELSE 'epoch' END AS closed_at,
            c.closed_number, c.next_number
        FROM statement_close c
        JOIN merchant m ON m.id = c.merchant_id
        WHERE c.merchant_id = $1
        """,
        merchant_id,
    )
    assert row is not None  # noqa: S101 - it was inserted above
    return Closing(merchant_id=merchant_id, **row)


async def first_unstated(tx: Tx, closing: Closing) -> datetime | None:
    """Return the earliest time of an entry that is in no statement; None: there is none."""
    row = await tx.row(
        "SELECT min(e.created_at) AS at, $1::text FROM ledger_entry e WHERE" + UNSTATED,
        *_unstated(closing),
    )
    return row["at"] if row else None


async def sum_unstated(
    tx: Tx, closing: Closing, last_number: int, until_at: datetime
) -> list[CurrencySums]:
    """Sum the entries that are in no statement, up to a number and before a time."""
    rows = await tx.fetch(
        "SELECT currency, coalesce(chain, '') AS chain, fact, part, sum(signed) AS amount"
        " FROM (SELECT e.currency, e.chain, e.fact,"
        + PART
        + "FROM ledger_entry e WHERE"
        + UNSTATED
        + """AND e.entry_number <= $6 AND e.created_at < $7) parts
        WHERE part IS NOT NULL
        GROUP BY currency, chain, fact, part
        ORDER BY currency, chain, fact, part
        """,
        *_unstated(closing),
        last_number,
        until_at,
    )
    found: dict[tuple[str, str], list[EntrySum]] = {}
    for row in rows:
        entry = EntrySum(
            fact=Fact(row["fact"]), part=Part(row["part"]), amount_minor=int(row["amount"])
        )
        found.setdefault((row["currency"], row["chain"]), []).append(entry)
    return [CurrencySums(currency=key[0], chain=key[1], sums=sums) for key, sums in found.items()]


async def close(tx: Tx, closing: Closing, day: date, closed_at: datetime, number: int) -> None:
    """Note that the days of a merchant are closed up to one, with entries up to a number."""
    await tx.fetch(
        """
        UPDATE statement_close
        SET day = $2, closed_at = $3, closed_number = $4, next_number = coalesce((
            SELECT min(e.entry_number) FROM ledger_entry e
            WHERE e.merchant_id = $1 AND e.entry_number BETWEEN $5 AND $4 AND e.created_at >= $3
        ), $4 + 1)
        WHERE merchant_id = $1
        """,
        closing.merchant_id,
        day,
        closed_at,
        number,
        closing.next_number,
    )


def _unstated(closing: Closing) -> tuple[object, ...]:
    return (
        f"merchant_payable:{closing.merchant_id}",
        closing.merchant_id,
        closing.next_number,
        closing.closed_number,
        closing.closed_at,
    )
