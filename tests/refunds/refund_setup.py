"""Create, process, report and read refunds in tests, without HTTP."""

from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

from payintent.callbacks.receive import CallbackResult
from payintent.gateways.port import GatewayRefundState, RefundReport, VerifiedCallback
from payintent.merchants.operations import SetMerchantProfile
from payintent.payments.model import Payment
from payintent.refunds import store as refund_store
from payintent.refunds.create import CreateRefundRequest
from payintent.refunds.model import Refund
from tests.support.fakes import captured
from tests.support.world import World

DONE = RefundReport(state=GatewayRefundState.DONE, reference="re_1")
PENDING = RefundReport(state=GatewayRefundState.PENDING, reference="re_1")
DECLINED = RefundReport(state=GatewayRefundState.DECLINED)
ABSENT = RefundReport(state=GatewayRefundState.ABSENT)
_LEASE_S = 60.0


async def create_paid_payment(world: World, **changes: Any) -> Payment:
    """Create a payment and pay it with its own capture."""
    payment = await world.create(**changes)
    session = (await world.select(payment)).session
    offer = session.quote
    exact = captured(offer.total_minor, offer.price.currency, reference=f"cap-{payment.id}")
    return await world.report(payment, session.id, exact)


async def request_refund(
    world: World, payment: Payment, amount: object = None, key: UUID | None = None, **more: Any
) -> Refund:
    """Request a refund as the merchant; without an amount, refund the whole remainder."""
    request = CreateRefundRequest(
        merchant_id=payment.merchant_id,
        payment_id=payment.id,
        key=key or uuid4(),
        amount=amount,
        **more,
    )
    return (await world.service.refund_creator.create(request)).refund


async def claim_due_refunds(world: World) -> list[refund_store.DueRefund]:
    """Claim the refunds that are due now."""
    return await refund_store.claim_due(world.database, 100, _LEASE_S, [])


async def process_due_refunds(world: World) -> int:
    """Process all due refunds like a worker; return their number."""
    refunds = await claim_due_refunds(world)
    for item in refunds:
        await world.service.refund_sender.process(item)
    return len(refunds)


async def send_refund_callback(
    world: World,
    refund_id: UUID,
    report: RefundReport = DONE,
    *,
    name: str | None = None,
    account_id: int | None = None,
) -> CallbackResult:
    """Send the provider's callback about a refund."""
    service = world.service
    callback = VerifiedCallback(id=name or uuid4().hex, refund_id=refund_id, refund=report)
    account_id = account_id or world.account_id
    return await service.callback_receiver.receive(account_id, callback, b"raw body")


async def read_refund(world: World, refund: Refund) -> Refund:
    stored_refund = await refund_store.get(world.database, refund.id)
    assert stored_refund is not None
    return stored_refund


async def seconds_until_due(world: World, refund: Refund) -> float | None:
    """Return the seconds until a refund is due; None if it is not scheduled."""
    [row] = await world.rows(
        "SELECT extract(epoch FROM next_at - clock())::float8 AS wait FROM refund WHERE id = $1",
        refund.id,
    )
    return row["wait"]


@dataclass(frozen=True)
class Books:
    """The status and amounts of a payment, and the amounts of its capture."""

    status: str
    refunded: str
    reserved: str
    capture_refunded: int
    capture_reserved: int


async def read_books(world: World, payment: Payment) -> Books:
    """Read the amounts of a paid payment, without trailing zeros."""
    [row] = await world.rows(
        """
        SELECT p.status, p.refunded_amount, p.reserved_amount, c.refunded_minor, c.reserved_minor
        FROM payment p
        JOIN capture c ON c.payment_id = p.id AND c.credited
        WHERE p.id = $1
        """,
        payment.id,
    )
    return Books(
        row["status"],
        _plain(row["refunded_amount"]),
        _plain(row["reserved_amount"]),
        int(row["refunded_minor"]),
        int(row["reserved_minor"]),
    )


def _plain(value: Decimal) -> str:
    return f"{value.normalize():f}"


async def set_auto_refund(world: World, *, on: bool) -> None:
    """Set whether the merchant's unassigned money is refunded automatically."""
    await world.perform(SetMerchantProfile(merchant_id=world.merchant_id, auto_refund=on))
