"""Store ledger entries in the same transaction as the facts that they record."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, LiteralString
from uuid import UUID

from payintent.accounting.model import (
    CapturedMoney,
    Fact,
    LedgerEntry,
    make_case_entries,
    make_dispute_entries,
)
from payintent.accounting.sweep_model import SweptMoney, make_sweep_entries
from payintent.db.database import Executor, Row, Tx
from payintent.gateways.port import DisputeState

_BALANCES_MAX = 10_000
TimedEntry = tuple[LedgerEntry, datetime]
#: Case kinds that only report a fact about a capture or refund and do not hold funds.
KINDS_WITHOUT_MONEY: LiteralString = (
    "('DISPUTE', 'FRAUD_WARNING', 'OUTSIDE_REFUND', 'RECONCILIATION', 'REFUND_REVERSED')"
)
#: True if closing case `m` moved its capture's money out of suspense.
IS_RESOLVED: LiteralString = (
    f"m.status IN ('ACCEPTED', 'DISMISSED') AND m.kind NOT IN {KINDS_WITHOUT_MONEY}"
    " AND m.closed_by <> 'policy:session_appeared'"
)
#: How the case that held the money of capture `c` was closed.
RESOLUTION: LiteralString = f"""
    CASE WHEN NOT c.credited THEN (
        SELECT m.status
        FROM money_case m
        WHERE m.capture_id = c.id AND {IS_RESOLVED}
            AND (m.session_id = c.session_id OR m.session_id IS NULL AND c.session_id IS NULL)
        LIMIT 1
    ) END
"""
#: The part of capture `c` that is still in suspense, apart from disputes.
_SUSPENSE = "'suspense:' || c.account_id"
SUSPENDED: LiteralString = f"""
    c.amount_minor - coalesce((
        SELECT sum(CASE e.debit WHEN {_SUSPENSE} THEN e.amount ELSE -e.amount END)
        FROM refund r
        JOIN ledger_entry e ON e.fact_id = r.id
        WHERE r.capture_id = c.id AND {_SUSPENSE} IN (e.debit, e.credit)
    ), 0)
"""
#: Columns for `read_captured_money`; expects `capture` aliased as `c`.
MONEY: LiteralString = f"""
    c.id AS money_capture_id, c.account_id AS money_account_id, c.currency AS money_currency,
    k.chain AS money_chain, c.credited AS money_credited,
    k.forwarder IS NOT NULL AS money_is_deposit,
    coalesce(o.merchant_id, a.merchant_id) AS money_merchant_id, {RESOLUTION} AS money_resolution
"""
MONEY_SOURCES: LiteralString = """
    JOIN provider_account a ON a.id = c.account_id
    LEFT JOIN payment o ON o.id = c.payment_id
    LEFT JOIN chain_contract k ON k.account_id = c.account_id
"""


def read_captured_money(row: Row) -> CapturedMoney:
    """Build a capture's money from a row with the `MONEY` columns."""
    return CapturedMoney(
        capture_id=row["money_capture_id"],
        account_id=row["money_account_id"],
        currency=row["money_currency"],
        chain=row["money_chain"],
        merchant_id=row["money_merchant_id"],
        credited=row["money_credited"],
        is_deposit=row["money_is_deposit"],
        resolution=row["money_resolution"],
    )


def to_columns(entries: Sequence[LedgerEntry]) -> list[list[Any]]:
    """Return the entries column by column, in the order of the INSERT parameters."""
    return [
        [entry.fact_id for entry in entries],
        [entry.fact for entry in entries],
        [entry.leg for entry in entries],
        [entry.merchant_id for entry in entries],
        [entry.debit for entry in entries],
        [entry.credit for entry in entries],
        [str(entry.amount_minor) for entry in entries],
        [entry.chain for entry in entries],
    ]


async def add(tx: Tx, entries: Sequence[LedgerEntry]) -> None:
    """Add entries for facts that this transaction writes. Skip entries for test accounts."""
    if not entries:
        return
    await tx.fetch(
        """
        WITH live AS MATERIALIZED (
            SELECT e.*
            FROM unnest($1::uuid[], $2::text[], $3::text[], $4::bigint[], $5::text[], $6::text[],
                $7::text[], $8::text[], $9::text[], $10::bigint[]) AS e (fact_id, fact, leg,
                merchant_id, debit, credit, amount, chain, currency, account_id)
            LEFT JOIN provider_account a ON a.id = e.account_id
            WHERE coalesce(a.livemode, true)
        )
        INSERT INTO ledger_entry
            (fact_id, fact, leg, merchant_id, debit, credit, amount, chain, currency)
        SELECT fact_id, fact, leg, merchant_id, debit, credit, amount::numeric, chain, currency
        FROM live
        """,
        *to_columns(entries),
        [entry.currency for entry in entries],
        [entry.account_id for entry in entries],
    )


