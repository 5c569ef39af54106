"""Emails to buyers: receipts, payment links, and links for entering a refund address."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec

from payintent.checkout.fields import checkout_fields, fee_and_tax_lines
from payintent.checkout.languages import Language, load_language, negotiate_language
from payintent.checkout.methods.names import method_name
from payintent.db.database import Database, get_current_time
from payintent.mail.message import Mail
from payintent.merchants import store as merchant_store
from payintent.merchants.model import Merchant
from payintent.payment_links import store as link_store
from payintent.payment_links.model import build_link_url
from payintent.payment_links.store import LinkMail
from payintent.payment_sessions.select_quote import ServiceUrls
from payintent.payments import store as payment_store
from payintent.payments.store import PaymentSnapshot
from payintent.refunds import address_store
from payintent.refunds.address_links import RefundAddressLinks
from payintent.runtime.json_format import format_timestamp

_NO_URLS = ServiceUrls(api_base="", checkout_base="", pages_base="")  # receipts contain no URLs


async def compose_receipt(database: Database, payment_id: UUID) -> Mail | None:
    """Compose a receipt in the shop's language, with the content of the receipt page.

    Returns None if the payment is unpaid or has no email address.
    """
    snapshot = await payment_store.get(database, payment_id)
    if snapshot is None or snapshot.payment.payer_email is None or snapshot.payment.paid_at is None:
        return None
    merchant = await merchant_store.get(database, snapshot.payment.merchant_id)
    if merchant is None or snapshot.session is None:
        return None
    language = load_language(negotiate_language(None, "", merchant.locale))
    return Mail(
        recipient=snapshot.payment.payer_email,
        subject=f"{language.t('receipt')} · {merchant.name}",
        text=_compose_text(snapshot, merchant, language),
        sender_name=merchant.name,
    )


async def compose_refund_address(
    database: Database, links: RefundAddressLinks, refund_id: UUID
) -> Mail | None:
    """Compose an email with the link to a refund's address form, in the shop's language.

    Returns None if the address has already been entered, or if the payment has no email address.
    """
    refund = await address_store.get_request(database, refund_id)
    if refund is None or refund.payment_id is None or refund.entries or not refund.can_enter:
        return None
    snapshot = await payment_store.get(database, refund.payment_id)
    merchant = await merchant_store.get(database, refund.merchant_id)
    if snapshot is None or snapshot.payment.payer_email is None or merchant is None:
        return None
    language = load_language(negotiate_language(None, "", merchant.locale))
    amount = language.money(refund.amount, refund.token)
    paragraphs = [
        language.t("refund_address_from", merchant=_join_lines(merchant.name)),
        language.t("receipt_line", name=language.t("amount"), value=amount),
        language.t("refund_address_how", chain=refund.chain_name),
        f"{links.build_url(refund_id)}?lang={language.locale}",
        language.t("refund_address_warning"),
        *filter(None, [merchant.support_url]),
    ]
    return Mail(
        recipient=snapshot.payment.payer_email,
        subject=f"{language.t('refund_address')} · {merchant.name}",
        text="\n\n".join(paragraphs) + "\n",
        sender_name=merchant.name,
    )


async def compose_payment_link(database: Database, pages_base: str, content: bytes) -> Mail | None:
    """Compose an email with a payment link. Returns None if the link is closed."""
    order = msgspec.json.decode(content, type=LinkMail)
    stored = await link_store.get(database, order.link_id)
    if stored is None or stored.link.find_closed_state(await get_current_time(database)):
        return None
    link, terms = stored.link, stored.link.terms
    merchant = await merchant_store.get(database, link.merchant_id)
    if merchant is None:
        return None
    language = load_language(order.locale)
    lines = [("item", terms.title), ("receipt_order", terms.order_id)]
    if terms.amount_text is not None:
        lines.append(("amount", language.money(terms.amount_text, terms.currency)))
    open_amount = language.t("link_mail_open_amount", currency=terms.currency)
    paragraphs = [
        None if merchant.livemode else language.t("test"),
        language.t("link_mail_from", merchant=_join_lines(merchant.name)),
        _format_lines(lines, language),
        open_amount if terms.amount_text is None else None,
        language.t("link_mail_how"),
        f"{build_link_url(pages_base, link.token)}?lang={language.locale}",
        language.t("link_mail_unexpected"),
        merchant.support_url,
    ]
    return Mail(
        recipient=order.recipient,
        subject=f"{language.t('link_mail')} · {merchant.name}",
        text="\n\n".join(filter(None, paragraphs)) + "\n",
        sender_name=merchant.name,
    )


def _compose_text(snapshot: PaymentSnapshot, merchant: Merchant, language: Language) -> str:
    payment = snapshot.payment
    view = checkout_fields(payment, snapshot.session, merchant, snapshot.now, _NO_URLS)
    assert payment.paid_at is not None  # noqa: S101 - checked by the caller
    assert snapshot.session is not None  # noqa: S101 - checked by the caller
    paid_at = format_timestamp(payment.paid_at)
    lines = [
        ("receipt_number", view["receipt_id"]),
        ("date", f"{paid_at[:10]} {paid_at[11:16]} UTC"),
        ("item", _item_text(view, language)),
        ("receipt_order", view.get("order_id")),
        *_amount_lines(view["selected"], language),
        ("paid_with", method_name(snapshot.session.quote, language)),
        ("payment", view["payment_id"]),
    ]
    details = _format_lines(lines, language)
    thanks = language.t("receipt_thanks", merchant=_join_lines(merchant.name))
    support = f"\n{merchant.support_url}\n" if merchant.support_url else ""
    return f"{thanks}\n\n{details}\n{support}"


def _format_lines(lines: Sequence[tuple[str, str | None]], language: Language) -> str:
    return "\n".join(
        language.t("receipt_line", name=language.t(key), value=_join_lines(value))
        for key, value in lines
        if value
    )


def _amount_lines(quote: dict[str, Any], language: Language) -> list[tuple[str, str]]:
    currency: str = quote["currency"]
    return [
        ("amount", language.money(quote["amount"], currency)),
        *fee_and_tax_lines(quote, language),
        ("total", language.money(quote["total_amount"], currency)),
    ]


def _item_text(view: dict[str, Any], language: Language) -> str | None:
    product: dict[str, Any] = view.get("product", {})
    name = product.get("name")
    if name is None or "quantity" not in product:
        return name
    return language.t("quantity", name=name, quantity=product["quantity"])


def _join_lines(value: str) -> str:
    """Remove line breaks from the shop's text, so that it cannot forge lines of the receipt."""
    return " ".join(value.split())
