"""What may be seen: a payment by its merchant, a checkout by whoever has its id."""

import json
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from payintent.domain import ids
from payintent.domain.activation import in_service
from payintent.domain.currencies import CURRENCIES
from payintent.domain.errors import Code, Refused
from payintent.domain.merchant import Merchant
from payintent.domain.payment import OPEN, Payment, Status
from payintent.domain.quoting import Place, resolve_place
from payintent.domain.refund import Refund
from payintent.domain.restriction import Restrictions
from payintent.domain.session import Life, Offer, Session
from payintent.id_generator import Mint
from payintent.payments.expire import expire_seen, refuse_ended
from payintent.payments.gateway_accounts import Accounts
from payintent.payments.quotes import price
from payintent.payments.serialization import timestamp
from payintent.storage import merchants, payment_list, payment_methods, payments, refunds
from payintent.storage.database import Database
from payintent.storage.payment_list import Wanted
from payintent.storage.payments import Seen

_POLL_MS = 2_000
_LIST_TRIES_MAX = 5  # where the elapsed leave the list, others move up, and may be elapsed too
_TEXT_MAX = {"name": 120, "detail": 500, "image": 2048, "category": 120, "vendor": 120}
_ORDER_ID_MAX = 120
_INTEGER_CHARS_MAX = 18


async def payment_for(
    database: Database, mint: Mint, merchant_id: int, payment_id: UUID | None
) -> Seen:
    """Read a merchant's payment, expired first where its time is over.

    Refused: `NOT_FOUND` where nobody has it, `FORBIDDEN` where another merchant has.
    """
    seen = await payments.by_id(database, payment_id) if payment_id else None
    if seen is None:
        raise Refused(Code.NOT_FOUND, "no such payment")
    if seen.payment.merchant_id != merchant_id:
        raise Refused(Code.FORBIDDEN, "this payment belongs to another merchant")
    return await _fresh(database, mint, seen)


async def payments_for(
    database: Database, mint: Mint, wanted: Wanted
) -> tuple[list[Seen], tuple[datetime, UUID] | None]:
    """List a merchant's payments, and where the next page starts; the elapsed are expired first."""
    found: list[Seen] = []
    for _ in range(_LIST_TRIES_MAX):
        found = await payment_list.listed(database, replace(wanted, limit=wanted.limit + 1))
        elapsed = [one.payment.id for one in found if _is_elapsed(one)]
        if not elapsed:
            break
        await expire_seen(database, mint, *elapsed)
    page = found[: wanted.limit]
    last = page[-1].payment if len(found) > wanted.limit else None
    if Status.EXPIRED not in wanted.statuses:
        page = [one for one in page if not _is_elapsed(one)]
    return page, last and (last.created_at, last.id)


async def refund_for(database: Database, merchant_id: int, refund_id: UUID | None) -> Refund:
    """Read what a merchant gave back of a payment.

    Refused: `NOT_FOUND` where nobody has it, `FORBIDDEN` where another merchant has. What goes back
    because of a case is the operator's: it is no part of any payment's amount.
    """
    refund = await refunds.by_id(database, refund_id) if refund_id else None
    if refund is None or refund.case_id is not None:
        raise Refused(Code.NOT_FOUND, "no such refund")
    if refund.merchant_id != merchant_id:
        raise Refused(Code.FORBIDDEN, "this refund belongs to another merchant")
    return refund


async def refunds_for(
    database: Database, payment_id: UUID, before: UUID | None, limit: int
) -> tuple[list[Refund], UUID | None]:
    """List what was given back of a payment, newest first, and where the next page starts."""
    found = await refunds.page_of_payment(database, payment_id, before, limit + 1)
    page = found[:limit]
    return page, page[-1].id if len(found) > limit else None


async def checkout_for(database: Database, mint: Mint, checkout_id: str) -> Seen:
    """Read the payment behind a checkout id; refused (`CHECKOUT_NOT_FOUND`) where there is none."""
    known = ids.is_checkout_id(checkout_id)
    seen = await payments.by_checkout(database, checkout_id) if known else None
    if seen is None:
        raise Refused(Code.CHECKOUT_NOT_FOUND, "no such checkout")
    return await _fresh(database, mint, seen)


async def _fresh(database: Database, mint: Mint, seen: Seen) -> Seen:
    if not _is_elapsed(seen):
        return seen
    await expire_seen(database, mint, seen.payment.id)
    return await payments.by_id(database, seen.payment.id) or seen


def _is_elapsed(seen: Seen) -> bool:
    return seen.payment.status is Status.PENDING and seen.payment.elapsed(seen.now)


