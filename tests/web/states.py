"""Create every page and state of the checkout."""

import json
from decimal import Decimal
from typing import Any
from uuid import uuid4

from payintent.gateways.port import FailureReason, SessionReport
from payintent.merchants.model import TaxManager
from payintent.payments.cancel import cancel_by_buyer
from payintent.payments.model import Payment
from payintent.refunds import store as refund_store
from payintent.refunds.create import CreateRefundRequest
from payintent.refunds.model import RefundStatus
from tests.support.fakes import captured, declined
from tests.support.timeouts import wait_until
from tests.support.world import World
from tests.web import deposit_states, link_states
from tests.web.gallery import BANNED, PRODUCT, Gallery
from tests.web.state_registry import STATES, Visit, state
from tests.web.state_registry import embedded as _embedded
from tests.web.state_registry import visit_of as _of

__all__ = ["MAIN", "STATES", "Visit", "deposit_states", "link_states"]

_LEASE_S = 60.0
_EMAIL = "mai@example.com"
_LONG = json.dumps(
    {
        "order_id": "0123456789" * 8,
        "product": {
            "name": "Donaudampfschifffahrt" * 5,
            "detail": "long " * 99,
            "vendor": "Rindfleischetikettierung" * 4,
            "quantity": 1000,
        },
    }
)


#: States that are also checked in a right-to-left language.
MAIN = (
    *("choose-shop", "choose-taxed", "redirect", "wallet-none", "deposit-partial", "paid-shop"),
    *("refund-address-invalid", "receipt", "link-open-amount"),
)


# Method selection


@state
async def choose(gallery: Gallery) -> Visit:
    return _of(await gallery.plain.create(), texts=("choose",))


@state
async def choose_shop(gallery: Gallery) -> Visit:
    """With a product, image, logo, email address, return link, and help."""
    payment = await gallery.shop.create(metadata=PRODUCT % gallery.origin, payer_email=_EMAIL)
    return _of(payment, texts=("choose",))


@state
async def choose_test(gallery: Gallery) -> Visit:
    """In test mode."""
    payment = await (await gallery.test_side()).create(metadata=PRODUCT % gallery.origin)
    return _of(payment, texts=("test", "method_test_card"))


@state
async def choose_taxed(gallery: Gallery) -> Visit:
    """With a fee and a tax in addition to the amount."""
    payment = await gallery.taxed.create(tax_manager=TaxManager.SERVICE)
    return _of(payment, texts=("fee", "tax"))


@state
async def choose_tokens(gallery: Gallery) -> Visit:
    ground = await gallery.ground()
    return _of(await ground.world.create(**_USD), texts=("group_onchain",))


@state
async def choose_everything(gallery: Gallery) -> Visit:
    """Ten methods of all kinds, including a token on two chains."""
    world = await gallery.everything()
    return _of(await world.create(**_USD), texts=("group_onchain", "group_bank", "choose_chain"))


@state
async def choose_named(gallery: Gallery) -> Visit:
    """Methods with well-known names, if the buyer has already used TrueMoney."""
    payment = await (await gallery.named()).create()
    return _of(
        payment,
        headers={"Cookie": "payintent-method=truemoney"},
        texts=("last_used", "group_wallet"),
    )


@state
async def choose_nothing(gallery: Gallery) -> Visit:
    return _of(await gallery.bare.create(), texts=("nothing_here",))


@state
async def choose_suspended(gallery: Gallery) -> Visit:
    """The merchant was suspended after the payment was created."""
    return _of(await gallery.suspended.create(), texts=("out_of_service",))


@state
async def choose_long(gallery: Gallery) -> Visit:
    """The longest possible strings, and the largest possible amount."""
    amount = {"amount": Decimal(10**9), "amount_text": "1000000000.00", "currency": "IDR"}
    return _of(await gallery.shop.create(metadata=_LONG, **amount), texts=("choose",))


@state
async def choose_embedded(gallery: Gallery) -> Visit:
    """In a frame on the shop's page."""
    payment = await gallery.shop.create(metadata=PRODUCT % gallery.origin)
    return _of(payment, _embedded(gallery), texts=("choose",))


@state
async def problem(gallery: Gallery) -> Visit:
    """A selection has failed."""
    payment = await gallery.broken.create()
    return _of(payment, status=502, posts="form.methods button", texts=("problem_upstream",))


