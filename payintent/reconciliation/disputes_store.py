"""Compare the dispute lines of a gateway's list with our disputes.

A dispute has up to two lines: `dispute` for the withdrawn amount, and `dispute_reversal` for the
reinstated amount.
"""

from typing import LiteralString

from payintent.accounting import ledger_store
from payintent.db.database import Tx
from payintent.reconciliation.compare_store import DECIMALS, ReconciliationScope

_AMOUNT: LiteralString = f"d.amount_minor * 10::numeric ^ -{DECIMALS}"
#: Whether the gateway has reported the line's withdrawal or reinstatement to us.
_IS_REPORTED: LiteralString = """
    CASE l.type WHEN 'dispute' THEN d.funds <> 'untouched' ELSE d.funds = 'reinstated' END
"""


async def compare(tx: Tx, scope: ReconciliationScope, *, is_complete: bool) -> None:
    """Find lines that differ from our disputes and, if `is_complete`, disputes without lines."""
    accounts = list(scope.accounts)
    await tx.fetch(_COMPARE_DISPUTES, accounts, *scope.decimal_columns)
    if is_complete:
        await tx.fetch(
            _FIND_MISSING_DISPUTES, accounts, *scope.decimal_columns, scope.since, scope.until
        )


async def compare_books(tx: Tx, scope: ReconciliationScope) -> None:
    """Find disputes that differ from the ledger. The table `provider_books` must exist."""
    await tx.fetch(_ADD_DISPUTE_BOOKS, *scope.decimal_columns)
    await tx.fetch(_FIND_DIFFERING_DISPUTES)


_COMPARE_DISPUTES: LiteralString = f"""
    WITH matches AS (
        SELECT l.number, l.type, l.reference, l.amount, l.currency, l.at, d.id, d.capture_id,
            d.funds, d.currency AS our_currency, {_AMOUNT} AS our_amount,
            coalesce({_IS_REPORTED}, false) AS is_reported
        FROM provider_line l
        LEFT JOIN dispute d ON d.reference = l.reference AND d.account_id = ANY($1::bigint[])
        LEFT JOIN unnest($2::text[], $3::int[]) AS u (currency, decimals)
            ON u.currency = d.currency
        WHERE l.type IN ('dispute', 'dispute_reversal')
    ), ours AS (
        INSERT INTO provider_record (fact_id, type, currency, amount)
        SELECT id, type, our_currency, our_amount FROM matches WHERE is_reported
    )
    INSERT INTO provider_difference (type, kind, reference, their_amount, their_currency,
        our_amount, our_currency, at, merchant_id, payment_id, capture_id, our_status)
    SELECT j.type, CASE WHEN j.is_reported THEN 'different' ELSE 'extra' END, j.reference,
        j.amount, j.currency, j.our_amount, j.our_currency, j.at, p.merchant_id, c.payment_id,
        j.capture_id, j.funds
    FROM matches j
    LEFT JOIN capture c ON c.id = j.capture_id
    LEFT JOIN payment p ON p.id = c.payment_id
    WHERE NOT j.is_reported OR j.our_amount <> j.amount OR j.our_currency <> j.currency
    ORDER BY j.number
"""
#: A dispute is expected in the list for the period in which the gateway reported it to us. The
#: same applies to its reinstatement.
_FIND_MISSING_DISPUTES: LiteralString = f"""
    WITH ours AS (
        SELECT 'dispute' AS type, created_at AS at, *
        FROM dispute
        WHERE funds <> 'untouched' AND created_at BETWEEN $4 AND $5
        UNION ALL
        SELECT 'dispute_reversal', updated_at, *
        FROM dispute
        WHERE funds = 'reinstated' AND updated_at BETWEEN $4 AND $5
    ), missing AS (
        INSERT INTO provider_difference (type, kind, reference, our_amount, our_currency, at,
            merchant_id, payment_id, capture_id)
        SELECT d.type, 'missing', d.reference, {_AMOUNT}, d.currency, d.at, p.merchant_id,
            c.payment_id, d.capture_id
        FROM ours d
        JOIN capture c ON c.id = d.capture_id
        LEFT JOIN payment p ON p.id = c.payment_id
        LEFT JOIN unnest($2::text[], $3::int[]) AS u (currency, decimals) ON u.currency = d.currency
        WHERE d.account_id = ANY($1::bigint[])
            AND NOT EXISTS (SELECT FROM provider_line l
                WHERE l.type = d.type AND l.reference = d.reference)
        ORDER BY d.at, d.id
        RETURNING type, reference
    )
    INSERT INTO provider_record (fact_id, type, currency, amount)
    SELECT d.id, m.type, d.currency, {_AMOUNT}
    FROM missing m
    JOIN dispute d ON d.reference = m.reference AND d.account_id = ANY($1::bigint[])
    LEFT JOIN unnest($2::text[], $3::int[]) AS u (currency, decimals) ON u.currency = d.currency
"""
#: The ledger records a dispute in its capture's currency, so a dispute in a different currency
#: cannot be compared, and neither can a dispute of dismissed money, which has left the ledger. A
#: won dispute is recorded net of its earlier withdrawal. The `merchants` amount is the amount of
#: the dispute's case.
_ADD_DISPUTE_BOOKS: LiteralString = f"""
    INSERT INTO provider_books (fact_id, type, currency, amount, ledger, merchants)
    SELECT r.fact_id, r.type, r.currency, r.amount,
        CASE WHEN d.currency = c.currency AND {ledger_store.RESOLUTION} IS DISTINCT FROM 'DISMISSED'
            THEN coalesce(e.amount, 0) * 10::numeric ^ -{DECIMALS} ELSE r.amount END,
        CASE WHEN m.kind = 'DISPUTE' THEN r.amount ELSE 0 END
    FROM provider_record r
    JOIN dispute d ON d.id = r.fact_id
    JOIN capture c ON c.id = d.capture_id
    JOIN money_case m ON m.id = d.case_id
    LEFT JOIN unnest($1::text[], $2::int[]) AS u (currency, decimals) ON u.currency = r.currency
    LEFT JOIN LATERAL (
        SELECT sum(CASE
            WHEN n.fact = 'dispute_won' AND r.type = 'dispute_reversal' THEN n.amount
            WHEN n.fact = 'dispute_won' AND d.state IN ('open', 'under_review', 'lost')
                THEN -n.amount
            WHEN n.fact IN ('dispute_opened', 'dispute_lost') AND r.type = 'dispute'
                AND split_part(n.debit, ':', 1) <> 'dispute_reserve' THEN n.amount
            ELSE 0 END) AS amount
        FROM ledger_entry n
        WHERE n.fact_id = d.id
    ) e ON true
    WHERE r.type IN ('dispute', 'dispute_reversal')
"""
_FIND_DIFFERING_DISPUTES: LiteralString = """
    INSERT INTO provider_difference (type, kind, reference, their_amount, their_currency,
        our_amount, our_currency, at, merchant_id, payment_id, capture_id)
    SELECT b.type, side.kind, d.reference, side.amount, b.currency, b.amount, b.currency,
        d.updated_at, p.merchant_id, c.payment_id, d.capture_id
    FROM provider_books b
    CROSS JOIN LATERAL (VALUES ('ledger', b.ledger), ('merchants', b.merchants))
        AS side (kind, amount)
    JOIN dispute d ON d.id = b.fact_id
    JOIN capture c ON c.id = d.capture_id
    LEFT JOIN payment p ON p.id = c.payment_id
    WHERE b.type IN ('dispute', 'dispute_reversal') AND side.amount <> b.amount
    ORDER BY d.updated_at, d.id, side.kind
"""
