"""Stores pending transfers (`chain_sighting`) and posted transactions (`chain_hint`)."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from payintent.db.database import Executor, Tx
from payintent.db.lists import build
from payintent.onchain.settlement_rules import PostedTransactionState

POSTED_MAX = 10  # per session
MISMATCHES_MAX = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingTransfer:
    """A session's log in a block that is not final."""

    tx_hash: bytes
    log_index: int
    session_id: UUID
    exact: bool
    block: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PostedHash:
    """A posted transaction hash, and the contract and uuid that its payment must match."""

    session_id: UUID
    tx_hash: bytes
    uuid: bytes
    contract: bytes
    reason: str  # the revert reason, if known


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionTransaction:
    tx_hash: bytes
    step: str
    state: str
    exact: bool
    block: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OverdueTransfer:
    """A session whose exact transfer was not final within the grace period."""

    session_id: UUID
    payment_id: UUID
    late_s: int  # seconds after the deadline
    has_case: bool


async def list_session_transactions(
    database: Executor, session_id: UUID
) -> list[SessionTransaction]:
    """List a session's final, pending and posted transactions."""
    rows = await database.fetch(
        """
        SELECT tx_hash, 'pay' AS step, disposition = 'credited' AS exact, block,
            CASE disposition WHEN 'credited' THEN 'final' ELSE 'mismatch' END AS state
        FROM chain_receipt
        WHERE session_id = $1
        UNION ALL
        SELECT tx_hash, 'pay', exact, block, CASE WHEN exact THEN 'sighted' ELSE 'mismatch' END
        FROM chain_sighting
        WHERE session_id = $1 AND gone_at IS NULL
        UNION ALL
        SELECT tx_hash, step, false, NULL, state
        FROM chain_hint h
        WHERE session_id = $1
            AND NOT EXISTS (SELECT FROM chain_sighting g
                WHERE g.session_id = $1 AND g.tx_hash = h.tx_hash AND g.gone_at IS NULL)
            AND NOT EXISTS (SELECT FROM chain_receipt r
                WHERE r.session_id = $1 AND r.tx_hash = h.tx_hash)
        ORDER BY block, tx_hash
        LIMIT $2
        """,
        session_id,
        MISMATCHES_MAX,
    )
    return [SessionTransaction(**row) for row in rows]


async def save_pending(
    database: Executor, chain: str, transfers: Sequence[PendingTransfer]
) -> None:
    """Store pending transfers. A transfer that has reappeared is no longer marked as gone."""
    if not transfers:
        return
    await database.fetch(
        """
        INSERT INTO chain_sighting (chain, tx_hash, log_index, session_id, exact, block, seen_at)
        SELECT $1, tx_hash, log_index, session_id, exact, block, clock()
        FROM unnest($2::bytea[], $3::int[], $4::uuid[], $5::boolean[], $6::bigint[])
            AS s (tx_hash, log_index, session_id, exact, block)
        ON CONFLICT (chain, tx_hash, log_index) DO UPDATE
        SET session_id = excluded.session_id, exact = excluded.exact, block = excluded.block,
            gone_at = NULL
        """,
        chain,
        [transfer.tx_hash for transfer in transfers],
        [transfer.log_index for transfer in transfers],
        [transfer.session_id for transfer in transfers],
        [transfer.exact for transfer in transfers],
        [transfer.block for transfer in transfers],
    )


async def list_pending_up_to(
    database: Executor, chain: str, block: int, limit: int
) -> list[PendingTransfer]:
    """List pending payments to contracts up to a block, except payments proven to be gone."""
    rows = await database.fetch(
        """
        SELECT tx_hash, log_index, session_id, exact, block
        FROM chain_sighting
        WHERE chain = $1 AND block <= $2 AND gone_at IS NULL AND token IS NULL
        ORDER BY block, tx_hash, log_index
        LIMIT $3
        """,
        chain,
        block,
        limit,
    )
    return [PendingTransfer(**row) for row in rows]


async def delete_finalized(tx: Tx, chain: str, tx_hashes: Sequence[bytes]) -> None:
    await tx.fetch(
        """
        DELETE FROM chain_sighting
        WHERE chain = $1 AND tx_hash = ANY($2::bytea[]) AND token IS NULL
        """,
        chain,
        tx_hashes,
    )


