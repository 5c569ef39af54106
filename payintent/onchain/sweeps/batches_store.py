"""Store the batches of addresses that the sweeper has claimed."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from payintent.accounting import ledger_store
from payintent.accounting.sweep_model import make_sweep_gas_entry
from payintent.db.database import Database, Executor, Tx
from payintent.onchain.sweeps.rules import FAILURES_MAX, SweepBatch, UnsweptAddress

_ADDRESSES_MAX = 20_000
_BATCHES_MAX = 100


class BatchResult(StrEnum):
    MINED = "mined"
    REVERTED = "reverted"
    LOST = "lost"  # no endpoint knows its transaction, or it was never sent


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenBatch:
    """A claimed batch whose transaction is not final."""

    id: UUID
    chain: str
    account_id: int
    sender: bytes
    tx_hash: bytes | None  # None if the signer's response was not stored
    read_s: float  # the time from the claim to the last block whose sweeps were read


#: True if the failed sweep `w` counts. Anyone can make a sweep fail, so only our sweeps count.
_FAILURE = """
    w.session_id = r.session_id AND w.token = r.token AND NOT w.succeeded
        AND ARRAY[w.block, w.log_index] > min(ARRAY[r.block, r.log_index])
        AND w.final_at > coalesce(h.sweep_now_at, '-infinity')
        AND EXISTS (SELECT FROM sweep_batch b WHERE b.tx_hash = w.tx_hash)
"""
#: True if batch `b` was reverted, or swept nothing from several addresses of a paused token.
_HAS_FAILED = """
    (b.result = 'reverted' OR b.result = 'mined' AND (
        SELECT count(*) > 1 AND NOT bool_or(w.succeeded) FROM deposit_sweep w
        WHERE w.chain = b.chain AND w.tx_hash = b.tx_hash))
