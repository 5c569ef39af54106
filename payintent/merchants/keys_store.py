"""Merchants' API keys; only their digests are stored."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from payintent.core.access import RateLimit, RateLimitClass
from payintent.db.database import Executor, Tx
from payintent.merchants import methods_store as method_store
from payintent.merchants.model import Acceptance, ActivationStatus, Market, TaxManager


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
    """The merchant that owns a key, and the stored digest of the key."""

    merchant_id: int
    activation: ActivationStatus
    tax_manager: TaxManager
    digest: bytes
    market: Market
    methods: tuple[Acceptance, ...]
    limits: Mapping[RateLimitClass, RateLimit]  # overrides set by the operator
    #: Payable currencies, each with the most decimals that any method supports.
    payable: Mapping[str, int] = field(default_factory=dict[str, int])
    public_id: str = ""  # public part of the key
    livemode: bool = True


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


async def find_by_public_id(database: Executor, public_id: str) -> AuthenticatedMerchant | None:
    """Return the merchant of a key, or None if the key is unknown or revoked."""
    row = await database.row(
        """
        SELECT k.merchant_id, k.digest, merchant.activation, merchant.tax_manager,
            merchant.livemode,
            merchant.countries, merchant.currencies,
            c.per_s AS create_per_s, c.burst AS create_burst,
            r.per_s AS read_per_s, r.burst AS read_burst,"""
        + method_store.ACCEPTANCES
        + """ AS methods
        FROM api_key k
        JOIN merchant ON merchant.id = k.merchant_id
        LEFT JOIN rate_limit c ON c.merchant_id = merchant.id AND c.class = 'create'
        LEFT JOIN rate_limit r ON r.merchant_id = merchant.id AND r.class = 'read'
        WHERE k.public_id = $1 AND k.revoked_at IS NULL
        """,
        public_id,
    )
    if row is None:
        return None
    return AuthenticatedMerchant(
        merchant_id=row["merchant_id"],
        activation=ActivationStatus(row["activation"]),
        tax_manager=TaxManager(row["tax_manager"]),
        digest=row["digest"],
        market=method_store.market_of(row),
        methods=method_store.acceptances_of(row),
        limits={
            kind: RateLimit(row[f"{kind}_per_s"], row[f"{kind}_burst"])
            for kind in RateLimitClass
            if row[f"{kind}_per_s"] is not None
        },
        public_id=public_id,
        livemode=row["livemode"],
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


async def is_key_of(database: Executor, merchant_id: int, public_id: str) -> bool:
    """Return whether a key belongs to a merchant. Revoked keys count."""
    row = await database.row(
        "SELECT FROM api_key WHERE public_id = $2 AND merchant_id = $1", merchant_id, public_id
    )
    return row is not None


async def record_uses(database: Executor, public_ids: Sequence[str]) -> None:
    """Record that keys were just used, at most once a minute for each key."""
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
    """Revoke a key. Revoking it again keeps the original revocation time."""
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
