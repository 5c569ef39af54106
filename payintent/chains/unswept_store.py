"""Read unswept deposits and recent sweep batches of a chain, and store sweep requests."""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from uuid import UUID

from payintent.db.database import Executor, Tx

_TOKENS_MAX = 200
_BATCHES_MAX = 10  # per chain


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


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepBatchRecord:
    """A transaction that the sweeper sent."""

    id: UUID
    currency: str
    addresses: int
    created_at: datetime
    tx_hash: str | None  # None until the signer's response is stored
    result: str | None  # None until the transaction is final or lost
    ended_at: datetime | None
    gas_cost: Decimal | None  # in the chain's coin


async def list_batches(database: Executor, slug: str) -> list[SweepBatchRecord]:
    """List the chain's newest batches."""
    rows = await database.fetch(
        """
        SELECT b.id, coalesce(t.symbol, '0x' || encode(b.token, 'hex')) AS currency,
            (SELECT count(*) FROM sweep_item i WHERE i.batch_id = b.id) AS addresses, b.created_at,
            '0x' || encode(b.tx_hash, 'hex') AS tx_hash, b.result, b.ended_at,
            trim_scale(b.gas_cost / 10::numeric ^ 18) AS gas_cost
        FROM sweep_batch b
        LEFT JOIN chain_token t ON t.chain = b.chain AND t.address = b.token
        WHERE b.chain = $1
        ORDER BY b.id DESC
        LIMIT $2
        """,
        slug,
        _BATCHES_MAX,
    )
    return [SweepBatchRecord(**row) for row in rows]


async def request_sweep(tx: Tx, slug: str) -> None:
    """Request an immediate sweep of the final deposits, even if earlier sweeps failed."""
    await tx.fetch("UPDATE chain SET sweep_now_at = clock() WHERE slug = $1", slug)
