"""Provider accounts, the payment methods that use them, and tax rates."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from payintent.domain.merchant import PaymentMethod
from payintent.domain.quote import FeeMode
from payintent.storage.database import Executor, Row, Tx

METHODS_MAX = 200  # of one merchant

_COLUMNS = """
    m.id, m.merchant_id, m.account_id, a.provider, m.kind, m.label, m.currencies, m.countries,
    m.chain, m.token, m.fee_mode, m.fee_rate, m.enabled, a.enabled AS account_enabled
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedAccount:
    """A provider account as it is kept."""

    id: int
    provider: str
    merchant_id: int | None
    base_url: str
    sealed: bytes
    enabled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMethod:
    """A payment method to provision."""

    merchant_id: int
    account_id: int
    kind: str
    label: str
    currencies: Sequence[str]
    countries: Sequence[str] | None
    fee_mode: FeeMode
    fee_rate: Decimal
    position: int


async def add_account(tx: Tx, provider: str, merchant_id: int | None, base_url: str) -> int:
    """Make room for an account; its credentials are sealed to the id that this gives."""
    row = await tx.row(
        """
        INSERT INTO provider_account (provider, merchant_id, base_url)
        VALUES ($1, $2, $3)
        RETURNING id
        """,
        provider,
        merchant_id,
        base_url,
    )
    assert row is not None  # noqa: S101 - RETURNING gives the inserted row
    return row["id"]


async def seal_account(tx: Tx, account_id: int, base_url: str, sealed: bytes) -> None:
    """Keep an account's address and credentials."""
    await tx.fetch(
        "UPDATE provider_account SET base_url = $2, sealed = $3 WHERE id = $1",
        account_id,
        base_url,
        sealed,
    )


async def account(database: Executor, account_id: int) -> SealedAccount | None:
    """Read one account."""
    row = await database.row(
        """
        SELECT id, provider, merchant_id, base_url, sealed, enabled
        FROM provider_account
        WHERE id = $1 AND sealed IS NOT NULL
        """,
        account_id,
    )
    return SealedAccount(**row) if row else None


async def platform_accounts(database: Executor) -> list[SealedAccount]:
    """List the platform's own accounts, which any merchant's methods may use."""
    rows = await database.fetch(
        """
        SELECT id, provider, merchant_id, base_url, sealed, enabled
        FROM provider_account
        WHERE merchant_id IS NULL AND sealed IS NOT NULL
        ORDER BY id
        LIMIT 100
        """
    )
    return [SealedAccount(**row) for row in rows]


async def add(tx: Tx, new: NewMethod) -> int:
    """Provision a payment method."""
    row = await tx.row(
        """
        INSERT INTO payment_method
            (merchant_id, account_id, kind, label, currencies, countries, fee_mode, fee_rate,
             position)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
        RETURNING id
        """,
        new.merchant_id,
        new.account_id,
        new.kind,
        new.label,
        list(new.currencies),
        None if new.countries is None else list(new.countries),
        new.fee_mode,
        new.fee_rate,
        new.position,
    )
    assert row is not None  # noqa: S101 - RETURNING gives the inserted row
    return row["id"]


async def of_merchant(database: Executor, merchant_id: int) -> list[PaymentMethod]:
    """List a merchant's methods in the order they are offered in, disabled ones too."""
    rows = await database.fetch(
        "SELECT"
        + _COLUMNS
        + """
        FROM payment_method m
        JOIN provider_account a ON a.id = m.account_id
        WHERE m.merchant_id = $1
        ORDER BY m.position, m.id
        LIMIT $2
        """,
        merchant_id,
        METHODS_MAX,
    )
    return [_method(row) for row in rows]


async def tax_rates(database: Executor) -> dict[str, Decimal]:
    """Read the operator's tax rates by country; at most one for each."""
    rows = await database.fetch("SELECT country, rate FROM tax_rate ORDER BY country LIMIT 300")
    return {row["country"]: row["rate"] for row in rows}


async def set_tax_rate(tx: Tx, country: str, rate: Decimal) -> None:
    """Set a country's tax rate."""
    await tx.fetch(
        """
        INSERT INTO tax_rate (country, rate)
        VALUES ($1, $2)
        ON CONFLICT (country) DO UPDATE
        SET rate = excluded.rate
        """,
        country,
        rate,
    )


def _method(row: Row) -> PaymentMethod:
    values = dict(row)
    values["currencies"] = tuple(row["currencies"])
    values["countries"] = None if row["countries"] is None else tuple(row["countries"])
    values["fee_mode"] = FeeMode(row["fee_mode"])
    return PaymentMethod(**values)
