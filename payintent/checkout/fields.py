"""Buyer-visible fields of checkouts, quotes, next actions and totals."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
from markupsafe import Markup

from payintent.checkout.languages import Language
from payintent.checkout.methods.icons import draw_token_icon
from payintent.core import ids
from payintent.core.addresses import get_linkable_url
from payintent.core.money import CURRENCIES
from payintent.db.sealing import find_order_id
from payintent.merchants.model import Merchant, Quote
from payintent.merchants.provisioning import TEST_PROVIDER
from payintent.payment_sessions.select_quote import ServiceUrls
from payintent.payments.model import OPEN, Payment, PaymentStatus, Session, SessionStatus
from payintent.payments.return_urls import choose_return_url
from payintent.payments.serialization import make_shared_option_fields
from payintent.runtime.json_format import format_timestamp
from payintent.test_mode.model import make_card_page_url

_POLL_MS = 2_000
_PRODUCT_TEXT_MAX = {"name": 120, "detail": 500, "image": 2048, "category": 120, "vendor": 120}
_ORDER_ID_MAX = 120
_INTEGER_CHARS_MAX = 18
_WITH_SELECTED_METHOD = frozenset(
    {
        PaymentStatus.PROCESSING,
        PaymentStatus.PAID,
        PaymentStatus.PARTIALLY_REFUNDED,
        PaymentStatus.REFUNDED,
    }
)


def checkout_fields(
    payment: Payment, session: Session | None, merchant: Merchant, now: datetime, urls: ServiceUrls
) -> dict[str, Any]:
    """Return the buyer's view of a payment.

    It omits the payer's id and all metadata except the product and the order id.
    """
    is_open = payment.status in OPEN and not payment.is_past_expiry(now)
    fields: dict[str, Any] = {
        "checkout_id": payment.checkout_id,
        "payment_id": ids.format_id(ids.PAYMENT, payment.id),
        "status": payment.status,
        "version": payment.version,
        "amount": payment.amount_text,
        "currency": payment.currency,
        "decimals": CURRENCIES[payment.currency].display_decimals,
        "merchant": _without_none(
            name=merchant.name,
            logo_url=merchant.logo_url,
            support_url=get_linkable_url(merchant.support_url),
            terms_url=get_linkable_url(merchant.terms_url),
        ),
        **make_shared_option_fields(payment),
        "server_time": format_timestamp(now),
        "can": {
            "select": is_open,
            "change_method": is_open and payment.status is PaymentStatus.PROCESSING,
            "cancel": is_open and payment.status is PaymentStatus.PENDING,
        },
        "next_action": next_action_fields(payment, session, urls),
        **_public_metadata(payment.metadata),
    }
    if payment.status in OPEN:
        fields["expires_at"] = format_timestamp(payment.expires_at)
    if session is not None:
        fields["selected"] = quote_fields(session.quote)
    return fields | _without_none(
        payer_email=_mask_email(payment.payer_email),
        failure_reason=payment.failure_reason,
        receipt_id=payment.receipt_id and ids.format_id(ids.RECEIPT, payment.receipt_id),
        return_url=choose_return_url(payment, session and session.return_url, merchant),
    )


def quote_fields(quote: Quote) -> dict[str, Any]:
    price = quote.price
    return {
        "payment_method_id": quote.payment_method_id,
        "kind": quote.kind,
        "label": quote.label,
        "provider": quote.provider_name,
        "currency": price.currency,
        **_without_none(chain=quote.chain, token=quote.token),
        "amount": price.amount,
        "fee_mode": price.fee_mode,
        "fee_rate": price.fee_rate,
        "fee_amount": price.fee_amount,
        "estimated_tax": price.estimated_tax,
        "total_amount": price.total_amount,
    }


def next_action_fields(
    payment: Payment, session: Session | None, urls: ServiceUrls
) -> dict[str, Any]:
    base = urls.checkout_base
    fallback = {"fallback_url": f"{base}/{payment.checkout_id}"} if base else {}
    if payment.status is not PaymentStatus.PROCESSING or session is None:
        return {"type": "none", "none": {}, **fallback}
    if session.status is SessionStatus.OPEN and session.next_action is not None:
        action: dict[str, Any] = msgspec.json.decode(session.next_action)
        return _with_current_urls(action, session, urls) | fallback
    return {"type": "wait", "wait": {"poll_after_ms": _POLL_MS}, **fallback}


def _with_current_urls(
    action: dict[str, Any], session: Session, urls: ServiceUrls
) -> dict[str, Any]:
    """Rebuild our own URLs, because settings may have changed since the session was opened."""
    if onchain := action.get("onchain_session"):
        url = f"{urls.api_base}/onchain/sessions/{onchain['session_id']}"
        return action | {"onchain_session": onchain | {"url": url}}
    if session.quote.provider == TEST_PROVIDER:
        url = make_card_page_url(urls.pages_base, session.id)
        return action | {"redirect": action["redirect"] | {"url": url}}
    return action


def _public_metadata(metadata: str) -> dict[str, Any]:
    """Return the metadata that the buyer may see, with long values truncated."""
    values: dict[str, Any] = json.loads(metadata, parse_int=_parse_integer, parse_float=str)
    fields: dict[str, Any] = {}
    product: object = values.get("product")
    if isinstance(product, dict):
        fields["product"] = _product_fields(product)  # pyright: ignore[reportUnknownArgumentType]
    order_id = values.get("order_id")
    if isinstance(order_id, int) and not isinstance(order_id, bool):
        order_id = find_order_id(metadata)  # a numeric id keeps its original digits
    if isinstance(order_id, str):
        fields["order_id"] = order_id[:_ORDER_ID_MAX]
    return fields


def _parse_integer(digits: str) -> int | str:
    return int(digits) if len(digits) <= _INTEGER_CHARS_MAX else digits


def _product_fields(product: dict[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = {
        name: product[name][:length]
        for name, length in _PRODUCT_TEXT_MAX.items()
        if isinstance(product.get(name), str)
    }
    quantity = product.get("quantity")
    if isinstance(quantity, int) and not isinstance(quantity, bool):
        fields["quantity"] = quantity
    return fields


def _mask_email(email: str | None) -> str | None:
    if email is None:
        return None
    name, _, host = email.rpartition("@")
    return f"{name[:1]}***@{host}"


def _without_none(**fields: object) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Bill:
    """The total that a page shows. Each item in `lines` has a translation key and an amount."""

    amount: str
    currency: str
    lines: Sequence[tuple[str, str]]
    icon: Markup | None = None


def make_bill(view: Mapping[str, Any], language: Language) -> Bill:
    if "selected" not in view or view["status"] not in _WITH_SELECTED_METHOD:
        return Bill(view["amount"], view["currency"], [])
    quote: Mapping[str, Any] = view["selected"]
    currency: str = quote["currency"]
    parts = fee_and_tax_lines(quote, language)
    lines = [("amount", language.money(quote["amount"], currency)), *parts] if parts else []
    lines = [*shop_price_lines(quote, view, language), *lines]
    icon = draw_token_icon(quote["token"]) if "token" in quote else None
    return Bill(quote["total_amount"], currency, lines, icon)


def shop_price_lines(
    quote: Mapping[str, Any], view: Mapping[str, Any], language: Language
) -> list[tuple[str, str]]:
    """Return a line with the shop's price if the quote is in another currency, such as a token."""
    if quote["currency"] == view["currency"]:
        return []
    return [("price", language.money(view["amount"], view["currency"]))]


def fee_and_tax_lines(quote: Mapping[str, Any], language: Language) -> list[tuple[str, str]]:
    has_fee = quote["fee_mode"] == "EXCLUSIVE" and quote["fee_amount"] != "0"
    parts = [("fee", quote["fee_amount"])] if has_fee else []
    parts += [("tax", quote["estimated_tax"])] if quote["estimated_tax"] != "0" else []
    return [(key, language.money(amount, quote["currency"])) for key, amount in parts]