async def mark_gone(database: Executor, chain: str, tx_hashes: Sequence[bytes]) -> None:
    await database.fetch(
        """
        UPDATE chain_sighting
        SET gone_at = clock()
        WHERE chain = $1 AND tx_hash = ANY($2::bytea[]) AND gone_at IS NULL AND token IS NULL
        """,
        chain,
        tx_hashes,
    )


async def list_overdue(
    database: Executor, chain: str, grace_s: int, limit: int
) -> list[OverdueTransfer]:
    """List sessions whose exact transfer is not final after the grace period, oldest first."""
    rows = await database.fetch(
        """
        SELECT s.id AS session_id, p.id AS payment_id,
            extract(epoch FROM clock() - p.expires_at)::bigint AS late_s,
            EXISTS (SELECT FROM money_case m
                WHERE m.session_id = s.id AND m.kind = 'RECONCILIATION') AS has_case
        FROM session s
        JOIN payment p ON p.id = s.payment_id
        WHERE p.session_id = s.id AND p.status = 'PROCESSING'
            AND p.expires_at < clock() - $2 * interval '1 second'
            AND s.id IN (SELECT session_id FROM chain_sighting
                WHERE chain = $1 AND exact AND gone_at IS NULL)
        ORDER BY p.expires_at
        LIMIT $3
        """,
        chain,
        grace_s,
        limit,
    )
    return [OverdueTransfer(**row) for row in rows]


async def add_posted_hash(tx: Tx, session_id: UUID, tx_hash: bytes, step: str) -> bool:
    """Store a posted hash. Returns False if the session already has `POSTED_MAX` other hashes."""
    await tx.fetch("SELECT FROM session WHERE id = $1 FOR NO KEY UPDATE", session_id)
    row = await tx.row(
        """
        WITH others AS MATERIALIZED (
            SELECT count(*) AS number FROM chain_hint WHERE session_id = $1 AND tx_hash <> $2
        )
        INSERT INTO chain_hint (session_id, tx_hash, step)
        SELECT $1, $2, $3
        FROM others
        WHERE number < $4
        ON CONFLICT (session_id, tx_hash) DO UPDATE
        SET step = chain_hint.step
        RETURNING session_id
        """,
        session_id,
        tx_hash,
        step,
        POSTED_MAX,
    )
    return row is not None


async def list_undecided_posted(database: Executor, chain: str, limit: int) -> list[PostedHash]:
    """List undecided posted transactions of open sessions, least recently listed first."""
    rows = await database.fetch(
        """
        WITH next AS (
            SELECT h.session_id, h.tx_hash, s.reference, c.address AS contract
            FROM session s
            JOIN chain_hint h ON h.session_id = s.id
            JOIN chain_contract c ON c.account_id = s.account_id
            WHERE s.chain = $1 AND s.life <> 'ended' AND h.step = 'pay' AND NOT h.final
                AND h.state <> 'foreign'
            ORDER BY h.looked_at NULLS FIRST, h.posted_at
            LIMIT $2
        )
        UPDATE chain_hint h
        SET looked_at = clock()
        FROM next n
        WHERE h.session_id = n.session_id AND h.tx_hash = n.tx_hash
        RETURNING h.session_id, h.tx_hash, h.reason, n.reference, n.contract
        """,
        chain,
        limit,
    )
    return [build(PostedHash, row, uuid=bytes.fromhex(row["reference"][2:])) for row in rows]


async def set_posted_state(
    database: Executor,
    session_id: UUID,
    tx_hash: bytes,
    state: PostedTransactionState,
    reason: str,
    *,
    final: bool,
) -> None:
    await database.fetch(
        """
        UPDATE chain_hint
        SET state = $3, reason = $4, final = $5,
            settled_at = CASE WHEN $5 THEN coalesce(settled_at, t.now) END
        FROM (SELECT clock() AS now) t
        WHERE session_id = $1 AND tx_hash = $2
        """,
        session_id,
        tx_hash,
        state,
        reason,
        final,
    )
