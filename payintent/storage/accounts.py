"""Providers, and the accounts at them: the platform's and merchants' own."""

from dataclasses import dataclass, field
from datetime import datetime

from payintent.storage.database import Executor, Tx

_PROVIDERS_MAX = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedAccount:
    """A provider account as it is kept."""

    id: int
    provider: str
    merchant_id: int | None  # None: the platform's
    name: str
    base_url: str
    sealed: bytes = field(repr=False)
    enabled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """A provider, on or off for everybody."""

    name: str
    wire_name: str  # what merchants and buyers read
    enabled: bool
    changed_at: datetime


async def add(tx: Tx, provider: str, merchant_id: int | None, name: str, base_url: str) -> int:
    """Make room for an account; its credentials are sealed to the id that this gives."""
    row = await tx.row(
        """
        WITH known AS (
            INSERT INTO provider (name, wire_name) VALUES ($1, $1) ON CONFLICT DO NOTHING
        )
        INSERT INTO provider_account (provider, merchant_id, name, base_url)
        VALUES ($1, $2, $3, $4)
        RETURNING id
        """,
        provider,
        merchant_id,
        name,
        base_url,
    )
    assert row is not None  # noqa: S101 - RETURNING gives the inserted row
    return row["id"]


async def seal(tx: Tx, account_id: int, sealed: bytes) -> None:
    """Keep an account's credentials."""
    await tx.fetch("UPDATE provider_account SET sealed = $2 WHERE id = $1", account_id, sealed)


async def change(tx: Tx, account: SealedAccount) -> None:
    """Keep an account's name, its address and whether it is on."""
    await tx.fetch(
        """
        UPDATE provider_account
        SET name = $2, base_url = $3, enabled = $4,
            changed_at = CASE WHEN enabled <> $4 THEN clock() ELSE changed_at END
        WHERE id = $1
        """,
        account.id,
        account.name,
        account.base_url,
        account.enabled,
    )


async def by_id(database: Executor, account_id: int) -> SealedAccount | None:
    """Read one account."""
    row = await database.row(
        """
        SELECT id, provider, merchant_id, name, base_url, sealed, enabled
        FROM provider_account
        WHERE id = $1 AND sealed IS NOT NULL
        """,
        account_id,
    )
    return SealedAccount(**row) if row else None


async def lock(tx: Tx, account_id: int) -> SealedAccount | None:
    """Read an account that is about to be changed."""
    row = await tx.row(
        """
        SELECT id, provider, merchant_id, name, base_url, sealed, enabled
        FROM provider_account
        WHERE id = $1 AND sealed IS NOT NULL
        FOR NO KEY UPDATE
        """,
        account_id,
    )
    return SealedAccount(**row) if row else None


async def platform(database: Executor) -> list[SealedAccount]:
    """List the platform's own accounts that are on, which any merchant's methods may use."""
    rows = await database.fetch(
        """
        SELECT id, provider, merchant_id, name, base_url, sealed, enabled
        FROM provider_account
        WHERE merchant_id IS NULL AND sealed IS NOT NULL AND enabled
        ORDER BY id
        LIMIT 100
        """
    )
    return [SealedAccount(**row) for row in rows]


async def listed(database: Executor, limit: int) -> list[SealedAccount]:
    """List every account."""
    rows = await database.fetch(
        """
        SELECT id, provider, merchant_id, name, base_url, sealed, enabled
        FROM provider_account
        WHERE sealed IS NOT NULL
        ORDER BY id
        LIMIT $1
        """,
        limit,
    )
    return [SealedAccount(**row) for row in rows]


async def providers(database: Executor) -> list[Provider]:
    """List the providers that this installation knows."""
    rows = await database.fetch(
        "SELECT name, wire_name, enabled, changed_at FROM provider ORDER BY name LIMIT $1",
        _PROVIDERS_MAX,
    )
    return [Provider(**row) for row in rows]


async def switch_provider(tx: Tx, name: str, *, enabled: bool) -> Provider | None:
    """Turn a provider on or off for everybody; None where nobody knows it."""
    row = await tx.row(
        """
        UPDATE provider
        SET enabled = $2, changed_at = CASE WHEN enabled <> $2 THEN clock() ELSE changed_at END
        WHERE name = $1
        RETURNING name, wire_name, enabled, changed_at
        """,
        name,
        enabled,
    )
    return Provider(**row) if row else None


async def rename_provider(tx: Tx, name: str, wire_name: str) -> Provider | None:
    """Give a provider another name outside; None where nobody knows it."""
    row = await tx.row(
        """
        UPDATE provider
        SET wire_name = $2
        WHERE name = $1
        RETURNING name, wire_name, enabled, changed_at
        """,
        name,
        wire_name,
    )
    return Provider(**row) if row else None
