"""What may be seen: a payment by its merchant, a checkout by whoever has its id."""

import json
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from payintent.domain import ids
from payintent.domain.activation import is_in_service
from payintent.domain.currencies import CURRENCIES
from payintent.domain.errors import ErrorCode, RefusedError
from payintent.domain.merchant import Merchant
from payintent.domain.payment import OPEN, Payment, PaymentStatus
from payintent.domain.quoting import QuoteCountry, resolve_quote_country
from payintent.domain.refund import Refund
from payintent.domain.restriction import Restrictions
from payintent.domain.session import Quote, Session, SessionStatus
from payintent.id_generator import IdGenerator
from payintent.payments.expire import expire_if_due, require_open_checkout
from payintent.payments.gateway_accounts import GatewayAccounts
from payintent.payments.quotes import price_methods
from payintent.payments.serialization import format_timestamp
from payintent.storage import merchants, payment_list, payment_methods, payments, refunds
from payintent.storage.database import Database
from payintent.storage.payment_list import PaymentFilter
from payintent.storage.payments import PaymentSnapshot

_POLL_MS = 2_000
_LIST_TRIES_MAX = 5  # where the elapsed leave the list, others move up, and may be elapsed too
_TEXT_MAX = {"name": 120, "detail": 500, "image": 2048, "category": 120, "vendor": 120}
_ORDER_ID_MAX = 120
_INTEGER_CHARS_MAX = 18


async def get_merchant_payment(
    database: Database, id_generator: IdGenerator, merchant_id: int, payment_id: UUID | None
) -> PaymentSnapshot:
    """Read a merchant's payment, expired first where its time is over.

    Refused: `NOT_FOUND` where nobody has it, `FORBIDDEN` where another merchant has.
    """
    snapshot = await payments.get(database, payment_id) if payment_id else None
    if snapshot is None:
        raise RefusedError(ErrorCode.NOT_FOUND, "no such payment")
    if snapshot.payment.merchant_id != merchant_id:
        raise RefusedError(ErrorCode.FORBIDDEN, "this payment belongs to another merchant")
    return await _fresh(database, id_generator, snapshot)


async def list_merchant_payments(
    database: Database, id_generator: IdGenerator, wanted: PaymentFilter
) -> tuple[list[PaymentSnapshot], tuple[datetime, UUID] | None]:
    """List a merchant's payments, and where the next page starts; the elapsed are expired first."""
    found: list[PaymentSnapshot] = []
    for _ in range(_LIST_TRIES_MAX):
        found = await payment_list.list_payments(database, replace(wanted, limit=wanted.limit + 1))
        elapsed = [snapshot.payment.id for snapshot in found if _is_elapsed(snapshot)]
        if not elapsed:
            break
        await expire_if_due(database, id_generator, *elapsed)
    page = found[: wanted.limit]
    last = page[-1].payment if len(found) > wanted.limit else None
    if PaymentStatus.EXPIRED not in wanted.statuses:
        page = [snapshot for snapshot in page if not _is_elapsed(snapshot)]
    return page, last and (last.created_at, last.id)


async def get_merchant_refund(
    database: Database, merchant_id: int, refund_id: UUID | None
) -> Refund:
    """Read what a merchant gave back of a payment.

    Refused: `NOT_FOUND` where nobody has it, `FORBIDDEN` where another merchant has. What goes back
    because of a case is the operator's: it is no part of any payment's amount.
    """
    refund = await refunds.get(database, refund_id) if refund_id else None
    if refund is None or refund.case_id is not None:
        raise RefusedError(ErrorCode.NOT_FOUND, "no such refund")
    if refund.merchant_id != merchant_id:
        raise RefusedError(ErrorCode.FORBIDDEN, "this refund belongs to another merchant")
    return refund


async def list_payment_refunds(
    database: Database, payment_id: UUID, before: UUID | None, limit: int
) -> tuple[list[Refund], UUID | None]:
    """List what was given back of a payment, newest first, and where the next page starts."""
    found = await refunds.list_page_for_payment(database, payment_id, before, limit + 1)
    page = found[:limit]
    return page, page[-1].id if len(found) > limit else None


async def find_checkout_payment(
    database: Database, id_generator: IdGenerator, checkout_id: str
) -> PaymentSnapshot:
    """Read the payment behind a checkout id; refused (`CHECKOUT_NOT_FOUND`) where there is none."""
    well_formed = ids.is_checkout_id(checkout_id)
    snapshot = await payments.find_by_checkout(database, checkout_id) if well_formed else None
    if snapshot is None:
        raise RefusedError(ErrorCode.CHECKOUT_NOT_FOUND, "no such checkout")
    return await _fresh(database, id_generator, snapshot)


async def _fresh(
    database: Database, id_generator: IdGenerator, snapshot: PaymentSnapshot
) -> PaymentSnapshot:
    if not _is_elapsed(snapshot):
        return snapshot
    await expire_if_due(database, id_generator, snapshot.payment.id)
    return await payments.get(database, snapshot.payment.id) or snapshot


def _is_elapsed(snapshot: PaymentSnapshot) -> bool:
    return snapshot.payment.status is PaymentStatus.PENDING and snapshot.payment.is_past_expiry(
        snapshot.now
    )


@dataclass(frozen=True, slots=True)
class QuoteList:
    """What is on offer for a payment in one place."""

    place: QuoteCountry
    offers: list[Quote]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuoteQuery:
    """What quotes are asked for: by the buyer, and by what the edge knows of the viewer."""

    restrictions: Restrictions
    country: str | None = None
    currency: str | None = None
    viewer_country: str | None = None


