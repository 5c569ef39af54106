"""Providers and gateway accounts (tables `provider`, `provider_account`)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from payintent.db.database import Executor, Row, Tx

_PROVIDERS_MAX = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountRecord:
    id: int
    provider: str
    merchant_id: int | None  # None: owned by the platform
    name: str
    base_url: str
    countries: tuple[str, ...] | None  # None: all countries that its adapter supports
    sealed: bytes = field(repr=False)
    enabled: bool
    livemode: bool  # False: test credentials, only for test merchants


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    name: str
    wire_name: str  # the name shown to merchants and buyers
    enabled: bool  # for all merchants
    changed_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class NewAccount:
    provider: str
    merchant_id: int | None
    name: str
    base_url: str
    countries: Sequence[str] | None = None
    livemode: bool = True


_SELECT_ACCOUNT = """
    SELECT id, provider, merchant_id, name, base_url, countries, sealed, enabled, livemode
    FROM provider_account
"""


async def add(tx: Tx, account: NewAccount) -> int:
    """Add an account without credentials. Encrypting them requires the returned id."""
    return await tx.value(
        """
        WITH new_provider AS (
            INSERT INTO provider (name, wire_name) VALUES ($1, $1) ON CONFLICT DO NOTHING
        )
        INSERT INTO provider_account (provider, merchant_id, name, base_url, countries, livemode)
        VALUES ($1, $2, $3, $4, $5, $6)
        RETURNING id
        """,
        account.provider,
        account.merchant_id,
        account.name,
        account.base_url,
        None if account.countries is None else list(account.countries),
        account.livemode,
    )


async def set_credentials(tx: Tx, account_id: int, sealed: bytes) -> None:
    await tx.fetch("UPDATE provider_account SET sealed = $2 WHERE id = $1", account_id, sealed)


async def update(tx: Tx, account: AccountRecord) -> None:
    await tx.fetch(
        """
        UPDATE provider_account
        SET name = $2, base_url = $3, countries = $4, enabled = $5,
            changed_at = CASE WHEN enabled <> $5 THEN clock() ELSE changed_at END
        WHERE id = $1
        """,
        account.id,
        account.name,
        account.base_url,
        None if account.countries is None else list(account.countries),
        account.enabled,
    )


async def get(database: Executor, account_id: int) -> AccountRecord | None:
    """Return an account, or None if it does not exist or has no credentials yet."""
    row = await database.row(_SELECT_ACCOUNT + "WHERE id = $1 AND sealed IS NOT NULL", account_id)
    return _to_record(row) if row else None


async def lock(tx: Tx, account_id: int) -> AccountRecord | None:
    row = await tx.row(
        _SELECT_ACCOUNT + "WHERE id = $1 AND sealed IS NOT NULL FOR NO KEY UPDATE", account_id
    )
    return _to_record(row) if row else None


async def merchant_owns_account(database: Executor, merchant_id: int, provider: str) -> bool:
    row = await database.row(
        "SELECT FROM provider_account WHERE merchant_id = $1 AND provider = $2 LIMIT 1",
        merchant_id,
        provider,
    )
    return row is not None


async def is_live_merchant(database: Executor, merchant_id: int) -> bool | None:
    """Return whether a merchant is live, or None if it does not exist."""
    return await database.value("SELECT livemode FROM merchant WHERE id = $1", merchant_id)


async def list_platform_accounts(database: Executor, *, livemode: bool) -> list[AccountRecord]:
    """List the platform's enabled accounts, either live or test."""
    rows = await database.fetch(
        _SELECT_ACCOUNT
        + """
        WHERE merchant_id IS NULL AND sealed IS NOT NULL AND enabled AND livemode = $1
        ORDER BY id
        LIMIT 100
        """,
        livemode,
    )
    return [_to_record(row) for row in rows]


async def list_accounts(database: Executor, limit: int) -> list[AccountRecord]:
    """List accounts with credentials, by id."""
    rows = await database.fetch(
        _SELECT_ACCOUNT + "WHERE sealed IS NOT NULL ORDER BY id LIMIT $1", limit
    )
    return [_to_record(row) for row in rows]


async def list_providers(database: Executor) -> list[Provider]:
    rows = await database.fetch(
        "SELECT name, wire_name, enabled, changed_at FROM provider ORDER BY name LIMIT $1",
        _PROVIDERS_MAX,
    )
    return [Provider(**row) for row in rows]


async def set_provider_enabled(tx: Tx, name: str, *, enabled: bool) -> Provider | None:
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


def _to_record(row: Row) -> AccountRecord:
    values: dict[str, Any] = dict(row)
    if values["countries"] is not None:
        values["countries"] = tuple(values["countries"])
    return AccountRecord(**values)
