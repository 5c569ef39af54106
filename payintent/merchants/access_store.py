"""Store API keys (as digests), rate limits and token buckets, and delete old API call records."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import LiteralString

from payintent.core.access import RateLimit, RateLimitClass
from payintent.db.database import Executor, Row, Tx
from payintent.merchants import methods_store as method_store
from payintent.merchants.model import (
    Acceptance,
    ActivationStatus,
    Market,
    TaxManager,
    find_return_origins,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    public_id: str
    merchant_id: int
    name: str
    created_at: datetime
    last_used_at: datetime | None  # accurate to the minute
    revoked_at: datetime | None


@dataclass(frozen=True, slots=True)
class AuthenticatedMerchant:
    """The merchant that owns an API key, and the key's stored digest."""

    merchant_id: int
    activation: ActivationStatus
    tax_manager: TaxManager
    digest: bytes
    market: Market
    methods: tuple[Acceptance, ...]
    limits: Mapping[RateLimitClass, RateLimit]  # limits that replace the defaults
    #: Payable currencies, each with the most decimals that any method supports.
    payable_currencies: Mapping[str, int] = field(default_factory=dict[str, int])
    public_id: str = ""  # public part of the key
    livemode: bool = True
    return_origins: frozenset[str] = frozenset()  # to which a checkout may redirect the buyer


async def add_key(tx: Tx, public_id: str, merchant_id: int, name: str, digest: bytes) -> None:
    await tx.fetch(
        """
        INSERT INTO api_key (public_id, merchant_id, name, digest, livemode)
        VALUES ($1, $2, $3, $4, (SELECT livemode FROM merchant WHERE id = $2))
        """,
        public_id,
        merchant_id,
        name,
        digest,
    )


_MERCHANT: LiteralString = (
    """
    merchant.id AS merchant_id, merchant.activation, merchant.tax_manager, merchant.livemode,
    merchant.allowed_origins, merchant.return_url, merchant.countries, merchant.currencies,
    c.per_s AS create_per_s, c.burst AS create_burst,
    r.per_s AS read_per_s, r.burst AS read_burst,"""
    + method_store.METHODS_JSON
    + " AS methods"
)
_LIMITS: LiteralString = """
    LEFT JOIN rate_limit c ON c.merchant_id = merchant.id AND c.class = 'create'
    LEFT JOIN rate_limit r ON r.merchant_id = merchant.id AND r.class = 'read'
"""


async def find_by_public_id(database: Executor, public_id: str) -> AuthenticatedMerchant | None:
    """Return the merchant that owns a key, or None if the key is unknown or revoked."""
    row = await database.row(
        "SELECT k.digest, "
        + _MERCHANT
        + " FROM api_key k JOIN merchant ON merchant.id = k.merchant_id "
        + _LIMITS
        + "WHERE k.public_id = $1 AND k.revoked_at IS NULL",
        public_id,
    )
    return _to_merchant(row, row["digest"], public_id) if row else None


async def find_by_id(database: Executor, merchant_id: int) -> AuthenticatedMerchant | None:
    """Return a merchant with the same data as `find_by_public_id`, but without a key."""
    row = await database.row(
        "SELECT " + _MERCHANT + " FROM merchant " + _LIMITS + "WHERE merchant.id = $1", merchant_id
    )
    return _to_merchant(row, b"", "") if row else None


def _to_merchant(row: Row, digest: bytes, public_id: str) -> AuthenticatedMerchant:
    return AuthenticatedMerchant(
        merchant_id=row["merchant_id"],
        activation=ActivationStatus(row["activation"]),
        tax_manager=TaxManager(row["tax_manager"]),
        digest=digest,
        market=method_store.to_market(row),
        methods=method_store.decode_methods(row),
        limits={
            kind: RateLimit(row[f"{kind}_per_s"], row[f"{kind}_burst"])
            for kind in RateLimitClass
            if row[f"{kind}_per_s"] is not None
        },
        public_id=public_id,
        livemode=row["livemode"],
        return_origins=find_return_origins(row["allowed_origins"], row["return_url"]),
    )


async def list_keys(database: Executor, merchant_id: int, limit: int) -> list[ApiKey]:
    """List a merchant's keys, newest first."""
    rows = await database.fetch(
        """
        SELECT public_id, merchant_id, name, created_at, last_used_at, revoked_at
        FROM api_key
        WHERE merchant_id = $1
        ORDER BY created_at DESC, public_id
        LIMIT $2
        """,
        merchant_id,
        limit,
    )
    return [ApiKey(**row) for row in rows]


async def merchant_owns_key(database: Executor, merchant_id: int, public_id: str) -> bool:
    """Return whether a key belongs to a merchant, even if the key is revoked."""
    row = await database.row(
        "SELECT FROM api_key WHERE public_id = $2 AND merchant_id = $1", merchant_id, public_id
    )
    return row is not None


async def record_uses(database: Executor, public_ids: Sequence[str]) -> None:
    """Record that keys were just used. The time is accurate to the minute."""
    await database.fetch(
        """
        UPDATE api_key
        SET last_used_at = clock()
        WHERE public_id = ANY($1::text[])
            AND coalesce(last_used_at <= clock() - interval '1 minute', true)
        """,
        public_ids,
    )


async def revoke_key(tx: Tx, public_id: str) -> ApiKey | None:
    """Revoke a key. A repeated call does not change the revocation time."""
    row = await tx.row(
        """
        UPDATE api_key
        SET revoked_at = coalesce(revoked_at, clock())
        WHERE public_id = $1
        RETURNING public_id, merchant_id, name, created_at, last_used_at, revoked_at
        """,
        public_id,
    )
    return ApiKey(**row) if row else None


@dataclass(frozen=True, slots=True)
class RateLimitGrant:
    """The number of tokens taken, and the seconds until the bucket is full again."""

    token_count: int
    full_in_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimitSetting:
    merchant_id: int
    kind: str
    per_s: int
    burst: int


#: The current time, derived from the inserted row so that INSERT and UPDATE use the same time.
_NOW = "(excluded.full_at - excluded.granted::numeric / $3)"
#: Capped at the value of an empty bucket, in case the clock was set back or the limit was changed.
_BASE = f"least(greatest(s.full_at, {_NOW}), {_NOW} + $4::numeric / $3)"
#: The 0.0005 compensates for timestamp rounding, which must not reduce the number of tokens.
_GRANTABLE = f"greatest(0, least($5, floor($4 - ({_BASE} - {_NOW}) * $3 + 0.0005)::int))"


async def take_tokens(
    database: Executor, merchant_id: int, kind: str, limit: RateLimit, tokens_max: int
) -> RateLimitGrant:
    """Take up to `tokens_max` tokens from a merchant's bucket (GCRA).

    The bucket is stored as the time at which it will be full. Each token taken delays that time by
    `1 / per_s`, to at most `burst / per_s` from now.
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
        tokens_max,
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
    """Remove a merchant's own limit. Returns False if it has no limit."""
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


async def delete_old_calls(database: Executor, days: int, limit: int) -> int:
    """Delete up to `limit` calls older than `days` days. Returns how many were deleted."""
    rows = await database.fetch(
        """
        DELETE FROM api_call c
        USING (
            SELECT at, id
            FROM api_call
            WHERE at < clock() - make_interval(days => $1)
            ORDER BY at
            LIMIT $2
        ) AS old
        WHERE c.at = old.at AND c.id = old.id
        RETURNING 1 AS deleted
        """,
        days,
        limit,
    )
    return len(rows)
