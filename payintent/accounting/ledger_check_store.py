"""Compare the ledger with facts such as captures and payouts, and add missing entries."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import LiteralString
from uuid import UUID

from payintent.accounting import ledger_store
from payintent.accounting.ledger_store import TimedEntry
from payintent.accounting.model import (
    Charges,
    Fact,
    make_capture_entries,
    make_case_entries,
    make_refund_entry,
    parse_charges,
)
from payintent.db.database import Executor, Row, Tx

_DIFFERENCES_MAX = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerDifference:
    """An account whose balance (debits minus credits) does not match the facts."""

    account: str
    currency: str
    chain: str | None
    ledger_minor: str
    facts_minor: str


#: Each account's balance (debits minus credits), computed from the facts.
_FACTS: LiteralString = f"""
    money AS (
        SELECT c.*, k.chain, {ledger_store.RESOLUTION} AS resolution,
            CASE WHEN k.chain IS NULL THEN 'gateway_clearing:' ELSE 'chain_receiver:' END
                || c.account_id AS clearing,
            CASE WHEN k.chain IS NULL THEN 'gateway_clearing:'
                WHEN k.forwarder IS NULL THEN 'chain_receiver:' ELSE 'chain_deposits:' END
                || c.account_id AS captured_in,
            'merchant_payable:' || coalesce(o.merchant_id, a.merchant_id) AS payable,
            CASE WHEN c.credited THEN round(s.fee_amount::numeric * c.amount_minor
                / s.total_amount::numeric) END AS fee,
            CASE WHEN c.credited THEN round(s.estimated_tax::numeric * c.amount_minor
                / s.total_amount::numeric) END AS tax
        FROM capture c
        LEFT JOIN session s ON s.id = c.session_id
        {ledger_store.MONEY_SOURCES}
        WHERE a.livemode
    ), captures AS (
        SELECT *, CASE WHEN payable IS NOT NULL AND (credited OR resolution = 'ACCEPTED')
            THEN payable WHEN resolution = 'DISMISSED' THEN clearing
            ELSE 'suspense:' || account_id END AS owner
        FROM money
    ), disputes AS (
        SELECT c.clearing, c.account_id, c.currency, c.chain, d.state, c.owner,
            CASE WHEN d.currency = c.currency THEN d.amount_minor ELSE c.amount_minor END AS amount
        FROM dispute d
        JOIN captures c ON c.id = d.capture_id
        WHERE d.state IN ('open', 'under_review', 'lost')
    ), refunds AS (
        SELECT c.clearing, c.account_id, c.currency, c.chain, r.status, r.amount_minor AS amount,
            c.owner
        FROM refund r
        JOIN captures c ON c.id = r.capture_id
        WHERE r.status <> 'FAILED'
    ), swept AS (
        SELECT w.account_id, w.currency, w.chain, sum(r.amount) AS deposited,
            least(w.received, sum(r.amount)) AS received
        FROM deposit_sweep w
        JOIN chain_receipt r ON r.deposit_sweep_id = w.id
        JOIN provider_account a ON a.id = w.account_id AND a.livemode
        GROUP BY w.id
    ), sweep_gas AS (
        SELECT b.account_id, h.coin_symbol AS currency, b.chain, b.gas_cost AS amount
        FROM sweep_batch b
        JOIN chain h ON h.slug = b.chain
        JOIN provider_account a ON a.id = b.account_id AND a.livemode
        WHERE b.gas_cost IS NOT NULL
    ), facts AS (
        SELECT captured_in AS account, currency, chain, amount_minor AS amount FROM captures
        UNION ALL
        SELECT 'chain_deposits:' || account_id, currency, chain, -deposited FROM swept
        UNION ALL
        SELECT 'chain_receiver:' || account_id, currency, chain, received FROM swept
        UNION ALL
        SELECT 'chain_gas:' || account_id, currency, chain, deposited - received FROM swept
        UNION ALL
        SELECT 'chain_gas:' || account_id, currency, chain, amount FROM sweep_gas
        UNION ALL
        SELECT 'bank', currency, chain, -amount FROM sweep_gas
        UNION ALL
        SELECT owner, currency, chain, -amount_minor FROM captures WHERE NOT credited
        UNION ALL
        SELECT payable, currency, chain, fee + tax - amount_minor FROM captures WHERE credited
        UNION ALL
        SELECT 'fee_income', currency, chain, -fee FROM captures WHERE credited
        UNION ALL
        SELECT 'tax_payable', currency, chain, -tax FROM captures WHERE credited
        UNION ALL
        SELECT owner, currency, chain, amount FROM refunds
        UNION ALL
        SELECT CASE status WHEN 'SUCCEEDED' THEN clearing ELSE 'refund_reserve:' || account_id END,
            currency, chain, -amount FROM refunds
        UNION ALL
        SELECT owner, currency, chain, amount FROM disputes
        UNION ALL
        SELECT CASE state WHEN 'lost' THEN clearing ELSE 'dispute_reserve:' || account_id END,
            currency, chain, -amount FROM disputes
        UNION ALL
        SELECT 'merchant_payable:' || merchant_id, currency, chain, amount_minor
        FROM payout WHERE reversed_at IS NULL
        UNION ALL
        SELECT 'bank', currency, chain, -amount_minor FROM payout WHERE reversed_at IS NULL
        UNION ALL
        SELECT coalesce('merchant_payable:' || a.merchant_id, 'bank'), g.currency, g.chain,
            g.amount_minor
        FROM gateway_payout g
        JOIN provider_account a ON a.id = g.account_id
        WHERE g.reversed_at IS NULL
        UNION ALL
        SELECT CASE WHEN chain IS NULL THEN 'gateway_clearing:' ELSE 'chain_receiver:' END
            || account_id, currency, chain, -amount_minor - fee_minor
        FROM gateway_payout WHERE reversed_at IS NULL
        UNION ALL
        SELECT coalesce('merchant_payable:' || a.merchant_id, 'fee_income'), g.currency, g.chain,
            g.fee_minor
        FROM gateway_payout g
        JOIN provider_account a ON a.id = g.account_id
        WHERE g.reversed_at IS NULL
    )
