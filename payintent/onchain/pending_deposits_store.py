"""Store transfers to deposit addresses that are not final, and list a session's transfers."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from payintent.db.database import Executor, Tx
from payintent.evm.port import TransferLog

_TRANSFERS_MAX = 100  # shown on a page


@dataclass(frozen=True, slots=True)
class PendingDeposit:
    """A transfer to a session's address in a block that is not final."""

    session_id: UUID
    log: TransferLog


async def replace_pending(
    database: Executor,
    chain: str,
    session_ids: Sequence[UUID],
    deposits: Sequence[PendingDeposit],
) -> None:
    """Store the pending deposits of sessions. Deposits that are no longer seen are gone."""
    logs = [deposit.log for deposit in deposits]
    await database.fetch(
        """
        WITH seen AS MATERIALIZED (
            SELECT tx_hash, log_index, session_id, block, token, amount::numeric AS amount
            FROM unnest($2::bytea[], $3::int[], $4::uuid[], $5::bigint[], $8::bytea[], $6::text[])
                AS s (tx_hash, log_index, session_id, block, token, amount)
        ), vanished AS (
            UPDATE chain_sighting g
            SET gone_at = clock()
            WHERE g.chain = $1 AND g.gone_at IS NULL AND g.session_id = ANY($7::uuid[])
                AND NOT EXISTS (SELECT FROM seen
                    WHERE seen.tx_hash = g.tx_hash AND seen.log_index = g.log_index)
        )
        INSERT INTO chain_sighting (chain, tx_hash, log_index, session_id, exact, block, token,
            amount, seen_at)
        SELECT $1, seen.tx_hash, seen.log_index, seen.session_id, s.token_address = seen.token,
            seen.block, seen.token, seen.amount, clock()
        FROM seen
        JOIN session s ON s.id = seen.session_id
        ON CONFLICT (chain, tx_hash, log_index) DO UPDATE
        SET session_id = excluded.session_id, exact = excluded.exact, block = excluded.block,
            token = excluded.token, amount = excluded.amount, gone_at = NULL
        """,
        chain,
        [log.tx_hash for log in logs],
        [log.log_index for log in logs],
        [deposit.session_id for deposit in deposits],
        [log.block_number for log in logs],
        [str(log.amount) for log in logs],
        session_ids,
        [log.token for log in logs],
    )


@dataclass(frozen=True, slots=True)
class SessionTransfer:
    """A transfer to a session's address, as its page shows it."""

    tx_hash: bytes
    token: bytes
    amount: int
    block: int
    is_final: bool


async def list_session_transfers(database: Executor, session_id: UUID) -> list[SessionTransfer]:
    """List a session's final and pending transfers, in the order of their blocks."""
    rows = await database.fetch(
        """
        SELECT tx_hash, token, amount::text AS amount, block, true AS is_final, log_index
        FROM chain_receipt
        WHERE session_id = $1 AND disposition = 'deposit'
        UNION ALL
        SELECT tx_hash, token, amount::text, block, false, log_index
        FROM chain_sighting
        WHERE session_id = $1 AND gone_at IS NULL AND token IS NOT NULL
        ORDER BY block, log_index
        LIMIT $2
        """,
        session_id,
        _TRANSFERS_MAX,
    )
    return [
        SessionTransfer(
            row["tx_hash"], row["token"], int(row["amount"]), row["block"], row["is_final"]
        )
        for row in rows
    ]


async def delete_final_pending(tx: Tx, chain: str, logs: Sequence[TransferLog]) -> None:
    """Delete pending deposits that are stored as final now."""
    if logs:
        await tx.fetch(
            """
            DELETE FROM chain_sighting g
            USING unnest($2::bytea[], $3::int[]) AS f (tx_hash, log_index)
            WHERE g.chain = $1 AND g.tx_hash = f.tx_hash AND g.log_index = f.log_index
            """,
            chain,
            [log.tx_hash for log in logs],
            [log.log_index for log in logs],
        )
