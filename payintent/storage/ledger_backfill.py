"""Ledger entries for facts that are older than the ledger."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import LiteralString
from uuid import UUID

from payintent.domain.ledger import (
    Charges,
    Fact,
    capture_entries,
    case_entries,
    charges_of,
    refund_entry,
)
from payintent.storage import ledger
from payintent.storage.database import Executor, Row, Tx
from payintent.storage.ledger import TimedEntry


class FactKind(StrEnum):
    """The kinds of fact, in the order in which they are entered."""

    CAPTURES = "captures"
    REFUNDS = "refunds"
    CASES = "cases"
    DISPUTES = "disputes"


_NO_ENTRY: LiteralString = "NOT EXISTS (SELECT FROM ledger_entry e WHERE e.fact_id = "
_ENTERED: LiteralString = "EXISTS (SELECT FROM ledger_entry e WHERE e.fact_id = "
_CAPTURES: LiteralString = (
    "SELECT c.id AS fact_id, c.captured_at AS at, c.amount_minor, s.fee_amount,"
    " s.estimated_tax, s.total_amount, "
    + _ENTERED
    + "c.id AND e.fact = 'capture_adopted') AS adopted,"
    + ledger.MONEY
    + "FROM capture c LEFT JOIN session s ON s.id = c.session_id"
    + ledger.MONEY_SOURCES
    + "WHERE a.livemode AND c.amount_minor > 0 AND "
    + _NO_ENTRY
    + "c.id AND e.fact = 'capture')"
)
_REFUNDS: LiteralString = (
    "SELECT r.id AS fact_id, r.created_at AS at, r.updated_at AS ended_at, r.status,"
    " r.amount_minor, "
    + _ENTERED
    + "r.id AND e.fact = 'refund_reserved') AS reserved, "
    + _ENTERED
    + "r.id AND e.fact IN ('refund_done', 'refund_reversed')) AS ended,"
    + ledger.MONEY
    + "FROM refund r JOIN capture c ON c.id = r.capture_id"
    + ledger.MONEY_SOURCES
    + "WHERE a.livemode AND ("
    + _NO_ENTRY
    + "r.id AND e.fact = 'refund_reserved') OR r.status <> 'PENDING' AND "
    + _NO_ENTRY
    + "r.id AND e.fact IN ('refund_done', 'refund_reversed')))"
)
_CASES: LiteralString = (
    "SELECT m.id AS fact_id, m.closed_at AS at, m.status,"
    " CASE WHEN m.kind = 'UNKNOWN_REFERENCE' AND c.session_id IS NOT NULL THEN c.amount_minor"
    " ELSE c.amount_minor - c.refunded_minor - c.reserved_minor END AS amount_minor,"
    + ledger.MONEY
    + "FROM money_case m JOIN capture c ON c.id = m.capture_id"
    + ledger.MONEY_SOURCES
    + "WHERE a.livemode AND "
    + ledger.RESOLVED
    + " AND c.amount_minor > c.refunded_minor + c.reserved_minor"
    + " AND (m.status = 'DISMISSED' OR coalesce(o.merchant_id, a.merchant_id) IS NOT NULL) AND "
    + _NO_ENTRY
    + "m.id)"
)
_DISPUTES: LiteralString = (
    "SELECT d.id AS fact_id, d.capture_id FROM dispute d JOIN capture c ON c.id = d.capture_id"
    " JOIN provider_account a ON a.id = c.account_id AND a.livemode"
    " WHERE d.state IN ('open', 'under_review', 'lost') AND c.amount_minor > 0"
    " AND (d.amount_minor > 0 OR d.currency <> c.currency) AND " + _NO_ENTRY + "d.id)"
)

_COUNT: LiteralString = (
    "SELECT (SELECT count(*) FROM ("
    + _CAPTURES
    + ") f) + (SELECT count(*) FROM ("
    + _REFUNDS
    + ") f) + (SELECT count(*) FROM ("
    + _CASES
    + ") f) + (SELECT count(*) FROM ("
    + _DISPUTES
    + ") f) AS missing"
)
_NEXT: LiteralString = ") f WHERE fact_id > $1 ORDER BY fact_id LIMIT $2"


async def count_missing(database: Executor) -> int:
    row = await database.row(_COUNT)
    assert row is not None  # noqa: S101 - a count returns a row
    return row["missing"]


async def enter_missing(tx: Tx, kind: FactKind, after: UUID, limit: int) -> list[UUID]:
    """Enter facts of a kind that have no entry, in id order; return their ids.

    Entries that the fact's own transaction adds concurrently are kept.
    """
    if kind is FactKind.CAPTURES:
        rows = await tx.fetch("SELECT * FROM (" + _CAPTURES + _NEXT, after, limit)
    elif kind is FactKind.REFUNDS:
        rows = await tx.fetch("SELECT * FROM (" + _REFUNDS + _NEXT, after, limit)
    elif kind is FactKind.CASES:
        rows = await tx.fetch("SELECT * FROM (" + _CASES + _NEXT, after, limit)
    else:
        rows = await tx.fetch("SELECT * FROM (" + _DISPUTES + _NEXT, after, limit)
        await _enter_disputes(tx, rows)
        return [row["fact_id"] for row in rows]
    await ledger.add_missing(tx, [timed for row in rows for timed in _ENTRIES[kind](row)])
    return [row["fact_id"] for row in rows]


async def _enter_disputes(tx: Tx, rows: Sequence[Row]) -> None:
    """Enter disputes' amounts, under a lock on the captures that concurrent reports wait for."""
    capture_ids = sorted({row["capture_id"] for row in rows})
    await tx.fetch(
        "SELECT FROM capture WHERE id = ANY($1::uuid[]) ORDER BY id FOR NO KEY UPDATE", capture_ids
    )
    await ledger.record_disputes(tx, capture_ids)


def _capture(row: Row) -> list[TimedEntry]:
    money, charges = ledger.money_of(row), Charges(0, 0)
    if row["adopted"]:
        money = replace(money, credited=False)  # as it was when it was captured
    elif money.credited:
        texts = (row["fee_amount"], row["estimated_tax"], row["total_amount"])
        charges = charges_of(*texts, int(row["amount_minor"]))
    entries = capture_entries(money, int(row["amount_minor"]), charges)
    return [(entry, row["at"]) for entry in entries]


def _refund(row: Row) -> list[TimedEntry]:
    money, amount_minor = ledger.money_of(row), int(row["amount_minor"])
    entries = list[TimedEntry]()
    if not row["reserved"]:
        entry = refund_entry(Fact.REFUND_RESERVED, money, row["fact_id"], amount_minor)
        entries.append((entry, row["at"]))
    if row["status"] != "PENDING" and not row["ended"]:
        fact = Fact.REFUND_DONE if row["status"] == "SUCCEEDED" else Fact.REFUND_REVERSED
        entry = refund_entry(fact, money, row["fact_id"], amount_minor)
        entries.append((entry, row["ended_at"]))
    return entries


def _case(row: Row) -> list[TimedEntry]:
    fact = Fact.CASE_ACCEPTED if row["status"] == "ACCEPTED" else Fact.CASE_DISMISSED
    entries = case_entries(fact, ledger.money_of(row), row["fact_id"], int(row["amount_minor"]))
    return [(entry, row["at"]) for entry in entries]


_ENTRIES: dict[FactKind, Callable[[Row], list[TimedEntry]]] = {
    FactKind.CAPTURES: _capture,
    FactKind.REFUNDS: _refund,
    FactKind.CASES: _case,
}