"""


async def find_differences(database: Executor) -> list[LedgerDifference]:
    """Find accounts whose balance does not match the facts, ignoring adjustments.

    A single statement reads one snapshot, so transactions in progress do not cause differences.
    """
    rows = await database.fetch(
        f"""
        WITH {_FACTS}
        SELECT account, currency, chain, sum(ledger_amount)::text AS ledger_minor,
            sum(facts_amount)::text AS facts_minor
        FROM (
            SELECT account, currency, chain, 0 AS ledger_amount, amount AS facts_amount FROM facts
            UNION ALL
            SELECT debit, currency, chain, amount, 0 FROM ledger_entry
            WHERE fact <> 'adjustment'
            UNION ALL
            SELECT credit, currency, chain, -amount, 0 FROM ledger_entry
            WHERE fact <> 'adjustment'
        ) sides
        GROUP BY account, currency, chain
        HAVING sum(ledger_amount) <> sum(facts_amount)
        ORDER BY account, currency, chain
        LIMIT $1
        """,
        _DIFFERENCES_MAX,
    )
    return [LedgerDifference(**row) for row in rows]


class FactKind(StrEnum):
    """Kinds of facts, in the order in which their missing entries are added."""

    CAPTURES = "captures"
    REFUNDS = "refunds"
    CASES = "cases"
    DISPUTES = "disputes"


_CAPTURES: LiteralString = f"""
    SELECT c.id AS fact_id, c.captured_at AS at, c.amount_minor, s.fee_amount, s.estimated_tax,
        s.total_amount, EXISTS (SELECT FROM ledger_entry e
            WHERE e.fact_id = c.id AND e.fact = 'capture_adopted') AS is_adopted,
        {ledger_store.MONEY}
    FROM capture c
    LEFT JOIN session s ON s.id = c.session_id
    {ledger_store.MONEY_SOURCES}
    WHERE a.livemode AND c.amount_minor > 0 AND NOT EXISTS (SELECT FROM ledger_entry e
        WHERE e.fact_id = c.id AND e.fact = 'capture')
"""
_REFUNDS: LiteralString = f"""
    SELECT r.id AS fact_id, r.created_at AS at, r.updated_at AS ended_at, r.status, r.amount_minor,
        EXISTS (SELECT FROM ledger_entry e
            WHERE e.fact_id = r.id AND e.fact = 'refund_reserved') AS has_reserve_entry,
        EXISTS (SELECT FROM ledger_entry e
            WHERE e.fact_id = r.id AND e.fact IN ('refund_done', 'refund_reversed'))
            AS has_final_entry,
        {ledger_store.MONEY}
    FROM refund r
    JOIN capture c ON c.id = r.capture_id
    {ledger_store.MONEY_SOURCES}
    WHERE a.livemode AND (NOT EXISTS (SELECT FROM ledger_entry e
            WHERE e.fact_id = r.id AND e.fact = 'refund_reserved')
        OR r.status <> 'PENDING' AND NOT EXISTS (SELECT FROM ledger_entry e
            WHERE e.fact_id = r.id AND e.fact IN ('refund_done', 'refund_reversed')))
"""
_CASES: LiteralString = f"""
    SELECT m.id AS fact_id, m.closed_at AS at, m.status,
        {ledger_store.SUSPENDED} AS amount_minor, {ledger_store.MONEY}
    FROM money_case m
    JOIN capture c ON c.id = m.capture_id
    {ledger_store.MONEY_SOURCES}
    WHERE a.livemode AND {ledger_store.IS_RESOLVED}
        AND {ledger_store.SUSPENDED} > 0
        AND (m.status = 'DISMISSED' OR coalesce(o.merchant_id, a.merchant_id) IS NOT NULL)
        AND NOT EXISTS (SELECT FROM ledger_entry e WHERE e.fact_id = m.id)
