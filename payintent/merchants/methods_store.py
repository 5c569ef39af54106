"""Merchants' payment methods, the catalogs shown to buyers, and the configuration version."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any, Literal
from uuid import UUID

import msgspec

from payintent.chains.watch_store import IS_WATCHED
from payintent.core.errors import LockTimeoutError
from payintent.db.database import Executor, Row, Tx
from payintent.gateways.amount_limits import parse_limits
from payintent.merchants.model import (
    Acceptance,
    ExpectedToken,
    FeeMode,
    Market,
    PaymentMethod,
    UnavailablePart,
)

MethodKind = Literal["card", "redirect", "qr", "onchain"]
METHODS_MAX = 200  # per merchant
_ATTEMPTS_MAX = 3  # for recording a catalog that other processes are also recording

#: SQL expression: the part that makes a method unavailable, or NULL.
_UNAVAILABLE_PART = """
    CASE
        WHEN NOT a.enabled THEN 'account'
        WHEN NOT v.enabled THEN 'provider'
        WHEN NOT (m.chain IS NULL OR m.chain = 'test' OR {watched}) THEN 'chain'
    END
"""
_UNAVAILABLE_PART_NOW = _UNAVAILABLE_PART.format(watched=IS_WATCHED)
_UNAVAILABLE_PART_AT_VERSION = _UNAVAILABLE_PART.format(watched="m.chain = ANY($3::text[])")
#: Columns for `Acceptance`, except for fields that depend on the gateway.
_ACCEPTANCE = """
    a.provider, m.currencies, m.countries, a.countries AS account_countries, m.token,
    CASE WHEN t.enabled AND t.address IS NOT NULL THEN t.decimals END AS token_decimals,
    m.enabled, {unavailable_part} IS NULL AS account_enabled
"""
_ACCEPTANCE_NOW = _ACCEPTANCE.format(unavailable_part=_UNAVAILABLE_PART_NOW)
_ACCEPTANCE_AT_VERSION = _ACCEPTANCE.format(unavailable_part=_UNAVAILABLE_PART_AT_VERSION)
_COLUMNS = """
    m.id, m.merchant_id, m.account_id, v.wire_name AS provider_name, m.kind,
    m.label, m.chain, t.address AS token_address, t.approve_zero_first AS token_zero_first,
    coalesce(t.minimum, 1)::text AS token_minimum, m.fee_mode, m.fee_rate, m.position,
    m.limits, m.label_translations
"""
_FROM = """
    FROM payment_method m
    JOIN provider_account a ON a.id = m.account_id
    JOIN provider v ON v.name = a.provider
    LEFT JOIN chain_token t ON t.chain = m.chain AND t.symbol = m.token
    LEFT JOIN chain_cursor k ON k.chain = m.chain
"""
_SELECT_BY_ID = f"""
    SELECT {_ACCEPTANCE_NOW}, {_UNAVAILABLE_PART_NOW} AS unavailable_part, {_COLUMNS}
    {_FROM}
    WHERE m.id = $1
"""
#: SQL expression: the payment methods of a `merchant` row as JSON, in display order.
METHODS_JSON = f"""
    (
        SELECT json_agg(row_to_json(acceptance))
        FROM (
            SELECT {_ACCEPTANCE_NOW}
            {_FROM}
            WHERE m.merchant_id = merchant.id
            ORDER BY m.position, m.id
            LIMIT 200  -- METHODS_MAX
        ) acceptance
    )
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPaymentMethod:
    kind: MethodKind
    label: str
    currencies: Sequence[str]
    countries: Sequence[str] | None = None  # None means all
    fee_mode: FeeMode = FeeMode.INCLUSIVE
    fee_rate: Decimal = Decimal(0)
    chain: str | None = None
    token: str | None = None
    limits: Sequence[str] = ()
    label_translations: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogRecord:
    """The catalog shown to viewers from a country, and the time when it was first shown."""

    viewer: str  # the viewers' country; empty for viewers from all other countries
    content_hash: bytes
    since: datetime


_methods_decoder = msgspec.json.Decoder(tuple[Acceptance, ...])


async def add(
    tx: Tx, merchant_id: int, account_id: int, method: NewPaymentMethod, position: int
) -> int:
    return await tx.value(
        """
        INSERT INTO payment_method
            (merchant_id, account_id, kind, label, currencies, countries, fee_mode, fee_rate,
             position, chain, token, limits, label_translations, livemode)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13,
            (SELECT livemode FROM merchant WHERE id = $1))
        RETURNING id
        """,
        merchant_id,
        account_id,
        method.kind,
        method.label,
        list(method.currencies),
        None if method.countries is None else list(method.countries),
        method.fee_mode,
        method.fee_rate,
        position,
        method.chain,
        method.token,
        list(method.limits),
        msgspec.json.encode(method.label_translations).decode(),
    )


async def count(database: Executor, merchant_id: int) -> int:
    return await database.value(
        "SELECT count(*) AS count FROM payment_method WHERE merchant_id = $1", merchant_id
    )


async def list_for_merchant(
    database: Executor, merchant_id: int, watched_chains: Sequence[str]
) -> list[PaymentMethod]:
    """List a merchant's methods in display order, including disabled methods."""
    rows = await database.fetch(
        f"""
        SELECT {_ACCEPTANCE_AT_VERSION}, {_UNAVAILABLE_PART_AT_VERSION} AS unavailable_part,
            {_COLUMNS}
        {_FROM}
        WHERE m.merchant_id = $1
        ORDER BY m.position, m.id
        LIMIT $2
        """,
        merchant_id,
        METHODS_MAX,
        list(watched_chains),
    )
    return [_to_method(row) for row in rows]


