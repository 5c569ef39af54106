"""Compare our records for a gateway's list with the ledger and the merchants' payments."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import LiteralString

from payintent.accounting import ledger_store
from payintent.accounting.model import get_clearing_account
from payintent.core.money import MINOR_DECIMALS
from payintent.db.database import Tx
from payintent.gateways.settlement_reports import ListedPayout
from payintent.reconciliation.compare_store import DECIMALS, ReconciliationScope

_SUMS_MAX = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconciliationSum:
    """Each side's total for a line type and currency, as decimal amounts."""

    type: str
    currency: str
    lines: int  # in the gateway's list
    records: int  # our records that the list contains or should contain
    gateway: str
    service: str
    ledger: str
    merchants: str


async def compare_books(tx: Tx, scope: ReconciliationScope) -> None:
    """Find our records that differ from the ledger or the merchants' payments.

    Call after `compare_lines`. The merchant's side is the amount credited for a paid payment, or
    the amount of a case.
    """
    await tx.fetch("ANALYZE provider_record")
    await tx.fetch(
        """
        CREATE TEMPORARY TABLE provider_books (
            fact_id uuid NOT NULL,
            type text NOT NULL,
            currency text NOT NULL,
            amount numeric NOT NULL,
            ledger numeric NOT NULL,
            merchants numeric NOT NULL
        ) ON COMMIT DROP
        """
    )
    await tx.fetch(_ADD_PAYMENT_BOOKS, *scope.decimal_columns, scope.clearing_accounts)
    await tx.fetch(_ADD_REFUND_BOOKS, *scope.decimal_columns)
    await tx.fetch(_FIND_DIFFERING_PAYMENTS)
    await tx.fetch(_FIND_DIFFERING_REFUNDS)


_ADD_PAYMENT_BOOKS: LiteralString = f"""
    WITH ledger_sums AS (
        SELECT r.fact_id, sum(e.amount) AS amount
        FROM provider_record r
        JOIN ledger_entry e ON e.fact_id = r.fact_id AND e.fact = 'capture'
            AND e.debit = ANY($3::text[])
        WHERE r.type = 'payment'
        GROUP BY r.fact_id
    ), cases AS (
        SELECT DISTINCT m.capture_id
        FROM provider_record r
        JOIN money_case m ON m.capture_id = r.fact_id
        WHERE r.type = 'payment' AND m.kind NOT IN {ledger_store.KINDS_WITHOUT_MONEY}
    )
    INSERT INTO provider_books (fact_id, type, currency, amount, ledger, merchants)
    SELECT r.fact_id, r.type, r.currency, r.amount,
        CASE WHEN c.amount_minor > 0
            THEN coalesce(e.amount, 0) * 10::numeric ^ -{DECIMALS} ELSE r.amount END,
        CASE WHEN c.credited AND p.status IN ('PAID', 'PARTIALLY_REFUNDED', 'REFUNDED')
            THEN s.total_minor * 10::numeric ^ -{DECIMALS}
            WHEN NOT c.credited AND (t.capture_id IS NOT NULL OR c.amount_minor = 0) THEN r.amount
            ELSE 0 END
    FROM provider_record r
    JOIN capture c ON c.id = r.fact_id
    LEFT JOIN unnest($1::text[], $2::int[]) AS u (currency, decimals) ON u.currency = r.currency
    LEFT JOIN payment p ON p.id = c.payment_id
    LEFT JOIN session s ON s.id = c.session_id
    LEFT JOIN ledger_sums e ON e.fact_id = r.fact_id
    LEFT JOIN cases t ON t.capture_id = r.fact_id
    WHERE r.type = 'payment'
"""
_ADD_REFUND_BOOKS: LiteralString = f"""
    INSERT INTO provider_books (fact_id, type, currency, amount, ledger, merchants)
    SELECT r.fact_id, r.type, r.currency, r.amount,
        coalesce(e.amount, 0) * 10::numeric ^ -{DECIMALS},
        CASE WHEN f.payment_id IS NULL OR f.case_id IS NOT NULL
                OR p.status IN ('PARTIALLY_REFUNDED', 'REFUNDED') THEN r.amount ELSE 0 END
    FROM provider_record r
    JOIN refund f ON f.id = r.fact_id
    JOIN capture c ON c.id = f.capture_id
    LEFT JOIN chain_contract k ON k.account_id = c.account_id
    LEFT JOIN unnest($1::text[], $2::int[]) AS u (currency, decimals) ON u.currency = r.currency
    LEFT JOIN payment p ON p.id = f.payment_id
    LEFT JOIN ledger_entry e ON e.fact_id = r.fact_id AND e.fact = 'refund_done' AND e.credit =
        CASE WHEN k.chain IS NULL THEN 'gateway_clearing:' ELSE 'chain_receiver:' END
            || c.account_id
    WHERE r.type = 'refund'
"""
#: The planner assumes that most records differ. OFFSET and LIMIT force it to filter first, and then
#: to look up each differing record.
_FROM_DIFFERING_BOOKS: LiteralString = """
    FROM (
        SELECT b.*, side.kind, side.amount AS side_amount
        FROM provider_books b
        CROSS JOIN LATERAL (VALUES ('ledger', b.ledger), ('merchants', b.merchants))
            AS side (kind, amount)
        WHERE side.amount <> b.amount
        OFFSET 0
    ) b
"""
_FIND_DIFFERING_PAYMENTS: LiteralString = f"""
    INSERT INTO provider_difference (type, kind, reference, their_amount, their_currency,
        our_amount, our_currency, at, merchant_id, payment_id, capture_id)
    SELECT b.type, b.kind, c.reference, b.side_amount, b.currency, b.amount, b.currency,
        c.captured_at, c.merchant_id, c.payment_id, c.id
    {_FROM_DIFFERING_BOOKS}
    JOIN LATERAL (
        SELECT f.*, p.merchant_id
        FROM capture f
        LEFT JOIN payment p ON p.id = f.payment_id
        WHERE f.id = b.fact_id
        LIMIT 1
    ) c ON b.type = 'payment'
    ORDER BY c.captured_at, c.id, b.kind
"""
_FIND_DIFFERING_REFUNDS: LiteralString = f"""
    INSERT INTO provider_difference (type, kind, reference, their_amount, their_currency,
        our_amount, our_currency, at, merchant_id, payment_id, refund_id, our_status)
    SELECT b.type, b.kind, coalesce(r.reference, r.id::text), b.side_amount, b.currency, b.amount,
        b.currency, r.updated_at, r.merchant_id, r.payment_id, r.id, r.status
    {_FROM_DIFFERING_BOOKS}
    JOIN LATERAL (SELECT * FROM refund WHERE id = b.fact_id LIMIT 1) r ON b.type = 'refund'
    ORDER BY r.updated_at, r.id, b.kind
"""