async def add_missing(tx: Tx, entries: Sequence[TimedEntry]) -> None:
    """Add entries for committed facts. Skip existing entries and entries for test accounts."""
    await tx.fetch(
        """
        INSERT INTO ledger_entry
            (fact_id, fact, leg, merchant_id, debit, credit, amount, chain, currency, created_at)
        SELECT e.fact_id, e.fact, e.leg, e.merchant_id, e.debit, e.credit, e.amount::numeric,
            e.chain, e.currency, e.at
        FROM unnest($1::uuid[], $2::text[], $3::text[], $4::bigint[], $5::text[], $6::text[],
            $7::text[], $8::text[], $9::text[], $10::bigint[], $11::timestamptz[]) AS e (fact_id,
            fact, leg, merchant_id, debit, credit, amount, chain, currency, account_id, at)
        LEFT JOIN provider_account a ON a.id = e.account_id
        WHERE coalesce(a.livemode, true)
        ON CONFLICT DO NOTHING
        """,
        *to_columns([entry for entry, _ in entries]),
        [entry.currency for entry, _ in entries],
        [entry.account_id for entry, _ in entries],
        [at for _, at in entries],
    )


async def add_resolution(tx: Tx, case_id: UUID) -> None:
    """Record the entries for closing a case that holds money. The case must be locked."""
    row = await tx.row(
        f"""
        SELECT m.status, {SUSPENDED} AS suspended, {MONEY}
        FROM money_case m
        JOIN capture c ON c.id = m.capture_id
        {MONEY_SOURCES}
        WHERE m.id = $1 AND {IS_RESOLVED}
        """,
        case_id,
    )
    if row is None:
        return
    fact = Fact.CASE_ACCEPTED if row["status"] == "ACCEPTED" else Fact.CASE_DISMISSED
    entries = make_case_entries(fact, read_captured_money(row), case_id, int(row["suspended"]))
    await add(tx, entries)
    await record_disputes(tx, [row["money_capture_id"]])


async def reverse_resolutions(tx: Tx, capture_ids: Sequence[UUID]) -> None:
    """Reverse the entries of closed cases whose payment session was found later.

    The captures must be locked. The caller then dismisses the cases and records the captures as
    if they were new.
    """
    rows = await tx.fetch(
        """
        SELECT e.fact_id, e.fact, e.merchant_id, e.debit, e.credit, e.amount, e.currency, e.chain
        FROM money_case m
        JOIN ledger_entry e ON e.fact_id = m.id
        WHERE m.capture_id = ANY($1::uuid[]) AND m.kind = 'UNKNOWN_REFERENCE'
        ORDER BY e.fact_id
        """,
        capture_ids,
    )
    await add(tx, [_reverse_entry(row) for row in rows])


def _reverse_entry(row: Row) -> LedgerEntry:
    return LedgerEntry(
        fact=Fact(row["fact"]),
        fact_id=row["fact_id"],
        leg="reversed",
        merchant_id=row["merchant_id"],
        debit=row["credit"],
        credit=row["debit"],
        amount_minor=int(row["amount"]),
        currency=row["currency"],
        chain=row["chain"],
    )


async def record_disputes(tx: Tx, capture_ids: Sequence[UUID]) -> None:
    """Record changes in the amounts that disputes hold or have deducted.

    Lock the captures first.
    """
    rows = await tx.fetch(
        f"""
        SELECT d.id, d.state, CASE WHEN d.currency = c.currency THEN d.amount_minor
                ELSE c.amount_minor END AS disputed, e.entries, e.accounts, e.amounts, {MONEY}
        FROM dispute d
        JOIN capture c ON c.id = d.capture_id
        {MONEY_SOURCES}
        LEFT JOIN LATERAL (
            SELECT max(leg::int) AS entries, array_agg(account) AS accounts,
                array_agg(amount) AS amounts
            FROM (
                SELECT leg, debit AS account, amount FROM ledger_entry WHERE fact_id = d.id
                UNION ALL
                SELECT leg, credit, -amount FROM ledger_entry WHERE fact_id = d.id
            ) sides
        ) e ON true
        WHERE d.capture_id = ANY($1::uuid[])
        ORDER BY d.id
        """,
        capture_ids,
    )
    await add(tx, [entry for row in rows for entry in _make_dispute_entries(row)])


