"""Store which chains are watched, and the gas budgets of their automatic refunds.

Payment methods are offered only on watched chains.
"""

from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from payintent.db.database import Executor

#: SQL condition for a watched chain; expects `chain_cursor` aliased as `k`. It is false if the row
#: is missing.
IS_WATCHED = "(k.halted IS NULL AND coalesce(k.watched_until > clock(), false))"
#: Value of `watched_until` that ends the watch now, and the FROM clause that the value needs.
END_OF_WATCH = "CASE WHEN k.watched_until > t.now THEN t.now ELSE k.watched_until END"
CURRENT_TIME_SOURCE = " FROM (SELECT clock() AS now) t "


async def mark_watched(database: Executor, slug: str, block: int, watched_s: float) -> None:
    """Record a successful check of a chain up to its last final block.

    The chain is watched for the next `watched_s` seconds. A value of 0 means that
    the endpoints are far behind. The chain is then no longer watched.
    """
    await database.fetch(
        """
        UPDATE chain_cursor
        SET polled_at = clock(),
            watched_since = CASE
                WHEN watched_until > t.now OR $3::float8 = 0 THEN watched_since
                ELSE t.now
            END,
            watched_until = CASE
                WHEN $3::float8 = 0 AND watched_until > t.now THEN t.now
                WHEN $3::float8 = 0 THEN watched_until
                ELSE t.later
            END
        FROM (SELECT clock() AS now, clock() + $3::float8 * interval '1 second' AS later) t
        WHERE chain = $1 AND block >= $2 AND halted IS NULL
        """,
        slug,
        block,
        watched_s,
    )


async def is_unwatched(database: Executor, slug: str) -> bool:
    """Return whether a chain with one of our contracts is neither watched nor halted."""
    row = await database.row(
        f"SELECT FROM chain_cursor k WHERE k.chain = $1 AND k.halted IS NULL AND NOT {IS_WATCHED}",
        slug,
    )
    return row is not None


async def is_watched(database: Executor, slug: str) -> bool:
    """Return whether a chain with one of our contracts is watched and not halted."""
    row = await database.row(
        f"SELECT FROM chain_cursor k WHERE k.chain = $1 AND {IS_WATCHED}", slug
    )
    return row is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainWatch:
    """Whether a chain is watched, and its number of unfinished sessions."""

    chain: str
    watched: bool
    sessions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StrandedPayment:
    """A payment past its deadline on a chain that has not been watched for some time."""

    session_id: UUID
    payment_id: UUID


async def list_watches(database: Executor) -> list[ChainWatch]:
    """List the chains that have one of our contracts."""
    rows = await database.fetch(
        f"""
        SELECT k.chain, {IS_WATCHED} AS watched,
            (SELECT count(*) FROM session s WHERE s.chain = k.chain AND s.life <> 'ended')
                AS sessions
        FROM chain_cursor k
        ORDER BY k.chain
        LIMIT 100
        """
    )
    return [ChainWatch(**row) for row in rows]


async def list_stranded(
    database: Executor, chain: str, unwatched_for: timedelta, limit: int
) -> list[StrandedPayment]:
    """List a chain's overdue payments that have no case.

    Returns nothing unless the chain has been unwatched for `unwatched_for`.
    """
    rows = await database.fetch(
        """
        SELECT s.id AS session_id, p.id AS payment_id
        FROM chain_cursor k
        JOIN session s ON s.chain = k.chain AND s.life <> 'ended'
        JOIN payment p ON p.session_id = s.id
        WHERE k.chain = $1 AND coalesce(k.watched_until, '-infinity') <= clock() - $2::interval
            AND p.status = 'PROCESSING' AND p.expires_at <= clock()
            AND NOT EXISTS (SELECT FROM money_case m
                WHERE m.session_id = s.id AND m.kind = 'RECONCILIATION')
        ORDER BY p.expires_at
        LIMIT $3
        """,
        chain,
        unwatched_for,
        limit,
    )
    return [StrandedPayment(**row) for row in rows]


_TODAY = "(SELECT (clock() AT TIME ZONE 'UTC')::date AS today) t"
_GAS_USED = "CASE WHEN k.auto_refund_day = t.today THEN k.auto_refund_gas_used ELSE 0 END"


async def reserve_gas(database: Executor, chain: str, gas: int) -> bool:
    """Reserve gas from today's budget; return False if too little remains."""
    row = await database.row(
        f"""
        UPDATE chain_cursor k
        SET auto_refund_day = t.today, auto_refund_gas_used = $2 + {_GAS_USED}
        FROM chain h CROSS JOIN {_TODAY}
        WHERE k.chain = $1 AND h.slug = k.chain AND $2 + {_GAS_USED} <= h.auto_refund_gas
        RETURNING k.chain
        """,
        chain,
        gas,
    )
    return row is not None


async def list_remaining_gas(database: Executor) -> dict[str, int | None]:
    """Return today's remaining gas by chain; None for chains without automatic refunds."""
    rows = await database.fetch(
        f"""
        SELECT k.chain,
            CASE WHEN h.auto_refund_gas > 0 THEN greatest(0, h.auto_refund_gas - {_GAS_USED}) END
                AS gas_left
        FROM chain_cursor k
        JOIN chain h ON h.slug = k.chain
        CROSS JOIN {_TODAY}
        ORDER BY k.chain
        LIMIT 100
        """
    )
    return {row["chain"]: row["gas_left"] for row in rows}


async def is_busy(database: Executor, slug: str) -> bool:
    """Return whether a chain has an unfinished session or refund."""
    row = await database.row(
        """
        SELECT
        WHERE EXISTS (SELECT FROM session WHERE chain = $1 AND life <> 'ended')
            OR EXISTS (SELECT FROM refund r
                JOIN capture c ON c.id = r.capture_id
                JOIN chain_contract k ON k.account_id = c.account_id
                WHERE r.step = 'sent' AND r.destination IS NOT NULL AND r.next_at IS NOT NULL
                    AND k.chain = $1)
        """,
        slug,
    )
    return row is not None
