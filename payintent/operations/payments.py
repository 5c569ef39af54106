"""What operators do to a payment: cancel it, refund it, or end one that waits in vain."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, ClassVar
from uuid import UUID

from payintent.domain import ids
from payintent.domain.operator import Role
from payintent.domain.payment import Payment
from payintent.domain.refund import RefundStep
from payintent.operations.base import ChangeOperation, OperationContext
from payintent.operations.fields import argument, option
from payintent.operations.refunds import RefundView, read_refund_view
from payintent.operations.validation import check_text_if_given, require_payment
from payintent.payments.cancel import cancel_by_operator
from payintent.payments.create_refund import CreateRefundRequest, RefundCreator
from payintent.payments.expire import check_stranded, expire_stranded
from payintent.payments.gateway_accounts import GatewayAccounts
from payintent.payments.gateway_health import read_unavailable_channels
from payintent.storage import refunds
from payintent.storage.database import Tx
from payintent.storage.onchain import pending_transfers

_REASON_MAX = 500
_DESTINATION_MAX = 100
_PaymentId = Annotated[str, argument("Such as pay_0351NDickobV3yYH8omp8v.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelledPayment:
    id: str
    merchant_id: int
    status: str
    cancelled_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedPaymentView:
    """A payment that was ended by hand, and the case for money that may still come."""

    id: str
    merchant_id: int
    status: str
    expired_at: datetime | None
    case_id: str


class CancelPayment(ChangeOperation[CancelledPayment], frozen=True, kw_only=True):
    """Cancel a PENDING payment, as its merchant could; the merchant gets the event."""

    action: ClassVar[str] = "payment.cancel"
    needs_role: ClassVar[Role] = Role.SUPPORT
    is_destructive: ClassVar[bool] = True
    payment_id: _PaymentId

    async def changes(self, context: OperationContext) -> list[str]:
        payment = (await require_payment(context.database, self.payment_id)).payment
        return [f"{_name(payment)}, becomes CANCELLED; it is {payment.status}"]

    async def apply(self, context: OperationContext, tx: Tx) -> CancelledPayment:
        """Cancel it; raise `INVALID_PAYMENT_STATE` for every status but PENDING."""
        found = await require_payment(tx, self.payment_id)
        await cancel_by_operator(tx, found.payment.id)
        payment = (await require_payment(tx, self.payment_id)).payment
        return CancelledPayment(
            id=self.payment_id,
            merchant_id=payment.merchant_id,
            status=payment.status,
            cancelled_at=payment.cancelled_at,
        )


class RefundPayment(ChangeOperation[RefundView], frozen=True, kw_only=True):
    """Refund a payment, or a part of it, as its merchant could; a worker sends it.

    On a chain it waits for another person above the threshold, or where it goes to another
    address than its payer's.
    """

    action: ClassVar[str] = "payment.refund"
    needs_role: ClassVar[Role] = Role.FINANCE
    is_destructive: ClassVar[bool] = True
    payment_id: _PaymentId
    amount: Annotated[
        str | None, option("A part of the payment's amount; left out: all that is left.")
    ] = None
    reason: Annotated[str | None, option("What the merchant reads of it.")] = None
    destination: Annotated[
        str | None, option("Of money on a chain: where it goes, if not back to its payer.")
    ] = None
    key: Annotated[
        UUID | None, option("Makes a repetition within 24 hours harmless: it is done once.")
    ] = None

    async def changes(self, context: OperationContext) -> list[str]:
        payment = (await require_payment(context.database, self.payment_id)).payment
        amount, there = self.amount or "all that is left", self.destination or "where it came from"
        return [f"{_name(payment)}: {amount} goes back", f"to {there}"]

    async def check(self, context: OperationContext) -> None:
        check_text_if_given("reason", self.reason, _REASON_MAX)
        check_text_if_given("destination", self.destination, _DESTINATION_MAX)

    async def apply(self, context: OperationContext, tx: Tx) -> RefundView:
        """Reserve and queue it; raises what the merchant's own request does."""
        found = await require_payment(tx, self.payment_id)
        ask = CreateRefundRequest(
            merchant_id=found.payment.merchant_id,
            payment_id=found.payment.id,
            key=self.key,
            requested_by=context.who,
            amount=self.amount,
            reason=self.reason,
            destination=self.destination,
        )
        down = await read_unavailable_channels(tx)
        accounts = GatewayAccounts(context.database, context.encryption, context.gateways)
        creator = RefundCreator(database=context.database, accounts=accounts)
        refund = (await creator.create_within(tx, ask, down)).refund
        if refund.step is RefundStep.APPROVAL and context.is_agreed:
            await refunds.skip_approval(tx, refund.id)
        return await read_refund_view(tx, ids.format_id(ids.REFUND, refund.id))

    def audit_details(self, result: RefundView) -> dict[str, object]:
        return {"refund_id": result.id}


class EndPayment(ChangeOperation[EndedPaymentView], frozen=True, kw_only=True):
    """Expire a PROCESSING payment whose chain is not watched, or whose gateway is gone; by two.

    Money that is shown later pays it no more: it is that of the case which this opens.
    """

    action: ClassVar[str] = "payment.end"
    needs_role: ClassVar[Role] = Role.FINANCE
    is_destructive: ClassVar[bool] = True
    payment_id: _PaymentId

    async def needs_approval(self, context: OperationContext) -> bool:
        """Return True: the buyer may have paid, and the payment is given up."""
        return True

    async def changes(self, context: OperationContext) -> list[str]:
        payment = await require_payment(context.database, self.payment_id)
        stranded = await check_stranded(context.database, payment, context.gateways)
        found = await pending_transfers.list_session_transactions(
            context.database, stranded.session.id
        )
        seen_there = f": {len(found)} transactions of this payment were seen or posted"
        return [
            f"{_name(payment.payment)}, becomes EXPIRED; it is PROCESSING",
            stranded.reason + (seen_there if stranded.session.quote.chain else ""),
            "money that is found there later is a case's and pays nothing",
        ]

    async def check(self, context: OperationContext) -> None:
        found = await require_payment(context.database, self.payment_id)
        await check_stranded(context.database, found, context.gateways)

    async def apply(self, context: OperationContext, tx: Tx) -> EndedPaymentView:
        found = await require_payment(tx, self.payment_id)
        ended = await expire_stranded(tx, found.payment.id, context.gateways)
        return EndedPaymentView(
            id=ids.format_id(ids.PAYMENT, ended.payment.id),
            merchant_id=ended.payment.merchant_id,
            status=ended.payment.status,
            expired_at=ended.payment.expired_at,
            case_id=ids.format_id(ids.CASE, ended.case_id),
        )


def _name(payment: Payment) -> str:
    payment_id = ids.format_id(ids.PAYMENT, payment.id)
    amount = f"{payment.amount_text} {payment.currency}"
    return f"payment {payment_id} of merchant {payment.merchant_id}, {amount}"
