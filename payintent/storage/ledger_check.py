"""Comparison of the ledger with the facts, such as captures and payouts, in a single statement."""

from dataclasses import dataclass
from typing import LiteralString

from payintent.storage import ledger
from payintent.storage.database import Executor

_DIFFERENCES_MAX = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerDifference:
    """An account with a balance (debits less credits) that does not match the facts."""

    account: str
    currency: str
    chain: str | None
    ledger_minor: str
    facts_minor: str


#: Each account's debits less credits as computed from the facts.
_FACTS: LiteralString = (
    """
    money AS (
        SELECT c.*, k.chain,
            CASE WHEN k.chain IS NULL THEN 'gateway_clearing:' ELSE 'chain_receiver:' END
                || c.account_id AS clearing,
            'suspense:' || c.account_id AS suspense,
            'merchant_payable:' || coalesce(o.merchant_id, a.merchant_id) AS payable,
            CASE WHEN c.credited THEN round(s.fee_amount::numeric * c.amount_minor
                / s.total_amount::numeric) END AS fee,
            CASE WHEN c.credited THEN round(s.estimated_tax::numeric * c.amount_minor
                / s.total_amount::numeric) END AS tax
        FROM capture c
        LEFT JOIN session s ON s.id = c.session_id
    """
    + ledger.MONEY_SOURCES
    + """
        WHERE a.livemode
    ), resolved AS (
        SELECT m.status, c.suspense, c.clearing, c.payable, c.currency, c.chain, c.id AS capture_id,
            CASE WHEN m.kind = 'UNKNOWN_REFERENCE' AND c.session_id IS NOT NULL THEN c.amount_minor
                ELSE c.amount_minor - c.refunded_minor - c.reserved_minor END AS amount
        FROM money_case m
        JOIN money c ON c.id = m.capture_id
        WHERE """
    + ledger.RESOLVED
    + """ AND (m.status = 'DISMISSED' OR c.payable IS NOT NULL)
    ), disputed AS (
        SELECT c.clearing, c.account_id, c.currency, c.chain, d.state,
            CASE WHEN c.credited OR EXISTS (SELECT FROM resolved r
                WHERE r.capture_id = c.id AND r.status = 'ACCEPTED')
                THEN c.payable ELSE c.suspense END AS owner,
            CASE WHEN d.currency = c.currency THEN d.amount_minor ELSE c.amount_minor END AS amount
        FROM dispute d
        JOIN money c ON c.id = d.capture_id
        WHERE d.state IN ('open', 'under_review', 'lost')
    ), returned AS (
        SELECT c.clearing, c.account_id, c.currency, c.chain, r.status, r.amount_minor AS amount,
            CASE WHEN c.credited THEN c.payable ELSE c.suspense END AS owner
        FROM refund r
        JOIN money c ON c.id = r.capture_id
        WHERE r.status <> 'FAILED'
    ), facts AS (
        SELECT clearing AS account, currency, chain, amount_minor AS amount FROM money
        UNION ALL
        SELECT suspense, currency, chain, -amount_minor FROM money WHERE NOT credited
        UNION ALL
        SELECT payable, currency, chain, fee + tax - amount_minor FROM money WHERE credited
        UNION ALL
        SELECT 'fee_income', currency, chain, -fee FROM money WHERE credited
        UNION ALL
        SELECT 'tax_payable', currency, chain, -tax FROM money WHERE credited
        UNION ALL
        SELECT owner, currency, chain, amount FROM returned
        UNION ALL
        SELECT CASE status WHEN 'SUCCEEDED' THEN clearing ELSE 'refund_reserve:' || account_id END,
            currency, chain, -amount FROM returned
        UNION ALL
        SELECT owner, currency, chain, amount FROM disputed
        UNION ALL
        SELECT CASE state WHEN 'lost' THEN clearing ELSE 'dispute_reserve:' || account_id END,
            currency, chain, -amount FROM disputed
        UNION ALL
        SELECT suspense, currency, chain, amount FROM resolved
        UNION ALL
        SELECT CASE status WHEN 'DISMISSED' THEN clearing ELSE payable END, currency, chain, -amount
        FROM resolved
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
)


async def find_differences(database: Executor) -> list[LedgerDifference]:
    """Find the accounts with a balance that differs from the facts, ignoring adjustments.

    The statement reads a single snapshot, so transactions in progress cause no differences.
    """
    rows = await database.fetch(
        "WITH"
        + _FACTS
        + """
        SELECT account, currency, chain, sum(entered)::text AS ledger_minor,
            sum(fact)::text AS facts_minor
        FROM (
            SELECT account, currency, chain, 0 AS entered, amount AS fact FROM facts
            UNION ALL
            SELECT debit, currency, chain, amount, 0 FROM ledger_entry
            WHERE fact <> 'adjustment'
            UNION ALL
            SELECT credit, currency, chain, -amount, 0 FROM ledger_entry
            WHERE fact <> 'adjustment'
        ) sides
        GROUP BY account, currency, chain
        HAVING sum(entered) <> sum(fact)
        ORDER BY account, currency, chain
        LIMIT $1
        """,
        _DIFFERENCES_MAX,
    )
    return [LedgerDifference(**row) for row in rows]
