"""Payment methods: what of which account a merchant offers, where and at which fee."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from payintent.domain.activation import Activation, in_service
from payintent.domain.merchant import Market, PaymentMethod
from payintent.domain.quote import FeeMode
from payintent.domain.session import ExpectedToken
from payintent.storage.chain_watch import WATCHED, WATCHED_CHANGED_AT
from payintent.storage.database import Executor, Row, Tx

METHODS_MAX = 200  # of one merchant

_COLUMNS = f"""
    m.id, m.merchant_id, m.account_id, a.provider,
    v.wire_name AS provider_name, m.kind, m.label, m.currencies, m.countries,
    m.chain, m.token,
    CASE WHEN t.enabled AND t.address IS NOT NULL THEN t.decimals END AS token_decimals,
    t.address AS token_address, t.approve_zero_first AS token_zero_first,
    coalesce(t.minimum, 1)::text AS token_minimum,
    m.fee_mode, m.fee_rate, m.position, m.enabled,
    a.enabled AND v.enabled AND (m.chain IS NULL OR {WATCHED}) AS account_enabled
"""


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
    chain: str | None = None
    token: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """What a merchant was activated for, what its usable methods reach, and since when."""

    changed_at: datetime
    market: Market
    methods: tuple[Market, ...]


async def add(tx: Tx, new: NewMethod) -> int:
    """Provision a payment method."""
    row = await tx.row(
        """
        INSERT INTO payment_method
            (merchant_id, account_id, kind, label, currencies, countries, fee_mode, fee_rate,
             position, chain, token)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
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
        new.chain,
        new.token,
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
        JOIN provider v ON v.name = a.provider
        LEFT JOIN chain_token t ON t.chain = m.chain AND t.symbol = m.token
        LEFT JOIN chain_cursor k ON k.chain = m.chain
        WHERE m.merchant_id = $1
        ORDER BY m.position, m.id
        LIMIT $2
        """,
        merchant_id,
        METHODS_MAX,
    )
    return [_method(row) for row in rows]


async def lock(tx: Tx, method_id: int) -> PaymentMethod | None:
    """Read a method that is about to be changed."""
    row = await tx.row(
        "SELECT"
        + _COLUMNS
        + """
        FROM payment_method m
        JOIN provider_account a ON a.id = m.account_id
        JOIN provider v ON v.name = a.provider
        LEFT JOIN chain_token t ON t.chain = m.chain AND t.symbol = m.token
        LEFT JOIN chain_cursor k ON k.chain = m.chain
        WHERE m.id = $1
        FOR NO KEY UPDATE OF m
        """,
        method_id,
    )
    return _method(row) if row else None


async def change(tx: Tx, method: PaymentMethod) -> None:
    """Keep what may change of a method; sessions that were opened keep the quote they froze."""
    await tx.fetch(
        """
        UPDATE payment_method
        SET label = $2, currencies = $3, countries = $4, fee_mode = $5, fee_rate = $6,
            position = $7, enabled = $8
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
    )


async def reach(database: Executor, merchant_id: int) -> Reach:
    """Read in one statement all that a merchant's catalog is made of, restrictions apart.

    Out of service no method is usable.
    """
    rows = await database.fetch(
        """
        SELECT m.countries AS market_countries, m.currencies AS market_currencies,
            greatest(m.market_changed_at, max(p.market_changed_at) OVER (),
                -- A switch behind another one that is off shows nothing.
                max(a.changed_at) FILTER (WHERE p.enabled) OVER (),
                max(v.changed_at) FILTER (WHERE p.enabled AND a.enabled) OVER (),
                max("""
        + WATCHED_CHANGED_AT
        + """) FILTER (WHERE p.enabled AND a.enabled AND v.enabled) OVER ()) AS changed_at,
            p.countries, p.currencies, m.activation,
            p.enabled AND a.enabled AND v.enabled AND (p.chain IS NULL OR """
        + WATCHED
        + """) AS usable
        FROM merchant m
        LEFT JOIN (
            payment_method p
            JOIN provider_account a ON a.id = p.account_id
            JOIN provider v ON v.name = a.provider
            LEFT JOIN chain_cursor k ON k.chain = p.chain
        ) ON p.merchant_id = m.id
        WHERE m.id = $1
        ORDER BY p.position, p.id
        LIMIT $2
        """,
        merchant_id,
        METHODS_MAX,
    )
    first = rows[0]
    serves = in_service(Activation(first["activation"]))
    return Reach(
        changed_at=first["changed_at"],
        market=_market(first["market_countries"], first["market_currencies"]),
        methods=tuple(
            _market(row["countries"], row["currencies"]) for row in rows if serves and row["usable"]
        ),
    )


def _market(countries: Sequence[str] | None, currencies: Sequence[str] | None) -> Market:
    return Market(
        None if countries is None else tuple(countries),
        None if currencies is None else tuple(currencies),
    )


def _method(row: Row) -> PaymentMethod:
    values = dict(row)
    values["currencies"] = tuple(row["currencies"])
    values["countries"] = None if row["countries"] is None else tuple(row["countries"])
    values["fee_mode"] = FeeMode(row["fee_mode"])
    values["token_minimum"] = int(row["token_minimum"])
    address, zero_first = values.pop("token_address"), values.pop("token_zero_first")
    if values["token_decimals"] is not None:
        values["expected_token"] = ExpectedToken(address, values["token_decimals"], zero_first)
    return PaymentMethod(**values)