# Payments in progress


@state
async def redirect(gallery: Gallery) -> Visit:
    return await _create_in_progress(gallery, "redirect", texts=("continue", "choose_other"))


@state
async def redirect_embedded(gallery: Gallery) -> Visit:
    return await _create_in_progress(gallery, "redirect", _embedded(gallery), texts=("continue",))


@state
async def qr(gallery: Gallery) -> Visit:
    return await _create_in_progress(gallery, "qr", texts=("qr_how",))


@state
async def redirect_taxed(gallery: Gallery) -> Visit:
    """In progress, with a fee and a tax."""
    payment = await gallery.taxed.create(tax_manager=TaxManager.SERVICE)
    await gallery.taxed.select(payment, gallery.taxed.card)
    return _of(payment, texts=("fee", "tax"))


@state
async def form(gallery: Gallery) -> Visit:
    return await _create_in_progress(gallery, "form", texts=("continue",))


@state
async def card(gallery: Gallery) -> Visit:
    return await _create_in_progress(gallery, "card", ready="iframe, [data-needs-script]")


@state
async def card_away(gallery: Gallery) -> Visit:
    return await _create_in_progress(
        gallery, "card-away", ready="[data-status].problem, [data-needs-script]"
    )


@state
async def card_embedded(gallery: Gallery) -> Visit:
    return await _create_in_progress(gallery, "card", _embedded(gallery))


@state
async def wait(gallery: Gallery) -> Visit:
    return await _create_in_progress(gallery, "wait", texts=("waiting",))


@state
async def time_over(gallery: Gallery) -> Visit:
    """The deadline has passed, and the service waits for the gateway's response."""
    return _of(gallery.overdue["started"])


@state
async def wallet_none(gallery: Gallery) -> Visit:
    ground = await gallery.ground()
    bill, _ = await ground.bill("USDT")
    return _of(bill, ready="[data-no-wallet]:not([hidden]), [data-needs-script]")


@state
async def wallet_found(gallery: Gallery) -> Visit:
    ground = await gallery.ground()
    bill, _ = await ground.bill("USDT")
    return _of(bill, ready="[data-wallets] button, [data-needs-script]", wallet=True)


@state
async def wallet_embedded(gallery: Gallery) -> Visit:
    ground = await gallery.ground()
    bill, _ = await ground.bill("USDT")
    return _of(bill, _embedded(gallery), wallet=True)


@state
async def wallet_native(gallery: Gallery) -> Visit:
    """A chain's native coin, which needs no approval."""
    ground = await gallery.ground()
    bill, _ = await ground.bill("NATIVED")
    return _of(bill, ready="[data-wallets] button, [data-needs-script]", wallet=True)


@state
async def wallet_seen(gallery: Gallery) -> Visit:
    """The payment is in a block that is not final."""
    ground = await gallery.ground()
    bill, session = await ground.bill("NATIVED")
    await ground.pay(session)
    await ground.catch_up()
    return _of(bill, ready="[data-status]:not(:empty)")


# Results


@state
async def paid(gallery: Gallery) -> Visit:
    return _of(await _create_paid(gallery.plain), texts=("paid", "receipt_open"))


@state
async def paid_shop(gallery: Gallery) -> Visit:
    """With a link back to the shop."""
    return _of(await _create_paid_at_shop(gallery), texts=("paid", "receipt_open"))


@state
async def paid_embedded(gallery: Gallery) -> Visit:
    return _of(await _create_paid_at_shop(gallery), _embedded(gallery), texts=("paid",))


@state
async def failed_declined(gallery: Gallery) -> Visit:
    return await _create_failed(gallery, FailureReason.DECLINED)


@state
async def failed_reverted(gallery: Gallery) -> Visit:
    return await _create_failed(gallery, FailureReason.TX_REVERTED)


@state
async def failed_amount(gallery: Gallery) -> Visit:
    return await _create_failed(gallery, FailureReason.AMOUNT_MISMATCH)


@state
async def failed_token(gallery: Gallery) -> Visit:
    return await _create_failed(gallery, FailureReason.TOKEN_MISMATCH)


@state
async def failed_timeout(gallery: Gallery) -> Visit:
    return await _create_failed(gallery, FailureReason.ONCHAIN_TIMEOUT)