"""
_DISPUTES: LiteralString = f"""
    SELECT d.id AS fact_id, d.capture_id
    FROM dispute d
    JOIN capture c ON c.id = d.capture_id
    JOIN provider_account a ON a.id = c.account_id AND a.livemode
    WHERE d.state IN ('open', 'under_review', 'lost') AND c.amount_minor > 0
        AND (d.amount_minor > 0 OR d.currency <> c.currency)
        AND (d.state <> 'lost' OR {ledger_store.RESOLUTION} IS DISTINCT FROM 'DISMISSED')
        AND NOT EXISTS (SELECT FROM ledger_entry e WHERE e.fact_id = d.id)
"""
_COUNT: LiteralString = f"""
    SELECT (SELECT count(*) FROM ({_CAPTURES}) f) + (SELECT count(*) FROM ({_REFUNDS}) f)
        + (SELECT count(*) FROM ({_CASES}) f) + (SELECT count(*) FROM ({_DISPUTES}) f) AS missing
"""
_NEXT: LiteralString = "WHERE fact_id > $1 ORDER BY fact_id LIMIT $2"


async def count_missing_entries(database: Executor) -> int:
    return await database.value(_COUNT)


async def add_missing_entries(tx: Tx, kind: FactKind, after: UUID, limit: int) -> list[UUID]:
    """Add ledger entries for facts without entries, in id order; return the ids of the facts.

    Entries that a fact's own transaction adds concurrently are not changed.
    """
    if kind is FactKind.CAPTURES:
        rows = await tx.fetch(f"SELECT * FROM ({_CAPTURES}) f {_NEXT}", after, limit)
        make_entries = _make_capture_entries
    elif kind is FactKind.REFUNDS:
        rows = await tx.fetch(f"SELECT * FROM ({_REFUNDS}) f {_NEXT}", after, limit)
        make_entries = _make_refund_entries
    elif kind is FactKind.CASES:
        rows = await tx.fetch(f"SELECT * FROM ({_CASES}) f {_NEXT}", after, limit)
        make_entries = _make_case_entries
    else:
        rows = await tx.fetch(f"SELECT * FROM ({_DISPUTES}) f {_NEXT}", after, limit)
        await _add_dispute_entries(tx, rows)
        return [row["fact_id"] for row in rows]
    await ledger_store.add_missing(tx, [entry for row in rows for entry in make_entries(row)])
    return [row["fact_id"] for row in rows]


async def _add_dispute_entries(tx: Tx, rows: Sequence[Row]) -> None:
    """Add the entries for disputes. Captures are locked first, so that concurrent reports wait."""
    capture_ids = sorted({row["capture_id"] for row in rows})
    await tx.fetch(
        "SELECT FROM capture WHERE id = ANY($1::uuid[]) ORDER BY id FOR NO KEY UPDATE", capture_ids
    )
    await ledger_store.record_disputes(tx, capture_ids)


def _make_capture_entries(row: Row) -> list[TimedEntry]:
    money, charges = ledger_store.read_captured_money(row), Charges(0, 0)
    if row["is_adopted"]:
        money = replace(money, credited=False)  # the capture was not credited at first
    elif money.credited:
        charges = parse_charges(
            row["fee_amount"], row["estimated_tax"], row["total_amount"], int(row["amount_minor"])
        )
    entries = make_capture_entries(money, int(row["amount_minor"]), charges)
    return [(entry, row["at"]) for entry in entries]


def _make_refund_entries(row: Row) -> list[TimedEntry]:
    money, amount_minor = ledger_store.read_captured_money(row), int(row["amount_minor"])
    entries = list[TimedEntry]()
    if not row["has_reserve_entry"]:
        entry = make_refund_entry(Fact.REFUND_RESERVED, money, row["fact_id"], amount_minor)
        entries.append((entry, row["at"]))
    if row["status"] != "PENDING" and not row["has_final_entry"]:
        fact = Fact.REFUND_DONE if row["status"] == "SUCCEEDED" else Fact.REFUND_REVERSED
        entry = make_refund_entry(fact, money, row["fact_id"], amount_minor)
        entries.append((entry, row["ended_at"]))
    return entries


def _make_case_entries(row: Row) -> list[TimedEntry]:
    fact = Fact.CASE_ACCEPTED if row["status"] == "ACCEPTED" else Fact.CASE_DISMISSED
    entries = make_case_entries(
        fact, ledger_store.read_captured_money(row), row["fact_id"], int(row["amount_minor"])
    )
    return [(entry, row["at"]) for entry in entries]
