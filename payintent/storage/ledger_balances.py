"""Balances of ledger accounts."""

from dataclasses import dataclass

from payintent.storage.database import Executor

_BALANCES_MAX = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountBalance:
    """The debits, credits and balance (debits less credits) of an account and currency."""

    account: str
    currency: str
    chain: str | None
    debits_minor: str
    credits_minor: str
    balance_minor: str


async def list_balances(
    database: Executor, merchant_id: int | None, currency: str | None
) -> list[AccountBalance]:
    """Sum the entries of each account, optionally of a single merchant."""
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
    row = await database.row(
        "SELECT id FROM provider_account WHERE id = $1 AND livemode", account_id
    )
    return row is not None


async def has_live_merchant(database: Executor, merchant_id: int) -> bool:
    row = await database.row("SELECT id FROM merchant WHERE id = $1 AND livemode", merchant_id)
    return row is not None