@state
async def failed_unknown(gallery: Gallery) -> Visit:
    return await _create_failed(gallery, FailureReason.UNKNOWN)


@state
async def expired(gallery: Gallery) -> Visit:
    return _of(gallery.overdue["waiting"], texts=("expired",))


@state
async def cancelled(gallery: Gallery) -> Visit:
    world = gallery.shop
    payment = await world.create()
    async with world.database.transaction() as tx:
        await cancel_by_buyer(tx, payment.id)
    return _of(payment, texts=("cancelled",))


@state
async def partly_refunded(gallery: Gallery) -> Visit:
    payment = await _create_refunded(gallery.plain, "90.00")
    return _of(payment, texts=("partly_refunded",))


@state
async def refunded(gallery: Gallery) -> Visit:
    return _of(await _create_refunded(gallery.plain, None), texts=("refunded",))


@state
async def receipt(gallery: Gallery) -> Visit:
    return _of(
        await _create_paid_at_shop(gallery), "/receipt", texts=("receipt", "receipt_payment")
    )


@state
async def receipt_taxed(gallery: Gallery) -> Visit:
    payment = await _create_paid(gallery.taxed, tax_manager=TaxManager.SERVICE)
    return _of(payment, "/receipt", texts=("receipt", "fee", "tax"))


@state
async def receipt_refunded(gallery: Gallery) -> Visit:
    payment = await _create_refunded(gallery.plain, "90.00")
    return _of(payment, "/receipt", texts=("receipt", "refunded"))


# Errors


@state
async def blocked(gallery: Gallery) -> Visit:
    """Fraud screening denies the payment, without details."""
    return _of(await gallery.plain.create(payer_uid=BANNED), texts=("blocked",))


@state
async def not_found(gallery: Gallery) -> Visit:
    del gallery
    return Visit(path="/c/cs_0000000000000000", status=404, texts=("sorry_not_found",))


@state
async def too_many(gallery: Gallery) -> Visit:
    """The buyer's address has exceeded its request limit."""
    payment = await gallery.plain.create()
    headers = {"X-Forwarded-For": "203.0.113.7"}
    return _of(payment, status=429, headers=headers, texts=("sorry_many",))


_USD: dict[str, Any] = {"currency": "USD", "amount": Decimal("25.50"), "amount_text": "25.50"}


async def _create_in_progress(gallery: Gallery, way: str, more: str = "", **fields: Any) -> Visit:
    payment = await gallery.shop.create()
    await gallery.shop.select(payment, gallery.methods[way])
    return _of(payment, more, **fields)


async def _create_paid_at_shop(gallery: Gallery) -> Payment:
    return await _create_paid(
        gallery.shop,
        gallery.methods["card"],
        metadata=PRODUCT % gallery.origin,
        payer_email=_EMAIL,
    )


async def _create_paid(world: World, method: int | None = None, **changes: Any) -> Payment:
    payment = await world.create(**changes)
    session = (await world.select(payment, method)).session
    offer = session.quote
    capture = captured(offer.total_minor, offer.price.currency, reference=f"cap-{payment.id}")
    return await world.report(payment, session.id, capture)


async def _create_failed(gallery: Gallery, reason: FailureReason) -> Visit:
    payment = await gallery.shop.create()
    session = (await gallery.shop.select(payment, gallery.methods["card"])).session
    report: SessionReport = declined(reason)
    return _of(await gallery.shop.report(payment, session.id, report), texts=("failed",))


async def _create_refunded(world: World, amount: str | None) -> Payment:
    """Refund a payment completely or in part, immediately."""
    payment = await _create_paid(world)
    ask = CreateRefundRequest(
        merchant_id=payment.merchant_id, payment_id=payment.id, key=uuid4(), amount=amount
    )
    refund = (await world.service.refund_creator.create(ask)).refund

    async def is_done() -> bool:
        for due_refund in await refund_store.claim_due(world.database, 100, _LEASE_S, []):
            await world.service.refund_sender.process(due_refund)
        stored_refund = await refund_store.get(world.database, refund.id)
        return stored_refund is not None and stored_refund.status is RefundStatus.SUCCEEDED

    await wait_until(is_done, "the gateway refunds the payment")
    return payment
