"""Trigger a webhook event on the test side by creating a test payment that ends with the event."""

from dataclasses import dataclass
from decimal import Decimal
from uuid import UUID

import msgspec

from payintent.core.errors import ErrorCode, RefusedError, UnprocessableError
from payintent.core.money import TENDER
from payintent.db.database import Database
from payintent.merchants.payable import payable_by_country
from payintent.merchants.provisioning import TEST_PROVIDER
from payintent.payments.cancel import cancel_by_merchant
from payintent.payments.create import OPERATION
from payintent.payments.idempotency_store import compute_request_fingerprint
from payintent.payments.lookup import PaymentLookup
from payintent.payments.model import CreatePaymentRequest
from payintent.payments.screen import FraudScreening
from payintent.payments.store import PaymentSnapshot
from payintent.quotes.merchant_cache import MerchantCache, MerchantSetup
from payintent.test_mode.buyer_simulator import (
    BuyerSimulator,
    SessionAction,
    TestRequest,
    enter_card,
    enter_declined_card,
)
from payintent.test_mode.model import APPROVED_CARD
from payintent.webhooks.deliveries_store import find_payment_event
from payintent.webhooks.model import EventType

#: The events that can be triggered. `payment.expired` is excluded, because a payment expires only
#: at its deadline.
TRIGGERED_EVENTS = (EventType.COMPLETED, EventType.FAILED, EventType.CANCELLED)
_AMOUNT_MINOR = Decimal(1000)
_EXPIRES_IN_S = 1800
_PAYER_UID = "test-event"
_DECLINE_CODE = "card_declined"
_NO_CURRENCY = (
    "The test card cannot be charged in any currency of the merchant's default country. Ask your "
    "payment service provider to change the country."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EventTrigger:
    database: Database
    merchants: MerchantCache
    screening: FraudScreening
    lookup: PaymentLookup
    simulator: BuyerSimulator

    async def trigger(self, merchant_id: int, event_type: EventType, key: UUID) -> UUID | None:
        """Create a test payment that ends with the event, and return the id of the event.

        A repeated call with the same `key` has no further effect. Raises `INVALID_PAYMENT_STATE` if
        the test payment ended differently, and any error from creating or paying the payment.
        """
        setup = await self.merchants.get(merchant_id)
        if setup.merchant.livemode:
            raise RefusedError(ErrorCode.FORBIDDEN, "Test events exist only on the test side.")
        created = await self.screening.create_payment(_make_request(setup, event_type, key))
        payment_id = created.payment.id
        snapshot = await self.lookup.get_merchant_payment(merchant_id, payment_id)
        await self._end(snapshot, event_type, key)
        return await find_payment_event(self.database, merchant_id, payment_id)

    async def _end(self, snapshot: PaymentSnapshot, event_type: EventType, key: UUID) -> None:
        payment = snapshot.payment
        if event_type is EventType.CANCELLED:
            async with self.database.transaction() as tx:
                await cancel_by_merchant(tx, payment, key)
            return
        value, action = _choose_card(event_type)
        request = TestRequest(
            operation="test_event", fields=(str(payment.id), value), key=key, action=action
        )
        await self.simulator.pay(snapshot, request)


def _choose_card(event_type: EventType) -> tuple[str, SessionAction]:
    if event_type is EventType.COMPLETED:
        return APPROVED_CARD, enter_card(APPROVED_CARD)
    return _DECLINE_CODE, enter_declined_card(_DECLINE_CODE)


def _make_request(setup: MerchantSetup, event_type: EventType, key: UUID) -> CreatePaymentRequest:
    merchant = setup.merchant
    currency = _choose_currency(setup)
    decimals = TENDER[currency].amount_decimals
    amount = _AMOUNT_MINOR.scaleb(-decimals)
    metadata = {"order_id": f"test-event-{key.hex[:8]}"}
    return CreatePaymentRequest(
        merchant_id=merchant.id,
        key=key,
        request_hash=compute_request_fingerprint(OPERATION, test_event=event_type),
        expires_in_s=_EXPIRES_IN_S,
        country=None,
        currency=currency,
        amount=amount,
        amount_text=f"{amount:f}",
        payer_uid=_PAYER_UID,
        payer_email=None,
        include_pegged_assets=False,
        metadata=msgspec.json.encode(metadata).decode(),
        tax_manager=merchant.tax_manager,
    )


def _choose_currency(setup: MerchantSetup) -> str:
    """Return a currency in which the test card can be charged in the merchant's country."""
    markets = tuple(
        market
        for method, market in setup.payable_methods.methods
        if method.provider == TEST_PROVIDER
    )
    by_country = payable_by_country(setup.merchant.market, markets)
    currencies = by_country.get(setup.merchant.default_country, ())
    if not currencies:
        raise UnprocessableError(_NO_CURRENCY)
    return currencies[0]
