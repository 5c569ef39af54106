"""Rate limits and their buckets: GCRA, one statement for many requests."""

from dataclasses import dataclass

from payintent.domain.rate_limit import RateLimit
from payintent.storage.database import Executor, Tx


@dataclass(frozen=True, slots=True)
class RateLimitGrant:
    """How many requests were granted, and the seconds until the bucket is full again."""

    granted: int
    full_in_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimitSetting:
    """A limit that the operator has set."""

    merchant_id: int
    kind: str
    per_s: int
    burst: int


#: Now, by the row that was to be inserted: what is computed of a row must not read the clock.
_NOW = "(excluded.full_at - excluded.granted::numeric / $3)"
#: Never emptier than empty, though the clock was set back or the limit was another.
_BASE = f"least(greatest(s.full_at, {_NOW}), {_NOW} + $4::numeric / $3)"
#: A hair is added: sums of times are never exact, and must not cost a request.
_GRANTABLE = f"greatest(0, least($5, floor($4 - ({_BASE} - {_NOW}) * $3 + 0.0005)::int))"


async def take_tokens(
    database: Executor, merchant_id: int, kind: str, limit: RateLimit, wanted: int
) -> RateLimitGrant:
    """Take up to `wanted` requests out of a merchant's bucket; none where it is empty.

    The bucket is stored as the time at which it will be full: a request moves it `1 / per_s` on,
    and at most `burst` requests fit between now and then (the generic cell rate algorithm, GCRA).
    """
    row = await database.row(
        """
        WITH taken AS (
            INSERT INTO rate_state AS s (merchant_id, class, full_at, granted)
            VALUES (
                $1, $2, extract(epoch FROM clock()) + least($5::int, $4::int)::numeric / $3,
                least($5::int, $4::int)
            )
            ON CONFLICT (merchant_id, class) DO UPDATE
            SET full_at = """
        + _BASE
        + " + ("
        + _GRANTABLE
        + """)::numeric / $3,
                granted = """
        + _GRANTABLE
        + """
            RETURNING granted, full_at
        )
        SELECT granted, (full_at - extract(epoch FROM clock()))::float8 AS full_in_s
        FROM taken
        """,
        merchant_id,
        kind,
        limit.per_s,
        limit.burst,
        wanted,
    )
    assert row is not None  # noqa: S101 - the statement always returns one row
    return RateLimitGrant(row["granted"], row["full_in_s"])


async def set_limit(tx: Tx, limit: RateLimitSetting) -> None:
    """Set a merchant's limit; its bucket starts full."""
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
    await _forget(tx, limit.merchant_id, limit.kind)


async def clear_limit(tx: Tx, merchant_id: int, kind: str) -> bool:
    """Remove a merchant's own limit, so that the default applies; False where there was none."""
    row = await tx.row(
        "DELETE FROM rate_limit WHERE merchant_id = $1 AND class = $2 RETURNING class",
        merchant_id,
        kind,
    )
    await _forget(tx, merchant_id, kind)
    return row is not None


async def list_limits(
    database: Executor, merchant_id: int | None, limit: int
) -> list[RateLimitSetting]:
    """List the limits that the operator has set, of one merchant or of all."""
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


async def _forget(tx: Tx, merchant_id: int, kind: str) -> None:
    await tx.fetch(
        "DELETE FROM rate_state WHERE merchant_id = $1 AND class = $2", merchant_id, kind
    )
