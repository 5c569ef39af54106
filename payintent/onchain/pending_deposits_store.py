"""Stores pending transfers to deposit addresses, and the progress of rechecks."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from uuid import UUID

from payintent.chains.store import TEST_CHAIN
from payintent.db.database import Executor, Tx
from payintent.evm.port import TransferLog
from payintent.payments.captures_store import MoneyOrigin

_TRANSFERS_MAX = 100  # shown on a page


@dataclass(frozen=True, slots=True)
class PendingDeposit:
    """A transfer to a session's address in a block that is not final."""

    session_id: UUID
    log: TransferLog


async def replace_pending(
    tx: Tx,
    chain: str,
    blocks: tuple[int, int],
    addresses: Sequence[bytes],
    deposits: Sequence[PendingDeposit],
) -> None:
    """Store pending deposits, and mark as gone the deposits that are no longer in the blocks.

    The cursor must be locked, because another process may have read newer blocks.
    """
    by_position = {(item.log.tx_hash, item.log.log_index): item for item in deposits}
    deposits = list(by_position.values())
    logs = [deposit.log for deposit in deposits]
    await tx.fetch(
        """
        WITH seen AS MATERIALIZED (
            SELECT tx_hash, log_index, session_id, block, token, amount::numeric AS amount
            FROM unnest($2::bytea[], $3::int[], $4::uuid[], $5::bigint[], $8::bytea[], $6::text[])
                AS s (tx_hash, log_index, session_id, block, token, amount)
        ), vanished AS (
            UPDATE chain_sighting g
            SET gone_at = clock()
            FROM deposit_address a
            WHERE g.chain = $1 AND g.gone_at IS NULL
                AND a.session_id = g.session_id AND a.address = ANY($7::bytea[])
                AND g.block BETWEEN $9 AND $10
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
        addresses,
        [log.token for log in logs],
        *blocks,
    )


async def list_unproven(
    database: Executor, chain: str, blocks_max: int
) -> dict[int, Sequence[UUID]]:
    """List a random selection of blocks with unproven deposits, and the deposits' sessions."""
    rows = await database.fetch(
        """
        SELECT g.block, array_agg(DISTINCT g.session_id) AS session_ids
        FROM chain_sighting g
        JOIN chain_cursor k ON k.chain = g.chain
        WHERE g.chain = $1 AND g.gone_at IS NULL AND g.token IS NOT NULL
            AND g.block <= k.deposit_block
        GROUP BY g.block
        ORDER BY random()
        LIMIT $2
        """,
        chain,
        blocks_max,
    )
    return {row["block"]: row["session_ids"] for row in rows}


async def get_origins(database: Executor, session_ids: Collection[UUID]) -> dict[UUID, MoneyOrigin]:
    if not session_ids:
        return {}
    rows = await database.fetch(
        """
        SELECT p.merchant_id, p.id AS payment_id, s.id AS session_id
        FROM session s
        JOIN payment p ON p.id = s.payment_id
        WHERE s.id = ANY($1::uuid[])
        """,
        list(session_ids),
    )
    return {row["session_id"]: MoneyOrigin(**row) for row in rows}


@dataclass(frozen=True, slots=True)
class SessionTransfer:
    """A transfer to a session's address, as the session's page shows it."""

    tx_hash: bytes
    token: bytes
    amount: int
    block: int
    is_final: bool


@dataclass(frozen=True, slots=True)
class ReceivedAmounts:
    """The sums of a session's transfers in its token, in the token's smallest unit."""

    final: int
    pending: int


_TRANSFERS = """
    SELECT tx_hash, token, amount, block, true AS is_final, log_index
    FROM chain_receipt
    WHERE session_id = $1 AND disposition = 'deposit'
    UNION ALL
    SELECT tx_hash, token, amount, block, false, log_index
    FROM chain_sighting
    WHERE session_id = $1 AND gone_at IS NULL AND token IS NOT NULL
"""


async def list_session_transfers(database: Executor, session_id: UUID) -> list[SessionTransfer]:
    """List a session's latest final and pending transfers, in the order of their blocks."""
    rows = await database.fetch(
        f"""
        SELECT tx_hash, token, amount::text AS amount, block, is_final
        FROM ({_TRANSFERS}) t
        ORDER BY block DESC, log_index DESC
        LIMIT $2
        """,
        session_id,
        _TRANSFERS_MAX,
    )
    return [
        SessionTransfer(
            row["tx_hash"], row["token"], int(row["amount"]), row["block"], row["is_final"]
        )
        for row in reversed(rows)
    ]


async def sum_session_transfers(
    database: Executor, session_id: UUID, token: bytes
) -> ReceivedAmounts:
    row = await database.row(
        f"""
        SELECT coalesce(sum(amount) FILTER (WHERE is_final), 0)::text AS final,
            coalesce(sum(amount) FILTER (WHERE NOT is_final), 0)::text AS pending
        FROM ({_TRANSFERS}) t
        WHERE token = $2
        """,
        session_id,
        token,
    )
    assert row is not None  # noqa: S101 - an aggregate returns one row
    return ReceivedAmounts(int(row["final"]), int(row["pending"]))


async def list_test_transfers(database: Executor, session_id: UUID) -> list[SessionTransfer]:
    """List the transfers of a test session, which are final immediately."""
    rows = await database.fetch(
        """
        SELECT r.tx_hash, t.address AS token, r.amount, r.id AS block
        FROM test_transfer r
        JOIN chain_token t ON t.chain = $2 AND t.symbol = r.token
        WHERE r.session_id = $1
        ORDER BY r.id
        LIMIT $3
        """,
        session_id,
        TEST_CHAIN,
        _TRANSFERS_MAX,
    )
    return [
        SessionTransfer(row["tx_hash"], row["token"], row["amount"], row["block"], is_final=True)
        for row in rows
    ]


async def delete_final_pending(tx: Tx, chain: str, logs: Collection[TransferLog]) -> None:
    """Delete pending deposits that are now stored as final."""
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


@dataclass(frozen=True, slots=True)
class DepositRecheck:
    """The blocks that a recheck still has to read for the addresses with ids above `address_id`."""

    first: int
    last: int
    address_id: int


@dataclass(frozen=True, slots=True)
class RecheckSchedule:
    """The recheck intervals, the addresses' age limits, and the number of blocks to read again."""

    every: timedelta
    age: timedelta
    long_every: timedelta
    long_age: timedelta
    blocks: int


async def begin_recheck(
    database: Executor, chain: str, schedule: RecheckSchedule
) -> DepositRecheck | None:
    """Return the unfinished recheck, or begin a recheck. Returns None if no recheck is due."""
    await database.fetch(
        """
        WITH due AS (
            SELECT k.chain, coalesce(k.deposit_block, k.block) AS block,
                k.long_looked_at < clock() - $4::interval AS is_long
            FROM chain_cursor k
            WHERE k.chain = $1 AND k.look_until IS NULL AND k.looked_at < clock() - $2::interval
        )
        UPDATE chain_cursor k
        SET look_block = NULL,
            look_first = greatest(1, $6::bigint * -1
                + CASE WHEN due.is_long THEN coalesce(k.long_look_block, due.block)
                    ELSE due.block END),
            look_until = due.block,
            look_is_long = due.is_long,
            look_id = coalesce((
                SELECT id
                FROM deposit_address
                WHERE created_at < clock()
                    - CASE WHEN due.is_long THEN $5::interval ELSE $3::interval END
                ORDER BY created_at DESC
                LIMIT 1
            ), 0)
        FROM due
        WHERE k.chain = due.chain
        """,
        chain,
        schedule.every,
        schedule.age,
        schedule.long_every,
        schedule.long_age,
        schedule.blocks,
    )
    row = await database.row(
        """
        SELECT coalesce(look_block + 1, look_first) AS first, look_until AS last,
            look_id AS address_id
        FROM chain_cursor
        WHERE chain = $1 AND look_until IS NOT NULL
        """,
        chain,
    )
    return DepositRecheck(**row) if row else None


async def advance_recheck(
    tx: Tx, chain: str, recheck: DepositRecheck, block: int, last_id: int | None
) -> DepositRecheck | None:
    """Record that these addresses have been read up to a block, and return their remaining recheck.

    After the last block, the recheck continues with the addresses after `last_id`, or ends if
    `last_id` is None. Returns None after the last block, and if the chain is halted or
    another process has advanced the recheck.
    """
    row = await tx.row(
        """
        UPDATE chain_cursor k
        SET look_block = CASE WHEN NOT p.is_read THEN $5 END,
            look_id = CASE WHEN p.is_read THEN $6 ELSE look_id END,
            look_until = CASE WHEN NOT p.is_end THEN look_until END,
            looked_at = CASE WHEN p.is_end THEN p.now ELSE looked_at END,
            long_look_block = CASE WHEN p.is_end AND look_is_long THEN look_until
                ELSE long_look_block END,
            long_looked_at = CASE WHEN p.is_end AND look_is_long THEN p.now
                ELSE long_looked_at END
        FROM (
            SELECT clock() AS now, $5::bigint >= $3 AS is_read,
                $5::bigint >= $3 AND $6::bigint IS NULL AS is_end
        ) p
        WHERE k.chain = $1 AND coalesce(look_block + 1, look_first) = $2 AND look_until = $3
            AND look_id = $4 AND halted IS NULL
        RETURNING p.is_read
        """,
        chain,
        recheck.first,
        recheck.last,
        recheck.address_id,
        block,
        last_id,
    )
    return None if row is None or row["is_read"] else replace(recheck, first=block + 1)
