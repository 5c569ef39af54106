"""Store merchants' daily closings, and read the ledger entries that are not on a statement yet."""

import asyncio
from dataclasses import dataclass
from datetime import date, datetime

from payintent.accounting.model import Fact
from payintent.accounting.statement_model import EntryComponent, EntrySum
from payintent.accounting.statements_store import COMPONENT_COLUMNS, PENDING_CONDITION
from payintent.db.database import Executor, Tx

_POLLS_MAX = 10
_POLL_INTERVAL_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class DailyClosing:
    """A merchant's last closing. The next statement begins at entry `next_entry`."""

    merchant_id: int
    time_zone: str
    now: datetime
    last_day: date | None  # None if no day has been closed
    closed_at: datetime
    last_closed_entry: int
    next_entry: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrencySums:
    """Sums of a currency's entries that are not on a statement yet."""

    currency: str
    chain: str  # a token's chain; empty for fiat currencies
    sums: list[EntrySum]


async def read_watermark(database: Executor) -> int | None:
    """Return an entry number up to which no more entries can be committed.

    Transactions lock the table before they obtain an entry number, and hold the lock until they
    end. This function reads the last number and then waits for all transactions that hold the lock.
    It returns None if a transaction holds the lock for too long.
    """
    number = await database.value(
        "SELECT coalesce(pg_sequence_last_value('ledger_entry_entry_number_seq'), 0)"
    )
    writers = await _list_writers(database)
    for _ in range(_POLLS_MAX):
        if not writers:
            return number
        await asyncio.sleep(_POLL_INTERVAL_S)
        writers &= await _list_writers(database)
    return None


async def _list_writers(database: Executor) -> set[str]:
    """List the open transactions that may have written entries."""
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


async def list_due_merchants(database: Executor, limit: int) -> list[int]:
    """List merchants that have pending entries and whose next day has ended."""
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


async def lock_closing(tx: Tx, merchant_id: int) -> DailyClosing:
    """Lock a merchant's closings until the transaction ends."""
    await tx.fetch(
        "INSERT INTO statement_close (merchant_id, day, closed_at, closed_number, next_number)"
        " VALUES ($1, '-infinity', '-infinity', -1, 0) ON CONFLICT DO NOTHING",
        merchant_id,
    )
    await tx.fetch("SELECT FROM statement_close WHERE merchant_id = $1 FOR UPDATE", merchant_id)
    row = await tx.row(
        """
        SELECT m.time_zone, clock() AS now, nullif(c.day, '-infinity') AS last_day,
            CASE WHEN isfinite(c.closed_at) THEN c.closed_at ELSE 'epoch' END AS closed_at,
            c.closed_number AS last_closed_entry, c.next_number AS next_entry
        FROM statement_close c
        JOIN merchant m ON m.id = c.merchant_id
        WHERE c.merchant_id = $1
        """,
        merchant_id,
    )
    assert row is not None  # noqa: S101 - inserted above
    return DailyClosing(merchant_id=merchant_id, **row)


async def find_first_pending_time(tx: Tx, closing: DailyClosing) -> datetime | None:
    """Return the time of the earliest entry that is not on a statement yet."""
    return await tx.value(
        "SELECT min(e.created_at) AS at, $1::text FROM ledger_entry e WHERE" + PENDING_CONDITION,
        *_list_pending_parameters(closing),
    )


async def sum_pending_entries(
    tx: Tx, closing: DailyClosing, last_entry: int, before: datetime
) -> list[CurrencySums]:
    """Sum the pending entries up to number `last_entry` that were created before `before`."""
    rows = await tx.fetch(
        f"""
        SELECT currency, coalesce(chain, '') AS chain, fact, component, sum(signed_amount) AS amount
        FROM (SELECT e.currency, e.chain, e.fact, {COMPONENT_COLUMNS}
            FROM ledger_entry e
            WHERE {PENDING_CONDITION} AND e.entry_number <= $6 AND e.created_at < $7) components
        WHERE component IS NOT NULL
        GROUP BY currency, chain, fact, component
        ORDER BY currency, chain, fact, component
        """,
        *_list_pending_parameters(closing),
        last_entry,
        before,
    )
    by_currency: dict[tuple[str, str], list[EntrySum]] = {}
    for row in rows:
        entry = EntrySum(
            fact=Fact(row["fact"]),
            component=EntryComponent(row["component"]),
            amount_minor=int(row["amount"]),
        )
        by_currency.setdefault((row["currency"], row["chain"]), []).append(entry)
    return [
        CurrencySums(currency=currency, chain=chain, sums=sums)
        for (currency, chain), sums in by_currency.items()
    ]


async def close_days(
    tx: Tx, closing: DailyClosing, day: date, closed_at: datetime, last_entry: int
) -> None:
    """Mark a merchant's days as closed up to `day`, and its entries up to `last_entry`."""
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
        last_entry,
        closing.next_entry,
    )


def _list_pending_parameters(closing: DailyClosing) -> tuple[object, ...]:
    return (
        f"merchant_payable:{closing.merchant_id}",
        closing.merchant_id,
        closing.next_entry,
        closing.last_closed_entry,
        closing.closed_at,
    )