@dataclass(frozen=True, slots=True)
class Quotes:
    """What is on offer for a payment in one place."""

    place: Place
    offers: list[Offer]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What quotes are asked for: by the buyer, and by what the edge knows of the viewer."""

    restrictions: Restrictions
    country: str | None = None
    currency: str | None = None
    viewer_country: str | None = None


async def quotes_for(
    database: Database, accounts: Accounts, mint: Mint, seen: Seen, asked: Asked
) -> Quotes:
    """Price every way to pay this checkout; refused where it has ended, as selecting would be.

    A merchant that is out of service offers nothing, and a gateway that does not answer neither.
    """
    await refuse_ended(database, mint, seen)
    merchant = await merchant_of(database, seen.payment)
    known = await accounts.usable(await payment_methods.of_merchant(database, merchant.id))
    usable = known if in_service(merchant.activation) else []
    place = resolve_place(
        seen.payment, merchant, usable, asked.country, asked.viewer_country, asked.restrictions
    )
    return Quotes(
        place, await price(database, seen.payment, merchant, usable, place, asked.currency)
    )


async def merchant_of(database: Database, payment: Payment) -> Merchant:
    """Read the merchant that a payment is for."""
    merchant = await merchants.by_id(database, payment.merchant_id)
    assert merchant is not None  # noqa: S101 - merchants are never deleted
    return merchant


def checkout_fields(
    payment: Payment, session: Session | None, merchant: Merchant, now: datetime, checkout_base: str
) -> dict[str, Any]:
    """Give the buyer's view: of the metadata only product and order id, never the payer's id."""
    live = payment.status in OPEN and not payment.elapsed(now)
    fields: dict[str, Any] = {
        "checkout_id": payment.checkout_id,
        "payment_id": ids.text(ids.PAYMENT, payment.id),
        "status": payment.status,
        "version": payment.version,
        "amount": payment.amount_text,
        "currency": payment.currency,
        "decimals": CURRENCIES[payment.currency].display_decimals,
        "merchant": _known(
            name=merchant.name, logo_url=merchant.logo_url, support_url=merchant.support_url
        ),
        "include_pegged_assets": payment.include_pegged_assets,
        "server_time": timestamp(now),
        "can": {
            "select": live,
            "change_method": live and payment.status is Status.PROCESSING,
            "cancel": live and payment.status is Status.PENDING,
        },
        "next_action": next_action_fields(payment, session, checkout_base),
        **_shown_metadata(payment.metadata),
    }
    if payment.status in OPEN:
        fields["expires_at"] = timestamp(payment.expires_at)
    if session is not None:
        fields["selected"] = offer_fields(session.offer)
    return fields | _known(
        payer_email=_masked_email(payment.payer_email),
        failure_reason=payment.failure_reason,
        receipt_id=payment.receipt_id and ids.text(ids.RECEIPT, payment.receipt_id),
        return_url=(session.return_url if session else None) or merchant.return_url,
    )


def offer_fields(offer: Offer) -> dict[str, Any]:
    """Give a quote as the checkout shows it."""
    quote = offer.quote
    return {
        "payment_method_id": offer.payment_method_id,
        "kind": offer.kind,
        "label": offer.label,
        "provider": offer.provider_name,
        "currency": quote.currency,
        **_known(chain=offer.chain, token=offer.token),
        "amount": quote.amount,
        "fee_mode": quote.fee_mode,
        "fee_rate": quote.fee_rate,
        "fee_amount": quote.fee_amount,
        "estimated_tax": quote.estimated_tax,
        "total_amount": quote.total_amount,
    }


def next_action_fields(
    payment: Payment, session: Session | None, checkout_base: str
) -> dict[str, Any]:
    """Say what the buyer does now: go to the gateway, wait, or nothing."""
    fallback = {"fallback_url": f"{checkout_base}/{payment.checkout_id}"} if checkout_base else {}
    if payment.status is not Status.PROCESSING or session is None:
        return {"type": "none", "none": {}, **fallback}
    if session.life is Life.OPEN and session.next_action is not None:
        action: dict[str, Any] = msgspec.json.decode(session.next_action)
        return action | fallback
    return {"type": "wait", "wait": {"poll_after_ms": _POLL_MS}, **fallback}


def _shown_metadata(metadata: str) -> dict[str, Any]:
    """Pick what a buyer may see, as text and cut to size; whatever else is in there stays here."""
    known: dict[str, Any] = json.loads(metadata, parse_int=_integer, parse_float=str)
    shown: dict[str, Any] = {}
    product: object = known.get("product")
    if isinstance(product, dict):
        shown["product"] = _product(product)  # pyright: ignore[reportUnknownArgumentType]
    order_id = known.get("order_id")
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
