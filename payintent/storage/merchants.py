"""Merchants, their API keys and their callback secrets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from payintent.domain.activation import ActivationStatus
from payintent.domain.merchant import Acceptance, Market, Merchant
from payintent.domain.quote import TaxCountry, TaxManager
from payintent.domain.rate_limit import RateLimit, RateLimitClass
from payintent.storage import payment_methods
from payintent.storage.database import Executor, Row, Tx

COLUMNS = """
    m.id, m.name, m.activation, m.countries, m.currencies, m.callback_url, m.tax_manager,
    m.default_country, m.locale, m.logo_url, m.support_url, m.return_url, m.allowed_origins,
    m.tax_country, m.auto_refund, m.allow_http
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """An API key as it is kept: never the key itself."""

    public_id: str
    merchant_id: int
    name: str
    created_at: datetime
    revoked_at: datetime | None


@dataclass(frozen=True, slots=True)
class AuthenticatedMerchant:
    """Who holds a key, and what the key's text must digest to."""

    merchant_id: int
    activation: ActivationStatus
    tax_manager: TaxManager
    digest: bytes
    market: Market
    methods: tuple[Acceptance, ...]
    limits: Mapping[RateLimitClass, RateLimit]  # those that the operator has set
    #: What it can be paid with, and the most decimals that a method holds each currency with.
    payable: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivationRecord:
    """What is filed of a merchant's activation; lists of None are `all`."""

    merchant_id: int
    activation: str
    contract: str
    kyc: str
    requested_countries: list[str] | None
    requested_currencies: list[str] | None
    countries: list[str] | None
    currencies: list[str] | None
    activated_at: datetime | None


@dataclass(frozen=True, slots=True)
class CallbackSecretRecord:
    """A callback secret as it is kept, newest first where there are several."""

    id: UUID
    sealed: bytes


async def add(
    tx: Tx,
    name: str,
    callback_url: str | None,
    activation: ActivationStatus,
    *,
    auto_refund: bool,
    allow_http: bool,
) -> Merchant:
    """Register a merchant."""
    row = await tx.row(
        """
        INSERT INTO merchant AS m
            (name, callback_url, activation, activated_at, auto_refund, allow_http)
        VALUES ($1, $2, $3, CASE $3 WHEN 'ACTIVE' THEN clock() END, $4, $5)
        RETURNING"""
        + COLUMNS,
        name,
        callback_url,
        activation,
        auto_refund,
        allow_http,
    )
    assert row is not None  # noqa: S101 - RETURNING gives the inserted row
    return from_row(row)


async def get(database: Executor, merchant_id: int) -> Merchant | None:
    """Read one merchant."""
    row = await database.row("SELECT" + COLUMNS + "FROM merchant m WHERE id = $1", merchant_id)
    return from_row(row) if row else None


async def list_merchants(database: Executor, limit: int) -> list[Merchant]:
    """List merchants by id."""
    rows = await database.fetch("SELECT" + COLUMNS + "FROM merchant m ORDER BY id LIMIT $1", limit)
    return [from_row(row) for row in rows]


async def set_callback_url(
    tx: Tx, merchant_id: int, callback_url: str | None, *, allow_http: bool
) -> None:
    """Set where a merchant's webhooks go; None keeps events without sending them."""
    await tx.fetch(
        "UPDATE merchant SET callback_url = $2, allow_http = $3 WHERE id = $1",
        merchant_id,
        callback_url,
        allow_http,
    )


async def set_profile(tx: Tx, merchant: Merchant) -> None:
    """Keep what buyers see of a merchant, where it is at home, and what we do for it."""
    await tx.fetch(
        """
        UPDATE merchant
        SET name = $2, logo_url = $3, support_url = $4, return_url = $5, allowed_origins = $6,
            default_country = $7, locale = $8, tax_manager = $9, tax_country = $10,
            auto_refund = $11
        WHERE id = $1
        """,
        merchant.id,
        merchant.name,
        merchant.logo_url,
        merchant.support_url,
        merchant.return_url,
        list(merchant.allowed_origins),
        merchant.default_country,
        merchant.locale,
        merchant.tax_manager,
        merchant.tax_country,
        merchant.auto_refund,
    )


async def lock(tx: Tx, merchant_id: int) -> Merchant | None:
    """Read a merchant that is about to be changed."""
    row = await tx.row(
        "SELECT" + COLUMNS + "FROM merchant m WHERE id = $1 FOR NO KEY UPDATE", merchant_id
    )
    return from_row(row) if row else None


async def get_activation(database: Executor, merchant_id: int) -> ActivationRecord | None:
    """Read what is filed of a merchant's activation."""
    row = await database.row(
        """
        SELECT id AS merchant_id, activation, contract, kyc, requested_countries,
            requested_currencies, countries, currencies, activated_at
        FROM merchant
        WHERE id = $1
        """,
        merchant_id,
    )
    return ActivationRecord(**row) if row else None