async def list_quotes(
    database: Database,
    accounts: GatewayAccounts,
    id_generator: IdGenerator,
    snapshot: PaymentSnapshot,
    query: QuoteQuery,
) -> QuoteList:
    """Price every way to pay this checkout; refused where it has ended, as selecting would be.

    A merchant that is out of service offers nothing, and a gateway that does not answer neither.
    """
    await require_open_checkout(database, id_generator, snapshot)
    merchant = await get_payment_merchant(database, snapshot.payment)
    methods = await accounts.apply_capabilities(
        await payment_methods.list_for_merchant(database, merchant.id)
    )
    usable = methods if is_in_service(merchant.activation) else []
    quote_country = resolve_quote_country(
        snapshot.payment, merchant, usable, query.country, query.viewer_country, query.restrictions
    )
    return QuoteList(
        quote_country,
        await price_methods(
            database, snapshot.payment, merchant, usable, quote_country, query.currency
        ),
    )


async def get_payment_merchant(database: Database, payment: Payment) -> Merchant:
    """Read the merchant that a payment is for."""
    merchant = await merchants.get(database, payment.merchant_id)
    assert merchant is not None  # noqa: S101 - merchants are never deleted
    return merchant


def checkout_fields(
    payment: Payment, session: Session | None, merchant: Merchant, now: datetime, checkout_base: str
) -> dict[str, Any]:
    """Give the buyer's view: of the metadata only product and order id, never the payer's id."""
    live = payment.status in OPEN and not payment.is_past_expiry(now)
    fields: dict[str, Any] = {
        "checkout_id": payment.checkout_id,
        "payment_id": ids.format_id(ids.PAYMENT, payment.id),
        "status": payment.status,
        "version": payment.version,
        "amount": payment.amount_text,
        "currency": payment.currency,
        "decimals": CURRENCIES[payment.currency].display_decimals,
        "merchant": _known(
            name=merchant.name, logo_url=merchant.logo_url, support_url=merchant.support_url
        ),
        "include_pegged_assets": payment.include_pegged_assets,
        "server_time": format_timestamp(now),
        "can": {
            "select": live,
            "change_method": live and payment.status is PaymentStatus.PROCESSING,
            "cancel": live and payment.status is PaymentStatus.PENDING,
        },
        "next_action": next_action_fields(payment, session, checkout_base),
        **_shown_metadata(payment.metadata),
    }
    if payment.status in OPEN:
        fields["expires_at"] = format_timestamp(payment.expires_at)
    if session is not None:
        fields["selected"] = quote_fields(session.quote)
    return fields | _known(
        payer_email=_masked_email(payment.payer_email),
        failure_reason=payment.failure_reason,
        receipt_id=payment.receipt_id and ids.format_id(ids.RECEIPT, payment.receipt_id),
        return_url=(session.return_url if session else None) or merchant.return_url,
    )


def quote_fields(quote: Quote) -> dict[str, Any]:
    """Give a quote as the checkout shows it."""
    price = quote.price
    return {
        "payment_method_id": quote.payment_method_id,
        "kind": quote.kind,
        "label": quote.label,
        "provider": quote.provider_name,
        "currency": price.currency,
        **_known(chain=quote.chain, token=quote.token),
        "amount": price.amount,
        "fee_mode": price.fee_mode,
        "fee_rate": price.fee_rate,
        "fee_amount": price.fee_amount,
        "estimated_tax": price.estimated_tax,
        "total_amount": price.total_amount,
    }


def next_action_fields(
    payment: Payment, session: Session | None, checkout_base: str
) -> dict[str, Any]:
    """Say what the buyer does now: go to the gateway, wait, or nothing."""
    fallback = {"fallback_url": f"{checkout_base}/{payment.checkout_id}"} if checkout_base else {}
    if payment.status is not PaymentStatus.PROCESSING or session is None:
        return {"type": "none", "none": {}, **fallback}
    if session.status is SessionStatus.OPEN and session.next_action is not None:
        action: dict[str, Any] = msgspec.json.decode(session.next_action)
        return action | fallback
    return {"type": "wait", "wait": {"poll_after_ms": _POLL_MS}, **fallback}


def _shown_metadata(metadata: str) -> dict[str, Any]:
    """Pick what a buyer may see, as text and cut to size; whatever else is in there stays here."""
    parsed: dict[str, Any] = json.loads(metadata, parse_int=_integer, parse_float=str)
    shown: dict[str, Any] = {}
    product: object = parsed.get("product")
    if isinstance(product, dict):
        shown["product"] = _product(product)  # pyright: ignore[reportUnknownArgumentType]
    order_id = parsed.get("order_id")
    if isinstance(order_id, str):
        shown["order_id"] = order_id[:_ORDER_ID_MAX]
    return shown


def _integer(digits: str) -> int | str:
    return int(digits) if len(digits) <= _INTEGER_CHARS_MAX else digits


def _product(product: dict[str, Any]) -> dict[str, Any]:
    shown: dict[str, Any] = {
        name: product[name][:longest]
        for name, longest in _TEXT_MAX.items()
        if isinstance(product.get(name), str)
    }
    quantity = product.get("quantity")
    if isinstance(quantity, int) and not isinstance(quantity, bool):
        shown["quantity"] = quantity
    return shown


def _masked_email(email: str | None) -> str | None:
    if email is None:
        return None
    name, _, host = email.partition("@")
    return f"{name[:1]}***@{host}"


def _known(**fields: object) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}