"""


async def list_unclaimed(database: Executor, chain: str) -> list[UnsweptAddress]:
    """List addresses that have captured deposits and are not claimed by a batch.

    Dust is not listed, because it stays at its addresses and would use up the limit.
    """
    rows = await database.fetch(
        f"""
        SELECT c.account_id, c.address AS factory, r.session_id, a.uuid, r.token,
            sum(r.amount) / (10::numeric ^ coalesce(t.decimals, 0)) AS amount,
            min(r.final_at) AS oldest_at,
            (SELECT count(*) FROM deposit_sweep w WHERE {_FAILURE}) AS failures,
            (SELECT max(w.final_at) FROM deposit_sweep w WHERE {_FAILURE}) AS failed_at,
            coalesce(t.sweep_value, 0) AS value_max
        FROM chain_receipt r
        CROSS JOIN LATERAL (
            SELECT account_id, uuid
            FROM deposit_address
            WHERE session_id = r.session_id
            OFFSET 0  -- without it, a join may read all addresses
        ) a
        JOIN chain_contract c ON c.account_id = a.account_id
        JOIN chain h ON h.slug = r.chain
        LEFT JOIN chain_token t ON t.chain = r.chain AND t.address = r.token
        WHERE r.chain = $1 AND r.disposition = 'deposit' AND r.deposit_sweep_id IS NULL
            AND r.deposit_capture_id IS NOT NULL
            AND NOT EXISTS (SELECT FROM sweep_item i
                WHERE i.session_id = r.session_id AND i.token = r.token AND NOT i.ended)
            AND NOT EXISTS (SELECT FROM sweep_batch b
                WHERE b.account_id = c.account_id AND b.token = r.token AND {_HAS_FAILED}
                    AND b.ended_at > greatest(clock() - interval '1 hour', h.sweep_now_at))
        GROUP BY c.account_id, c.address, r.session_id, a.uuid, r.token, t.decimals,
            t.sweep_minimum, t.sweep_value, h.sweep_now_at
        HAVING sum(r.amount) >= coalesce(t.sweep_minimum * 10::numeric ^ t.decimals, 0)
        ORDER BY oldest_at
        LIMIT $2
        """,
        chain,
        _ADDRESSES_MAX,
    )
    return [UnsweptAddress(**row) for row in rows]


async def claim(
    database: Database, chain: str, sender: bytes, batch: SweepBatch
) -> tuple[UUID, Collection[UUID]] | None:
    """Claim the batch's addresses that have been neither claimed nor swept since they were listed.

    Returns the batch's id and its sessions, or None if no address is left.
    """
    async with database.transaction() as tx:
        batch_id = tx.id_generator.new_id()
        rows = await tx.fetch(
            """
            WITH batch AS (
                INSERT INTO sweep_batch (id, chain, account_id, token, sender)
                VALUES ($1, $2, $3, $4, $5)
            )
            INSERT INTO sweep_item (batch_id, session_id, token)
            SELECT $1, i.session_id, $4
            FROM unnest($6::uuid[]) AS i (session_id)
            WHERE EXISTS (SELECT FROM chain_receipt r
                WHERE r.session_id = i.session_id AND r.token = $4 AND r.disposition = 'deposit'
                    AND r.deposit_sweep_id IS NULL)
            ORDER BY i.session_id
            ON CONFLICT (session_id, token) WHERE NOT ended DO NOTHING
            RETURNING session_id
            """,
            batch_id,
            chain,
            batch.account_id,
            batch.token,
            sender,
            [address.session_id for address in batch.addresses],
        )
        if not rows:
            await tx.fetch("DELETE FROM sweep_batch WHERE id = $1", batch_id)
            return None
    return batch_id, {row["session_id"] for row in rows}


async def set_transaction_hash(database: Executor, batch_id: UUID, tx_hash: bytes) -> None:
    await database.fetch("UPDATE sweep_batch SET tx_hash = $2 WHERE id = $1", batch_id, tx_hash)


async def list_open(database: Executor, chain: str) -> list[OpenBatch]:
    rows = await database.fetch(
        """
        SELECT b.id, b.chain, b.account_id, b.sender, b.tx_hash,
            CASE WHEN k.sweep_block >= k.deposit_block AND k.deposit_at IS NOT NULL
                THEN extract(epoch FROM k.deposit_at - b.created_at)::float ELSE 0 END AS read_s
        FROM sweep_batch b
        JOIN chain_cursor k ON k.chain = b.chain
        WHERE b.chain = $1 AND b.ended_at IS NULL
        ORDER BY b.created_at
        LIMIT $2
        """,
        chain,
        _BATCHES_MAX,
    )
    return [OpenBatch(**row) for row in rows]


async def end(tx: Tx, batch: OpenBatch, result: BatchResult, gas_cost: int, coin: str) -> bool:
    """End a batch, release its addresses and record its gas.

    Returns False if the batch has already ended.
    """
    row = await tx.row(
        """
        WITH ended AS (
            UPDATE sweep_batch
            SET ended_at = clock(), result = $2, gas_cost = nullif($3::text, '0')::numeric
            WHERE id = $1 AND ended_at IS NULL
            RETURNING id
        ), released AS (
            UPDATE sweep_item i
            SET ended = true
            FROM ended
            WHERE i.batch_id = ended.id
        )
        SELECT id FROM ended
        """,
        batch.id,
        result,
        str(gas_cost),
    )
    if row is not None and gas_cost:
        entry = make_sweep_gas_entry(batch.id, batch.account_id, gas_cost, coin, batch.chain)
        await ledger_store.add(tx, [entry])
    return row is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedAddress:
    """An address that our sweeps could not empty."""

    session_id: UUID
    payment_id: UUID
    merchant_id: int
    address: bytes
    currency: str


async def list_failed(
    database: Executor, addresses: Sequence[UnsweptAddress]
) -> list[FailedAddress]:
    """Return the addresses whose sweeps have failed so often that an operator must handle them."""
    failed = [address for address in addresses if address.failures >= FAILURES_MAX]
    if not failed:
        return []
    rows = await database.fetch(
        """
        SELECT a.session_id, s.payment_id, p.merchant_id, a.address,
            coalesce(t.symbol, '0x' || encode(f.token, 'hex')) AS currency
        FROM unnest($1::uuid[], $2::bytea[]) AS f (session_id, token)
        JOIN deposit_address a ON a.session_id = f.session_id
        JOIN session s ON s.id = a.session_id
        JOIN payment p ON p.id = s.payment_id
        LEFT JOIN chain_token t ON t.chain = s.chain AND t.address = f.token
        ORDER BY a.id
        """,
        [address.session_id for address in failed],
        [address.token for address in failed],
    )
    return [FailedAddress(**row) for row in rows]