async def save_activation(tx: Tx, file: ActivationRecord) -> None:
    """Keep what is filed of a merchant's activation; the first ACTIVE sets `activated_at`."""
    await tx.fetch(
        """
        UPDATE merchant
        SET activation = $2, contract = $3, kyc = $4, requested_countries = $5,
            requested_currencies = $6, countries = $7, currencies = $8,
            activated_at = CASE WHEN $2 = 'ACTIVE' THEN coalesce(activated_at, clock())
                ELSE activated_at END
        WHERE id = $1
        """,
        file.merchant_id,
        file.activation,
        file.contract,
        file.kyc,
        file.requested_countries,
        file.requested_currencies,
        file.countries,
        file.currencies,
    )


async def add_key(tx: Tx, public_id: str, merchant_id: int, name: str, digest: bytes) -> None:
    """Keep the digest of a new API key."""
    await tx.fetch(
        "INSERT INTO api_key (public_id, merchant_id, name, digest) VALUES ($1, $2, $3, $4)",
        public_id,
        merchant_id,
        name,
        digest,
    )


async def find_by_public_id(database: Executor, public_id: str) -> AuthenticatedMerchant | None:
    """Find who holds a key that was not revoked."""
    row = await database.row(
        """
        SELECT k.merchant_id, k.digest, merchant.activation, merchant.tax_manager,
            merchant.countries, merchant.currencies,
            c.per_s AS create_per_s, c.burst AS create_burst,
            r.per_s AS read_per_s, r.burst AS read_burst,"""
        + payment_methods.ACCEPTANCES
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
        market=payment_methods.market_of(row),
        methods=payment_methods.acceptances_of(row),
        limits={
            kind: RateLimit(row[f"{kind}_per_s"], row[f"{kind}_burst"])
            for kind in RateLimitClass
            if row[f"{kind}_per_s"] is not None
        },
    )


async def list_keys(database: Executor, merchant_id: int, limit: int) -> list[ApiKey]:
    """List a merchant's keys, newest first."""
    rows = await database.fetch(
        """
        SELECT public_id, merchant_id, name, created_at, revoked_at
        FROM api_key
        WHERE merchant_id = $1
        ORDER BY created_at DESC, public_id
        LIMIT $2
        """,
        merchant_id,
        limit,
    )
    return [ApiKey(**row) for row in rows]


async def revoke_key(tx: Tx, public_id: str) -> ApiKey | None:
    """Revoke a key for good; revoking twice keeps the first time."""
    row = await tx.row(
        """
        UPDATE api_key
        SET revoked_at = coalesce(revoked_at, clock())
        WHERE public_id = $1
        RETURNING public_id, merchant_id, name, created_at, revoked_at
        """,
        public_id,
    )
    return ApiKey(**row) if row else None


async def add_secret(tx: Tx, secret_id: UUID, merchant_id: int, sealed: bytes) -> None:
    """Keep a new callback secret."""
    await tx.fetch(
        "INSERT INTO callback_secret (id, merchant_id, sealed) VALUES ($1, $2, $3)",
        secret_id,
        merchant_id,
        sealed,
    )


async def retire_secrets(tx: Tx, merchant_id: int, overlap_s: int) -> None:
    """Let the present secrets end after an overlap, so that receivers can change over."""
    await tx.fetch(
        """
        UPDATE callback_secret
        SET expires_at = clock() + $2 * interval '1 second'
        WHERE merchant_id = $1
            AND coalesce(expires_at, 'infinity') > clock() + $2 * interval '1 second'
        """,
        merchant_id,
        overlap_s,
    )


async def list_secrets(
    database: Executor, merchant_id: int, limit: int
) -> Sequence[CallbackSecretRecord]:
    """Read the secrets to sign with, newest first."""
    rows = await database.fetch(
        """
        SELECT id, sealed
        FROM callback_secret
        WHERE merchant_id = $1 AND coalesce(expires_at, 'infinity') > clock()
        ORDER BY created_at DESC, id DESC
        LIMIT $2
        """,
        merchant_id,
        limit,
    )
    return [CallbackSecretRecord(row["id"], row["sealed"]) for row in rows]


def from_row(row: Row) -> Merchant:
    """Read a merchant out of a row with `COLUMNS`."""
    return Merchant(
        id=row["id"],
        name=row["name"],
        activation=ActivationStatus(row["activation"]),
        market=payment_methods.market_of(row),
        callback_url=row["callback_url"],
        tax_manager=TaxManager(row["tax_manager"]),
        default_country=row["default_country"],
        locale=row["locale"],
        logo_url=row["logo_url"],
        support_url=row["support_url"],
        return_url=row["return_url"],
        allowed_origins=tuple(row["allowed_origins"]),
        tax_country=TaxCountry(row["tax_country"]),
        auto_refund=row["auto_refund"],
        allow_http=row["allow_http"],
    )
