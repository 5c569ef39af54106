"""Store the deposits that have not been swept, and requests to sweep them."""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from payintent.db.database import Executor, Tx

_TOKENS_MAX = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsweptDeposits:
    """Final deposits of a token that are still at their addresses."""

    currency: str
    deposits: int
    amount: Decimal  # in tokens, or in the smallest unit if the token is not supported
    oldest_at: datetime
    age_s: int


async def list_unswept(database: Executor, slug: str) -> list[UnsweptDeposits]:
    rows = await database.fetch(
        """
        SELECT coalesce(t.symbol, '0x' || encode(r.token, 'hex')) AS currency,
            count(*) AS deposits,
            trim_scale(sum(r.amount) / (10::numeric ^ coalesce(t.decimals, 0))) AS amount,
            min(r.final_at) AS oldest_at,
            extract(epoch FROM clock() - min(r.final_at))::int AS age_s
        FROM chain_receipt r
        LEFT JOIN chain_token t ON t.chain = r.chain AND t.address = r.token
        WHERE r.chain = $1 AND r.disposition = 'deposit' AND r.deposit_sweep_id IS NULL
        GROUP BY r.token, t.symbol, t.decimals
        ORDER BY currency
        LIMIT $2
        """,
        slug,
        _TOKENS_MAX,
    )
    return [UnsweptDeposits(**row) for row in rows]


async def request_sweep(tx: Tx, slug: str) -> None:
    """Request an immediate sweep of the final deposits, including failed sweeps."""
    await tx.fetch("UPDATE chain SET sweep_now_at = clock() WHERE slug = $1", slug)
