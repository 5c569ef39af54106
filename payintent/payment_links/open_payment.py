"""Create a payment for a buyer who uses a payment link."""

import time
from dataclasses import dataclass, field
from functools import partial
from uuid import UUID

import msgspec

from payintent.core import ids
from payintent.core.addresses import parse_web_origin
from payintent.core.ids import UUID_CHARS, to_base62
from payintent.db.database import Database, Tx, get_current_time
from payintent.merchants.access import MerchantDirectory
from payintent.merchants.access_store import AuthenticatedMerchant
from payintent.merchants.limits import MerchantRateLimiter
from payintent.payment_links import store as link_store
from payintent.payment_links.model import LinkClosedError, LinkState, PaymentLink, choose_amount
from payintent.payments import store as payment_store
from payintent.payments.cancel import cancel_by_buyer
from payintent.payments.create import CreatedPayment, InvalidCreateRequest, replay_invalid_request
from payintent.payments.model import OPEN, UNPAID, Payment, PaymentStatus
from payintent.payments.schemas import CreatePaymentBody, parse_create_request
from payintent.payments.screen import FraudScreening
from payintent.runtime.caches import TtlMap
from payintent.runtime.encryption import Encryption
from payintent.runtime.settings import Settings

_BUYER_DIGEST_BYTES = 16
USED_UP_CACHE_S = 1.0
_USED_UP_CACHE_SIZE = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkOrder:
    """A form that a buyer submitted on a link's page."""

    link: PaymentLink
    form_id: str  # identifies the form, so that a second submission has no effect
    entered_amount: str | None
    previous_payment: Payment | None  # the same browser's last payment with the link


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkPayments:
    database: Database
    settings: Settings
    encryption: Encryption
    merchants: MerchantDirectory
    limiter: MerchantRateLimiter
    screening: FraudScreening
    used_up_links: TtlMap[UUID, bool] = field(
        default_factory=lambda: TtlMap(USED_UP_CACHE_S, _USED_UP_CACHE_SIZE, time.monotonic)
    )

    async def find_state(self, link: PaymentLink) -> LinkState:
        """Return the state for the link's page.

        `USED_UP` is cached for a second, because checking a link with thousands of uses is slow if
        each use has a payment.
        """
        now = await get_current_time(self.database)
        is_used_up = self.used_up_links.get(link.id)
        if is_used_up is None:
            is_used_up = not await link_store.has_free_slot(self.database, link.id)
            if is_used_up:
                self.used_up_links.set(link.id, True)
        return link.find_state(now, is_used_up=is_used_up)

    async def open_payment(self, order: LinkOrder) -> Payment:
        """Return the payment for an order: the browser's open payment, or a new payment.

        An open payment with a different amount is replaced if no method has been selected. Raises
        `LinkClosedError` if the link does not accept another payment, `INVALID_AMOUNT`,
        `FraudDeniedError`, and the errors of `POST /payments`.
        """
        link = order.link
        amount = choose_amount(
            link.terms,
            order.entered_amount,
            self.settings.amount_min,
            self.settings.amount_max,
        )
        previous = order.previous_payment
        if (
            previous is not None
            and previous.status in OPEN
            and (previous.amount_text == amount or not await self._give_up(link, previous.id))
        ):
            return previous
        return (await self._create(order, amount)).payment

    async def _give_up(self, link: PaymentLink, payment_id: UUID) -> bool:
        """Cancel a payment if no method has been selected; return whether it has ended unpaid.

        Another submission of the form may already have cancelled it. If the link has closed, the
        payment stays open, and `LinkClosedError` is raised.
        """
        async with self.database.transaction() as tx:
            payment, now = await payment_store.lock_payment(tx, payment_id)
            if payment.status is not PaymentStatus.PENDING:
                return payment.status in UNPAID
            closed_state = link.find_closed_state(now)
            if closed_state is not None:
                raise LinkClosedError(closed_state)
            if not payment.is_past_expiry(now):
                await cancel_by_buyer(tx, payment_id)
            return True

    async def _create(self, order: LinkOrder, amount: str) -> CreatedPayment:
        link = order.link
        merchant = await self.merchants.get(link.merchant_id)
        await self.limiter.take_link_token(merchant)
        previous_id = order.previous_payment and order.previous_payment.checkout_id
        digest = self.encryption.digest(
            f"payment link:{link.id}:{order.form_id}:{amount}:{previous_id}"
        )
        # Practically never equal to a key that the merchant has chosen.
        key = UUID(bytes=digest[:_BUYER_DIGEST_BYTES])
        body = CreatePaymentBody(
            currency=link.terms.currency,
            amount=msgspec.Raw(msgspec.json.encode(amount)),
            payer_uid=_name_buyer(order, digest),
            metadata=msgspec.Raw(msgspec.json.encode(_make_metadata(link))),
            return_url=_keep_allowed_url(link.terms.return_url, merchant),
            cancel_url=_keep_allowed_url(link.terms.cancel_url, merchant),
        )
        request = parse_create_request(key, body, merchant, self.settings)
        if isinstance(request, InvalidCreateRequest):
            return await replay_invalid_request(self.database, request)
        return await self.screening.create_payment(request, partial(_take_slot, link.id))


async def _take_slot(link_id: UUID, tx: Tx, payment_id: UUID) -> None:
    """Take a slot for a new payment. Raises `LinkClosedError` if the link has closed."""
    link = await link_store.lock(tx, link_id)
    if not await link_store.take_new_slot(
        tx, link_id, payment_id
    ) and not await link_store.take_released_slot(tx, link_id, payment_id):
        raise LinkClosedError(link.find_state(await get_current_time(tx), is_used_up=True))


def _name_buyer(order: LinkOrder, digest: bytes) -> str:
    """Return the buyer id of the browser's previous payment, or a new id derived from the form."""
    if order.previous_payment is not None:
        return order.previous_payment.payer_uid
    return f"link_{to_base62(int.from_bytes(digest[_BUYER_DIGEST_BYTES:]), UUID_CHARS)}"


def _keep_allowed_url(url: str | None, merchant: AuthenticatedMerchant) -> str | None:
    """Return the URL unless the merchant has removed its origin since the link was created."""
    is_allowed = url is not None and parse_web_origin(url) in merchant.return_origins
    return url if is_allowed else None


def _make_metadata(link: PaymentLink) -> dict[str, object]:
    product = {"name": link.terms.title, "detail": link.terms.description}
    metadata: dict[str, object] = {
        "payment_link_id": ids.format_id(ids.PAYMENT_LINK, link.id),
        "product": {name: value for name, value in product.items() if value is not None},
    }
    return metadata | ({"order_id": link.terms.order_id} if link.terms.order_id else {})
