"""Store merchants with their settings, profiles and activation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

import msgspec

from payintent.core.errors import NotFoundError
from payintent.core.money import CURRENCIES
from payintent.db.database import Executor, Row, Tx
from payintent.db.lists import KeysetList, build
from payintent.merchants import methods_store as method_store
from payintent.merchants.model import ActivationStatus, Merchant, TaxCountry, TaxManager
from payintent.operators.fields import is_database_id

COLUMNS = """
    m.id, m.name, m.activation, m.countries, m.currencies, m.callback_url, m.tax_manager,
    m.default_country, m.locale, m.logo_url, m.support_url, m.return_url, m.allowed_origins,
    m.tax_country, m.auto_refund, m.allow_http, m.accent_colour, m.terms_url,
    m.mail_receipts, m.livemode, m.live_merchant, m.time_zone, m.refund_approval_above,
    m.deposit_tolerance
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivationRecord:
    """A merchant's activation. A list that is None allows all countries or currencies."""

    merchant_id: int
    activation: str
    contract: str
    kyc: str
    requested_countries: list[str] | None
    requested_currencies: list[str] | None
    countries: list[str] | None
    currencies: list[str] | None
    activated_at: datetime | None


async def add(
    tx: Tx,
    name: str,
    callback_url: str | None,
    activation: ActivationStatus,
    *,
    auto_refund: bool,
    allow_http: bool,
) -> Merchant:
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
    assert row is not None  # noqa: S101 - RETURNING returns the inserted row
    return to_merchant(row)


async def get(database: Executor, merchant_id: int) -> Merchant | None:
    row = await database.row("SELECT" + COLUMNS + "FROM merchant m WHERE id = $1", merchant_id)
    return to_merchant(row) if row else None


async def find_test_side(database: Executor, live_merchant: int) -> int | None:
    return await database.value("SELECT id FROM merchant WHERE live_merchant = $1", live_merchant)


async def add_test_side(tx: Tx, live_merchant: int) -> int:
    """Create a live merchant's test merchant, which is active immediately, and return its id.

    It inherits the live merchant's profile, countries, currencies, taxes and rate limits.
    """
    return await tx.value(
        """
        WITH test_side AS (
            INSERT INTO merchant
                (name, activation, activated_at, livemode, live_merchant, countries, currencies,
                 tax_manager, tax_country, default_country, locale, logo_url, support_url,
                 terms_url, return_url, allowed_origins, accent_colour, auto_refund,
                 deposit_tolerance)
            SELECT name, 'ACTIVE', clock(), false, id, countries, currencies,
                tax_manager, tax_country, default_country, locale, logo_url, support_url,
                terms_url, return_url, allowed_origins, accent_colour, auto_refund,
                deposit_tolerance
            FROM merchant
            WHERE id = $1
            RETURNING id
        ), copied_limits AS (
            INSERT INTO rate_limit (merchant_id, class, per_s, burst)
            SELECT test_side.id, l.class, l.per_s, l.burst
            FROM test_side
            CROSS JOIN rate_limit l
            WHERE l.merchant_id = $1
        )
        SELECT id FROM test_side
        """,
        live_merchant,
    )


async def have_same_mode(database: Executor, merchant_id: int, other_id: int) -> bool:
    """Return whether two merchants are both live or both test merchants."""
    return await database.value(
        """
        SELECT count(DISTINCT livemode) = 1
        FROM merchant
        WHERE id IN ($1, $2)
        """,
        merchant_id,
        other_id,
    )


_MERCHANTS = KeysetList(
    "SELECT" + COLUMNS + "FROM merchant m",
    "id",
    oldest_first=True,
    name="strpos(lower(name), lower({})) > 0",
    activation="activation = {}",
)


async def list_merchants(
    database: Executor,
    limit: int,
    *,
    after: int = 0,
    name: str | None = None,
    activation: str | None = None,
) -> list[Merchant]:
    """List merchants after an id. `name` matches any part of the name and ignores case."""
    rows = await _MERCHANTS.page(database, after, limit, name=name, activation=activation)
    return [to_merchant(row) for row in rows]


async def list_names(database: Executor, merchant_ids: Sequence[int]) -> dict[int, str]:
    """Return the names of these merchants by id. Names of test merchants are marked."""
    if not merchant_ids:
        return {}
    rows = await database.fetch(
        "SELECT id, name, livemode FROM merchant WHERE id = ANY($1)", list(merchant_ids)
    )
    return {row["id"]: row["name"] + ("" if row["livemode"] else " (test)") for row in rows}


async def set_callback_url(
    tx: Tx, merchant_id: int, callback_url: str | None, *, allow_http: bool, by_member: bool = False
) -> None:
    """Set a merchant's callback URL. If it is None, events are stored but not sent.

    If a member has set the URL, events are not sent to private networks.
    """
    await tx.fetch(
        """
        UPDATE merchant
        SET callback_url = $2, allow_http = $3, callback_by_member = $4
        WHERE id = $1
        """,
        merchant_id,
        callback_url,
        allow_http,
        by_member,
    )