async def sum_sides(tx: Tx) -> list[ReconciliationSum]:
    """Sum each side by type and currency. Call after `compare_books`."""
    rows = await tx.fetch(
        """
        SELECT type, currency, sum(lines)::bigint AS lines, sum(records)::bigint AS records,
            trim_scale(sum(gateway))::text AS gateway, trim_scale(sum(service))::text AS service,
            trim_scale(sum(ledger))::text AS ledger,
            trim_scale(sum(merchants))::text AS merchants
        FROM (
            SELECT type, currency, count(*) AS lines, 0 AS records, sum(amount) AS gateway,
                0 AS service, 0 AS ledger, 0 AS merchants
            FROM provider_line
            GROUP BY type, currency
            UNION ALL
            SELECT type, currency, 0, count(*), 0, sum(amount), sum(ledger), sum(merchants)
            FROM provider_books
            GROUP BY type, currency
        ) sides
        GROUP BY type, currency
        ORDER BY type, currency
        LIMIT $1
        """,
        _SUMS_MAX,
    )
    return [ReconciliationSum(**row) for row in rows]


async def sum_payouts(
    tx: Tx, account_id: int, payouts: Sequence[ListedPayout]
) -> list[ReconciliationSum]:
    """Sum payouts by currency, in the list, in our records and in the ledger."""
    rows = await tx.fetch(
        f"""
        SELECT 'payout' AS type, p.currency, sum(p.lines)::bigint AS lines,
            sum(p.records)::bigint AS records,
            trim_scale(sum(p.gateway * 10::numeric ^ -{DECIMALS}))::text AS gateway,
            trim_scale(sum(p.service * 10::numeric ^ -{DECIMALS}))::text AS service,
            trim_scale(sum(p.ledger * 10::numeric ^ -{DECIMALS}))::text AS ledger,
            trim_scale(sum(p.merchants * 10::numeric ^ -{DECIMALS}))::text AS merchants
        FROM (
            SELECT currency, 1 AS lines, 0 AS records, amount::numeric AS gateway, 0 AS service,
                0 AS ledger, 0 AS merchants
            FROM unnest($2::text[], $3::text[]) AS l (currency, amount)
            UNION ALL
            SELECT g.currency, 0, 1, 0, g.amount_minor, coalesce(e.amount, 0),
                CASE WHEN e.merchant_id IS NULL THEN 0 ELSE e.amount END
            FROM gateway_payout g
            LEFT JOIN LATERAL (
                SELECT merchant_id, CASE WHEN credit = $5 THEN amount ELSE -amount END AS amount
                FROM ledger_entry
                WHERE fact_id = g.id AND fact = 'gateway_payout' AND leg = 'whole'
            ) e ON true
            WHERE g.account_id = $1 AND g.reference = ANY($4::text[]) AND g.reversed_at IS NULL
        ) p
        LEFT JOIN unnest($6::text[], $7::int[]) AS u (currency, decimals)
            ON u.currency = p.currency
        GROUP BY p.currency
        ORDER BY p.currency
        """,
        account_id,
        [payout.currency for payout in payouts],
        [str(payout.amount_minor) for payout in payouts],
        [payout.reference for payout in payouts],
        get_clearing_account(account_id, None),
        list(MINOR_DECIMALS),
        list(MINOR_DECIMALS.values()),
    )
    return [ReconciliationSum(**row) for row in rows]