def _make_dispute_entries(row: Row) -> list[LedgerEntry]:
    return make_dispute_entries(
        read_captured_money(row),
        row["id"],
        DisputeState(row["state"]),
        int(row["disputed"]),
        _sum_recorded(row),
        row["entries"] or 0,
    )


def _sum_recorded(row: Row) -> dict[str, int]:
    """Sum a fact's entries by account, as debits minus credits."""
    recorded: dict[str, int] = {}
    for account, amount in zip(row["accounts"] or (), row["amounts"] or (), strict=True):
        recorded[account] = recorded.get(account, 0) + int(amount)
    return recorded


async def record_sweeps(tx: Tx, sweep_ids: Collection[UUID]) -> None:
    """Record changes in the deposit amounts that sweeps moved. Lock the chain's cursor first."""
    if not sweep_ids:
        return
    rows = await tx.fetch(
        """
        SELECT w.id, w.account_id, w.currency, w.chain, w.received,
            coalesce(o.merchant_id, a.merchant_id) AS merchant_id, e.entries, e.accounts, e.amounts,
            (SELECT coalesce(sum(r.amount), 0) FROM chain_receipt r
                WHERE r.deposit_sweep_id = w.id) AS deposited
        FROM deposit_sweep w
        JOIN provider_account a ON a.id = w.account_id
        JOIN session s ON s.id = w.session_id
        JOIN payment o ON o.id = s.payment_id
        LEFT JOIN LATERAL (
            SELECT max(leg::int) AS entries, array_agg(account) AS accounts,
                array_agg(amount) AS amounts
            FROM (
                SELECT leg, debit AS account, amount FROM ledger_entry
                WHERE fact_id = w.id AND fact = 'sweep'
                UNION ALL
                SELECT leg, credit, -amount FROM ledger_entry
                WHERE fact_id = w.id AND fact = 'sweep'
            ) sides
        ) e ON true
        WHERE w.id = ANY($1::uuid[])
        ORDER BY w.id
        """,
        list(sweep_ids),
    )
    await add(tx, [entry for row in rows for entry in _sweep_entries(row)])


def _sweep_entries(row: Row) -> list[LedgerEntry]:
    money = SweptMoney(
        sweep_id=row["id"],
        account_id=row["account_id"],
        merchant_id=row["merchant_id"],
        currency=row["currency"],
        chain=row["chain"],
        deposited_minor=int(row["deposited"]),
        received_minor=int(row["received"]),
    )
    return make_sweep_entries(money, _sum_recorded(row), row["entries"] or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountBalance:
    """An account's debits, credits and balance (debits minus credits) in a currency."""

    account: str
    currency: str
    chain: str | None
    debits_minor: str
    credits_minor: str
    balance_minor: str


async def list_balances(
    database: Executor, merchant_id: int | None, currency: str | None
) -> list[AccountBalance]:
    """Sum the entries of each account, optionally for a single merchant or currency."""
    rows = await database.fetch(
        """
        SELECT account, currency, chain, sum(debit)::text AS debits_minor,
            sum(credit)::text AS credits_minor, (sum(debit) - sum(credit))::text AS balance_minor
        FROM (
            SELECT debit AS account, currency, chain, merchant_id, amount AS debit, 0 AS credit
            FROM ledger_entry
            UNION ALL
            SELECT credit, currency, chain, merchant_id, 0, amount
            FROM ledger_entry
        ) sides
        WHERE ($1::bigint IS NULL OR merchant_id = $1) AND ($2::text IS NULL OR currency = $2)
        GROUP BY account, currency, chain
        ORDER BY account, currency, chain
        LIMIT $3
        """,
        merchant_id,
        currency,
        _BALANCES_MAX,
    )
    return [AccountBalance(**row) for row in rows]


async def has_live_account(database: Executor, account_id: int) -> bool:
    return await database.value(
        "SELECT EXISTS (SELECT FROM provider_account WHERE id = $1 AND livemode)", account_id
    )


async def has_live_merchant(database: Executor, merchant_id: int) -> bool:
    return await database.value(
        "SELECT EXISTS (SELECT FROM merchant WHERE id = $1 AND livemode)", merchant_id
    )
