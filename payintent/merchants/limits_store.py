"""Rate limits and their buckets, using the generic cell rate algorithm (GCRA)."""

from dataclasses import dataclass

from payintent.core.access import RateLimit
from payintent.db.database import Executor, Tx


@dataclass(frozen=True, slots=True)
class RateLimitGrant:
    """The number of granted requests, and the seconds until the bucket is full again."""

    granted: int
    full_in_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimitSetting:
    merchant_id: int
    kind: str
    per_s: int
    burst: int


#: The current time, derived from the row to insert so that insert and update use the same time.
_NOW = "(excluded.full_at - excluded.granted::numeric / $3)"
#: At most the value of an empty bucket, even if the clock was set back or the limit changed.
_BASE = f"least(greatest(s.full_at, {_NOW}), {_NOW} + $4::numeric / $3)"
#: The 0.0005 compensates for timestamp rounding, which must not cost a request.
_GRANTABLE = f"greatest(0, least($5, floor($4 - ({_BASE} - {_NOW}) * $3 + 0.0005)::int))"


async def take_tokens(
    database: Executor, merchant_id: int, kind: str, limit: RateLimit, requests: int
) -> RateLimitGrant:
    """Take up to `requests` tokens from a merchant's bucket.

    The bucket is stored as the time at which it will be full. Each token that is taken
    delays that time by `1 / per_s`, to at most `burst / per_s` from now.
    """
    row = await database.row(
        f"""
        WITH taken AS (
            INSERT INTO rate_state AS s (merchant_id, class, full_at, granted)
            VALUES (
                $1, $2, extract(epoch FROM clock()) + least($5::int, $4::int)::numeric / $3,
                least($5::int, $4::int)
            )
            ON CONFLICT (merchant_id, class) DO UPDATE
            SET full_at = {_BASE} + ({_GRANTABLE})::numeric / $3, granted = {_GRANTABLE}
            RETURNING granted, full_at
        )
        SELECT granted, (full_at - extract(epoch FROM clock()))::float8 AS full_in_s
        FROM taken
        """,
        merchant_id,
        kind,
        limit.per_s,
        limit.burst,
        requests,
    )
    assert row is not None  # noqa: S101 - the statement always returns a row
    return RateLimitGrant(row["granted"], row["full_in_s"])


async def set_limit(tx: Tx, limit: RateLimitSetting) -> None:
    """Set a merchant's limit and refill its bucket."""
    await tx.fetch(
        """
        INSERT INTO rate_limit (merchant_id, class, per_s, burst)
        VALUES ($1, $2, $3, $4)
        ON CONFLICT (merchant_id, class) DO UPDATE
        SET per_s = excluded.per_s, burst = excluded.burst
        """,
        limit.merchant_id,
        limit.kind,
        limit.per_s,
        limit.burst,
    )
    await _reset_bucket(tx, limit.merchant_id, limit.kind)


async def clear_limit(tx: Tx, merchant_id: int, kind: str) -> bool:
    """Remove a merchant's own limit; return False if there was none."""
    row = await tx.row(
        "DELETE FROM rate_limit WHERE merchant_id = $1 AND class = $2 RETURNING class",
        merchant_id,
        kind,
    )
    await _reset_bucket(tx, merchant_id, kind)
    return row is not None


async def list_limits(
    database: Executor, merchant_id: int | None, limit: int
) -> list[RateLimitSetting]:
    rows = await database.fetch(
        """
        SELECT merchant_id, class AS kind, per_s, burst
        FROM rate_limit
        WHERE merchant_id = $1 OR $1::bigint IS NULL
        ORDER BY merchant_id, class
        LIMIT $2
        """,
        merchant_id,
        limit,
    )
    return [RateLimitSetting(**row) for row in rows]


async def _reset_bucket(tx: Tx, merchant_id: int, kind: str) -> None:
    await tx.fetch(
        "DELETE FROM rate_state WHERE merchant_id = $1 AND class = $2", merchant_id, kind
    )
