"""Merchants, their API keys and their callback secrets."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from payintent.domain.merchant import Merchant
from payintent.domain.quote import TaxManager
from payintent.storage.database import Executor, Row, Tx

COLUMNS = """
    m.id, m.name, m.callback_url, m.tax_manager, m.default_country, m.logo_url, m.support_url,
    m.return_url, m.allowed_origins
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
class Holder:
    """Who holds a key, and what the key's text must digest to."""

    merchant_id: int
    tax_manager: TaxManager
    digest: bytes
    payable: frozenset[str]  # currencies that the merchant's methods can take


@dataclass(frozen=True, slots=True)
class SealedSecret:
    """A callback secret as it is kept, newest first where there are several."""

    id: UUID
    sealed: bytes


async def add(tx: Tx, name: str, callback_url: str | None) -> Merchant:
    """Register a merchant."""
    row = await tx.row(
        "INSERT INTO merchant AS m (name, callback_url) VALUES ($1, $2) RETURNING" + COLUMNS,
        name,
        callback_url,
    )
    assert row is not None  # noqa: S101 - RETURNING gives the inserted row
    return from_row(row)


async def by_id(database: Executor, merchant_id: int) -> Merchant | None:
    """Read one merchant."""
    row = await database.row("SELECT" + COLUMNS + "FROM merchant m WHERE id = $1", merchant_id)
    return from_row(row) if row else None


async def all_of(database: Executor, limit: int) -> list[Merchant]:
    """List merchants by id."""
    rows = await database.fetch("SELECT" + COLUMNS + "FROM merchant m ORDER BY id LIMIT $1", limit)
    return [from_row(row) for row in rows]


async def set_callback_url(tx: Tx, merchant_id: int, callback_url: str | None) -> None:
    """Set where a merchant's webhooks go; None keeps events without sending them."""
    await tx.fetch("UPDATE merchant SET callback_url = $2 WHERE id = $1", merchant_id, callback_url)


async def set_return_url(tx: Tx, merchant_id: int, return_url: str | None) -> None:
    """Set where a merchant's buyers go back to."""
    await tx.fetch("UPDATE merchant SET return_url = $2 WHERE id = $1", merchant_id, return_url)


async def add_key(tx: Tx, public_id: str, merchant_id: int, name: str, digest: bytes) -> None:
    """Keep the digest of a new API key."""
    await tx.fetch(
        "INSERT INTO api_key (public_id, merchant_id, name, digest) VALUES ($1, $2, $3, $4)",
        public_id,
        merchant_id,
        name,
        digest,
    )


async def holder(database: Executor, public_id: str) -> Holder | None:
    """Find who holds a key that was not revoked."""
    row = await database.row(
        """
        SELECT k.merchant_id, k.digest, m.tax_manager, ARRAY(
            SELECT DISTINCT unnest(p.currencies)
            FROM payment_method p
            JOIN provider_account a ON a.id = p.account_id
            WHERE p.merchant_id = k.merchant_id AND p.enabled AND a.enabled
        ) AS payable
        FROM api_key k
        JOIN merchant m ON m.id = k.merchant_id
        WHERE k.public_id = $1 AND k.revoked_at IS NULL
        """,
        public_id,
    )
    if row is None:
        return None
    return Holder(
        merchant_id=row["merchant_id"],
        tax_manager=TaxManager(row["tax_manager"]),
        digest=row["digest"],
        payable=frozenset(row["payable"]),
    )


async def keys_of(database: Executor, merchant_id: int, limit: int) -> list[ApiKey]:
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


async def secrets_of(database: Executor, merchant_id: int, limit: int) -> Sequence[SealedSecret]:
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
    return [SealedSecret(row["id"], row["sealed"]) for row in rows]


async def fingerprint(database: Executor, ours: str) -> str:
    """Read the fingerprint of the secrets this database is used with; the first one is kept."""
    row = await database.row(
        """
        WITH first AS (
            INSERT INTO installation (secrets_fingerprint)
            VALUES ($1)
            ON CONFLICT (only_one) DO NOTHING
            RETURNING secrets_fingerprint
        )
        SELECT secrets_fingerprint FROM first
        UNION ALL
        SELECT secrets_fingerprint FROM installation
        LIMIT 1
        """,
        ours,
    )
    assert row is not None  # noqa: S101 - one of both has a row
    return row["secrets_fingerprint"]


def from_row(row: Row) -> Merchant:
    """Read a merchant out of a row with `COLUMNS`."""
    return Merchant(
        id=row["id"],
        name=row["name"],
        callback_url=row["callback_url"],
        tax_manager=TaxManager(row["tax_manager"]),
        default_country=row["default_country"],
        logo_url=row["logo_url"],
        support_url=row["support_url"],
        return_url=row["return_url"],
        allowed_origins=tuple(row["allowed_origins"]),
    )
