"""Payments, sessions and methods as values, with a default for each field."""

from collections.abc import Iterable
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from payintent.merchants.model import (
    ActivationStatus,
    FeeMode,
    Market,
    Merchant,
    PaymentMethod,
    Price,
    Quote,
    TaxManager,
)
from payintent.merchants.payable import PayableMethods, find_payable_methods
from payintent.payments.model import Payment, PaymentStatus, Session, SessionStatus

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
PAYMENT_ID, SESSION_ID, OTHER_SESSION_ID, RECEIPT_ID = (UUID(int=number) for number in range(1, 5))
TOTAL_MINOR = 159_000


def a_payment(**changes: Any) -> Payment:
    values: dict[str, Any] = {
        **dict.fromkeys(field.name for field in fields(Payment)),
        "id": PAYMENT_ID,
        "merchant_id": 1,
        "checkout_id": "cs_0000000000000001",
        "status": PaymentStatus.PENDING,
        "version": 1,
        "currency": "THB",
        "amount": Decimal("1590.00"),
        "amount_text": "1590.00",
        "payer_uid": "buyer-1",
        "include_pegged_assets": True,
        "metadata": "{}",
        "tax_manager": TaxManager.NONE,
        "refunded_amount": Decimal(0),
        "expires_at": NOW + timedelta(minutes=30),
        "created_at": NOW,
        "updated_at": NOW,
    }
    return Payment(**(values | changes))


def a_session(**changes: Any) -> Session:
    values: dict[str, Any] = {
        "id": SESSION_ID,
        "payment_id": PAYMENT_ID,
        "status": SessionStatus.OPEN,
        "outcome": None,
        "quote": a_quote(),
        "reference": "ref-1",
        "next_action": None,
        "return_url": None,
        "inquiries": 0,
        "declines": 0,
        "opened_at": NOW,
        "closing_at": None,
    }
    return Session(**(values | changes))


def a_quote() -> Quote:
    quote = Price(
        currency="THB",
        amount="1590.00",
        fee_mode=FeeMode.INCLUSIVE,
        fee_rate="0",
        fee_amount="0",
        estimated_tax="0",
        total_amount="1590.00",
    )
    return Quote(
        payment_method_id=1,
        account_id=1,
        provider="fake",
        provider_name="fake",
        kind="card",
        label="Card",
        country="TH",
        chain=None,
        token=None,
        price=quote,
        total_minor=TOTAL_MINOR,
    )


def a_merchant(**changes: Any) -> Merchant:
    values: dict[str, Any] = {
        **dict.fromkeys(field.name for field in fields(Merchant)),
        "id": 1,
        "name": "Nimbus Books",
        "activation": ActivationStatus.ACTIVE,
        "market": Market(),
        "locale": "en",
        "tax_manager": TaxManager.NONE,
        "default_country": "US",
        "allowed_origins": (),
    }
    return Merchant(**(values | changes))


def payable(methods: Iterable[PaymentMethod], merchant: Merchant | None = None) -> PayableMethods:
    """Return the currencies payable with these methods, by default of an unrestricted merchant."""
    return find_payable_methods((merchant or a_merchant()).market, methods)


def a_method(**changes: Any) -> PaymentMethod:
    values: dict[str, Any] = {
        "id": 1,
        "merchant_id": 1,
        "account_id": 1,
        "provider": "fake",
        "provider_name": "fake",
        "kind": "card",
        "label": "Card",
        "currencies": ("USD", "THB", "JPY", "TWD", "IDR", "PHP"),
        "countries": None,
        "account_countries": None,
        "chain": None,
        "token": None,
        "token_decimals": None,
        "fee_mode": FeeMode.INCLUSIVE,
        "fee_rate": Decimal("0.029"),
        "position": 0,
        "enabled": True,
        "account_enabled": True,
    }
    return PaymentMethod(**(values | changes))


#: URLs that resemble https://shop.example.com but have a different origin.
NO_WAY_BACK = (
    "javascript:alert(1)",
    "JavaScript:alert(1)//https://shop.example.com",
    "javascript://shop.example.com/%0aalert(1)",
    "java\tscript:alert(1)",
    "data:text/html,https://shop.example.com",
    "vbscript:x",
    "blob:https://shop.example.com/1",
    "filesystem:https://shop.example.com/1",
    "about:blank",
    "file:///etc/passwd",
    "ftp://shop.example.com/",
    "ws://shop.example.com/",
    "intent://shop.example.com#Intent;end",
    "view-source:https://shop.example.com",
    "//evil.example",
    "///evil.example",
    "/\\evil.example",
    "\\\\evil.example",
    "/paid",
    "paid",
    "?x",
    "#x",
    "shop.example.com",
    "https:evil.example",
    "https:/evil.example",
    "https:///evil.example",
    "HTTPS://evil.example",
    "https://evil.example",
    "https://evil.example/https://shop.example.com",
    "https://evil.example?https://shop.example.com",
    "https://evil.example#@shop.example.com",
    "https://shop.example.com@evil.example",
    "https://shop.example.com:x@evil.example/",
    "https://shop.example.com:443@evil.example",
    "https://evil.example\\@shop.example.com",
    "https://shop.example.com\\.evil.example",
    "https://shop.example.com.evil.example",
    "https://shop.example.com%2eevil.example",
    "https://evil-shop.example.com",
    "https://shop.example.com.",
    "https://shop.example.com:8443",
    "http://shop.example.com",
    "HTTP://shop.example.com:443",
    " https://shop.example.com",
    "https://shop.example.com\n",
    "https://shop.example\t.com",
    "https://shop\u3002example\u3002com",
    "https://\u0455hop.example.com",
    "https://shop.example.com\u2044.evil.example",
    "https://[shop.example.com]",
)