async def set_refund_thresholds(tx: Tx, merchant_id: int, thresholds: Mapping[str, str]) -> None:
    """Store, for each currency, the daily total that a merchant can refund without approval."""
    await tx.fetch(
        "UPDATE merchant SET refund_approval_above = $2::jsonb WHERE id = $1",
        merchant_id,
        msgspec.json.encode(thresholds).decode(),
    )


async def set_deposit_tolerance(tx: Tx, merchant_id: int, percent: Decimal) -> None:
    await tx.fetch("UPDATE merchant SET deposit_tolerance = $2 WHERE id = $1", merchant_id, percent)


async def set_profile(tx: Tx, merchant: Merchant) -> None:
    await tx.fetch(
        """
        UPDATE merchant
        SET name = $2, logo_url = $3, support_url = $4, return_url = $5, allowed_origins = $6,
            default_country = $7, locale = $8, tax_manager = $9, tax_country = $10,
            auto_refund = $11, accent_colour = $12, terms_url = $13, mail_receipts = $14,
            time_zone = $15
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
        merchant.accent_colour,
        merchant.terms_url,
        merchant.mail_receipts,
        merchant.time_zone,
    )


async def has_gone_live(database: Executor, merchant_id: int | None = None) -> bool:
    """Return whether the merchant (by default, any merchant) is live and has been activated."""
    return await database.value(
        """
        SELECT EXISTS (
            SELECT
            FROM merchant
            WHERE activated_at IS NOT NULL AND livemode AND (id = $1 OR $1::bigint IS NULL)
        ) AS has_gone_live
        """,
        merchant_id,
    )


async def has_paid_payment(database: Executor, merchant_id: int) -> bool:
    """Return whether the merchant ever had a paid payment, even if it was later refunded."""
    return await database.value(
        """
        SELECT EXISTS (
            SELECT
            FROM unnest($2::text[]) AS c (currency)
            CROSS JOIN unnest(ARRAY['PAID', 'PARTIALLY_REFUNDED', 'REFUNDED']) AS s (status)
            CROSS JOIN LATERAL (
                SELECT
                FROM payment
                WHERE merchant_id = $1 AND currency = c.currency AND status = s.status
                LIMIT 1
            ) p
        ) AS has_paid
        """,
        merchant_id,
        list(CURRENCIES),
    )


async def time_zone_exists(database: Executor, name: str) -> bool:
    row = await database.row("SELECT FROM pg_timezone_names WHERE name = $1", name)
    return row is not None


async def lock(tx: Tx, merchant_id: int) -> Merchant | None:
    row = await tx.row(
        "SELECT" + COLUMNS + "FROM merchant m WHERE id = $1 FOR NO KEY UPDATE", merchant_id
    )
    return to_merchant(row) if row else None


async def get_activation(database: Executor, merchant_id: int) -> ActivationRecord:
    row = await database.row(
        """
        SELECT id AS merchant_id, activation, contract, kyc, requested_countries,
            requested_currencies, countries, currencies, activated_at
        FROM merchant
        WHERE id = $1
        """,
        merchant_id,
    )
    assert row is not None  # noqa: S101 - merchants are never deleted
    return ActivationRecord(**row)


async def save_activation(tx: Tx, record: ActivationRecord) -> None:
    """Store a merchant's activation, and the time at which the merchant first becomes ACTIVE."""
    await tx.fetch(
        """
        UPDATE merchant
        SET activation = $2, contract = $3, kyc = $4, requested_countries = $5,
            requested_currencies = $6, countries = $7, currencies = $8,
            activated_at = CASE WHEN $2 = 'ACTIVE' THEN coalesce(activated_at, clock())
                ELSE activated_at END
        WHERE id = $1
        """,
        record.merchant_id,
        record.activation,
        record.contract,
        record.kyc,
        record.requested_countries,
        record.requested_currencies,
        record.countries,
        record.currencies,
    )


def to_merchant(row: Row) -> Merchant:
    """Build a merchant from a row with `COLUMNS`."""
    thresholds = msgspec.json.decode(row["refund_approval_above"], type=dict[str, str])
    return build(
        Merchant,
        row,
        activation=ActivationStatus(row["activation"]),
        market=method_store.to_market(row),
        tax_manager=TaxManager(row["tax_manager"]),
        allowed_origins=tuple(row["allowed_origins"]),
        tax_country=TaxCountry(row["tax_country"]),
        refund_approval_above=thresholds,
    )


async def require_merchant(database: Executor, merchant_id: int) -> Merchant:
    merchant = await get(database, merchant_id) if is_database_id(merchant_id) else None
    if merchant is None:
        raise NotFoundError(f"no merchant {merchant_id}")
    return merchant
