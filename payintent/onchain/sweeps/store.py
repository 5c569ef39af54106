"""Stores the sweeps of deposit addresses that are read from the chain."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from uuid import UUID

from payintent.accounting import ledger_store
from payintent.db.database import Executor, Tx
from payintent.evm.port import SweepLog, TransferLog


@dataclass(frozen=True, slots=True)
class SweepCursor:
    """The last block whose sweeps were read, and the last block that can be read."""

    block: int
    last: int


@dataclass(frozen=True, slots=True)
class FinalSweep:
    """A sweep in a final block, and the amount that the receiver received."""

    log: SweepLog
    received: int


async def get_sweep_cursor(database: Executor, chain: str) -> SweepCursor | None:
    """Return the cursor, or None if there are no deposit addresses.

    Sweeps are read after deposits, so the deposits that a sweep moves are usually already stored.
    """
    row = await database.row(
        """
        SELECT coalesce(k.sweep_block, (
                SELECT min(a.from_block)
                FROM deposit_address a
                JOIN chain_contract c ON c.account_id = a.account_id
                WHERE c.chain = $1
            )) AS block,
            least(k.block, coalesce(k.deposit_block, k.block)) AS last
        FROM chain_cursor k
        WHERE k.chain = $1 AND k.halted IS NULL
        """,
        chain,
    )
    return None if row is None or row["block"] is None else SweepCursor(**row)


async def advance_sweep_cursor(tx: Tx, chain: str, before: int, block: int) -> bool:
    """Advance the cursor. Returns False if another process has advanced it since it was read."""
    row = await tx.row(
        """
        UPDATE chain_cursor
        SET sweep_block = $3
        WHERE chain = $1 AND coalesce(sweep_block, $2) = $2 AND halted IS NULL
        RETURNING chain
        """,
        chain,
        before,
        block,
    )
    return row is not None


async def list_flushed(
    database: Executor, chain: str, transfers: Sequence[TransferLog]
) -> dict[SweepLog, TransferLog]:
    """Return the transfers from deposit addresses to receivers, keyed by the equivalent sweep log.

    Receivers also receive other transfers, for example payments through a contract.
    """
    if not transfers:
        return {}
    rows = await database.fetch(
        """
        SELECT DISTINCT a.address, c.receiver, c.address AS factory, a.uuid
        FROM deposit_address a
        JOIN chain_contract c ON c.account_id = a.account_id
        WHERE c.chain = $1 AND a.address = ANY($2::bytea[])
        """,
        chain,
        list({log.sender for log in transfers}),
    )
    owners = {(row["address"], row["receiver"]): row for row in rows}
    return {
        SweepLog(
            factory=owner["factory"],
            uuid=owner["uuid"],
            token=log.token,
            deposit_address=log.sender,
            amount=log.amount,
            succeeded=True,
            block_number=log.block_number,
            block_hash=log.block_hash,
            tx_hash=log.tx_hash,
            log_index=log.log_index,
        ): log
        for log in transfers
        if (owner := owners.get((log.sender, log.recipient))) is not None
    }


async def add_sweeps(tx: Tx, chain: str, sweeps: Sequence[FinalSweep]) -> list[bool]:
    """Store new sweeps of our addresses. Returns whether each stored sweep succeeded.

    Anyone can call a factory, for any uuid and with any contract as the token. A sweep is
    stored only if its token is supported or has been deposited at the address.
    """
    if not sweeps:
        return []
    logs = [sweep.log for sweep in sweeps]
    rows = await tx.fetch(
        """
        INSERT INTO deposit_sweep (id, chain, account_id, uuid, session_id, token, currency,
            succeeded, amount, received, block, block_hash, tx_hash, log_index)
        SELECT w.id, $1, a.account_id, w.uuid, a.session_id, w.token,
            CASE WHEN w.token = s.token_address THEN s.currency
                ELSE coalesce(t.symbol, '0x' || encode(w.token, 'hex')) END,
            w.succeeded, w.amount::numeric, w.received::numeric, w.block, w.block_hash, w.tx_hash,
            w.log_index
        FROM unnest($2::uuid[], $3::bytea[], $4::bytea[], $5::bytea[], $6::bytea[], $7::boolean[],
            $8::text[], $9::text[], $10::bigint[], $11::bytea[], $12::bytea[], $13::int[])
            AS w (id, factory, uuid, token, address, succeeded, amount, received, block,
                block_hash, tx_hash, log_index)
        JOIN chain_contract c ON c.chain = $1 AND c.address = w.factory
        JOIN deposit_address a ON a.account_id = c.account_id AND a.address = w.address
            AND a.uuid = w.uuid
        JOIN session s ON s.id = a.session_id
        LEFT JOIN LATERAL (
            SELECT max(symbol) AS symbol FROM chain_token WHERE chain = $1 AND address = w.token
        ) t ON true
        WHERE t.symbol IS NOT NULL OR EXISTS (SELECT FROM chain_receipt r
            WHERE r.session_id = a.session_id AND r.disposition = 'deposit' AND r.token = w.token)
        ON CONFLICT ON CONSTRAINT deposit_sweep_log DO NOTHING
        RETURNING session_id, succeeded
        """,
        chain,
        [tx.id_generator.new_id() for _ in logs],
        [log.factory for log in logs],
        [log.uuid for log in logs],
        [log.token for log in logs],
        [log.deposit_address for log in logs],
        [log.succeeded for log in logs],
        [str(log.amount) for log in logs],
        [str(sweep.received) for sweep in sweeps],
        [log.block_number for log in logs],
        [log.block_hash for log in logs],
        [log.tx_hash for log in logs],
        [log.log_index for log in logs],
    )
    await link_deposits(tx, {row["session_id"] for row in rows})
    return [row["succeeded"] for row in rows]


async def link_deposits(tx: Tx, session_ids: Collection[UUID]) -> None:
    """Link each deposit of the sessions with the first sweep after it, and record the sweeps.

    If a sweep was omitted by an endpoint and is stored late, it takes over the deposits that were
    linked with a later sweep.
    """
    if not session_ids:
        return
    rows = await tx.fetch(
        """
        WITH linked AS MATERIALIZED (
            SELECT r.id, r.deposit_sweep_id AS before, w.id AS after
            FROM chain_receipt r
            CROSS JOIN LATERAL (
                SELECT w.id
                FROM deposit_sweep w
                WHERE w.session_id = r.session_id AND w.token = r.token AND w.succeeded
                    AND (w.block, w.log_index) > (r.block, r.log_index)
                ORDER BY w.block, w.log_index
                LIMIT 1
            ) w
            WHERE r.session_id = ANY($1::uuid[]) AND r.disposition = 'deposit'
                AND r.deposit_sweep_id IS DISTINCT FROM w.id
        ), changed AS (
            UPDATE chain_receipt r
            SET deposit_sweep_id = linked.after
            FROM linked
            WHERE r.id = linked.id
        )
        SELECT before, after FROM linked
        """,
        list(session_ids),
    )
    sweep_ids = {row[name] for row in rows for name in ("before", "after")}
    await ledger_store.record_sweeps(tx, sweep_ids - {None})