async def get(database: Executor, method_id: int) -> PaymentMethod | None:
    row = await database.row(_SELECT_BY_ID, method_id)
    return _to_method(row) if row else None


async def lock(tx: Tx, method_id: int) -> PaymentMethod | None:
    row = await tx.row(_SELECT_BY_ID + "FOR NO KEY UPDATE OF m", method_id)
    return _to_method(row) if row else None


async def update(tx: Tx, method: PaymentMethod) -> None:
    """Update a method. The quotes of existing sessions do not change."""
    await tx.fetch(
        """
        UPDATE payment_method
        SET label = $2, currencies = $3, countries = $4, fee_mode = $5, fee_rate = $6,
            position = $7, enabled = $8, limits = $9, label_translations = $10
        WHERE id = $1
        """,
        method.id,
        method.label,
        list(method.currencies),
        None if method.countries is None else list(method.countries),
        method.fee_mode,
        method.fee_rate,
        method.position,
        method.enabled,
        list(method.limits),
        msgspec.json.encode(method.label_translations).decode(),
    )


async def list_catalogs(database: Executor, merchant_id: int, viewer: str) -> list[CatalogRecord]:
    """List the recorded catalogs for viewers from a country and for all other viewers."""
    rows = await database.fetch(
        """
        SELECT viewer, content_hash, since
        FROM catalog_shown
        WHERE merchant_id = $1 AND viewer IN ('', $2)
        LIMIT 2
        """,
        merchant_id,
        viewer,
    )
    return [CatalogRecord(**row) for row in rows]


async def record_catalog(
    database: Executor, merchant_id: int, viewer: str, content_hash: bytes, since: datetime | None
) -> datetime:
    """Record the catalog shown to viewers from a country. Returns when it was first shown.

    For a country's first catalog, this is `since` if the catalog for all other viewers already had
    the same content. Otherwise, it is the current time.
    """
    for _ in range(_ATTEMPTS_MAX):  # retry after a concurrent insertion
        row = await database.row(
            """
            WITH changed AS (
                UPDATE catalog_shown c
                SET content_hash = $3,
                    since = CASE WHEN c.content_hash = $3
                        THEN c.since  -- another process recorded it first
                        ELSE n.since
                    END
                FROM (
                    SELECT greatest(clock(), since + interval '1 millisecond') AS since
                    FROM catalog_shown
                    WHERE merchant_id = $1 AND viewer = $2
                    FOR NO KEY UPDATE
                ) n
                WHERE c.merchant_id = $1 AND c.viewer = $2
                RETURNING c.since
            ), inserted AS (
                INSERT INTO catalog_shown (merchant_id, viewer, content_hash, since)
                SELECT $1, $2, $3, coalesce($4, clock())
                WHERE NOT EXISTS (SELECT FROM changed)
                ON CONFLICT (merchant_id, viewer) DO NOTHING
                RETURNING since
            )
            SELECT since FROM changed
            UNION ALL
            SELECT since FROM inserted
            """,
            merchant_id,
            viewer,
            content_hash,
            since,
        )
        if row is not None:
            return row["since"]
    raise LockTimeoutError("other processes are changing this catalog repeatedly")


def to_market(row: Row) -> Market:
    """Build a market from a row with the columns `countries` and `currencies`."""
    return Market(_to_tuple(row["countries"]), _to_tuple(row["currencies"]))


def decode_methods(row: Row) -> tuple[Acceptance, ...]:
    """Decode a merchant's methods from a row that selects `METHODS_JSON` as `methods`."""
    return _methods_decoder.decode(row["methods"] or "[]")


def _to_tuple(values: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if values is None else tuple(values)


def _to_method(row: Row) -> PaymentMethod:
    values: dict[str, Any] = dict(row) | {
        "currencies": tuple(row["currencies"]),
        "countries": _to_tuple(row["countries"]),
        "account_countries": _to_tuple(row["account_countries"]),
        "limits": tuple(row["limits"]),
        "amount_limits": parse_limits(row["limits"]),
        "label_translations": msgspec.json.decode(row["label_translations"], type=dict[str, str]),
        "fee_mode": FeeMode(row["fee_mode"]),
        "token_minimum": int(row["token_minimum"]),
    }
    if row["unavailable_part"] is not None:
        values["unavailable_part"] = UnavailablePart(row["unavailable_part"])
    address, zero_first = values.pop("token_address"), values.pop("token_zero_first")
    if values["token_decimals"] is not None:
        values["expected_token"] = ExpectedToken(address, values["token_decimals"], zero_first)
    return PaymentMethod(**values)


@dataclass(frozen=True, slots=True)
class ConfigurationVersion:
    """The configuration version, and the chains that are currently watched.

    Triggers update the version in every transaction that changes merchants, methods, accounts,
    providers, tokens, tax rates or catalogs. The version does not cover the watched chains, because
    they depend on the clock.
    """

    version: UUID
    watched_chains: tuple[str, ...]


async def get_version(database: Executor) -> ConfigurationVersion:
    row = await database.row(
        f"""
        SELECT version, ARRAY(
            SELECT k.chain
            FROM chain_cursor k
            WHERE {IS_WATCHED}
            ORDER BY k.chain
            LIMIT 1000
        ) AS watched_chains
        FROM configuration_version
        """
    )
    assert row is not None  # noqa: S101 - the table has a single row
    return ConfigurationVersion(row["version"], tuple(row["watched_chains"]))


async def get_versions(database: Executor, callers: Sequence[None]) -> list[ConfigurationVersion]:
    """Read the version once and return a list with one entry for each caller."""
    return [await get_version(database)] * len(callers)
