"""Operators' changes to a payment: cancel it, refund it, or end it if its gateway is gone."""

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
from payintent.operations.refunds import read_refund_details
from payintent.operations.validation import check_text_if_given, require_payment
from payintent.payments.cancel import cancel
from payintent.payments.create_refund import CreateRefundRequest, RefundCreator
from payintent.payments.expire import check_stranded, expire_stranded
from payintent.payments.gateway_accounts import GatewayAccounts
from payintent.payments.gateway_health import read_unavailable_channels
from payintent.storage import refunds, settlements
from payintent.storage.database import Tx
from payintent.storage.refund_reviews import RefundDetails

_REASON_MAX = 500
_DESTINATION_MAX = 100
PaymentId = Annotated[str, argument("Such as pay_0351NDickobV3yYH8omp8v.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelledPayment:
    id: str
    merchant_id: int
    status: str
    cancelled_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedPaymentView:
    """A payment that was ended manually, and the case for money that may still arrive."""

    id: str
    merchant_id: int
    status: str
    expired_at: datetime | None
    case_id: str


class CancelPayment(ChangeOperation[CancelledPayment], frozen=True, kw_only=True):
    """Cancel a PENDING payment on behalf of its merchant; this sends the event."""

    action: ClassVar[str] = "payment.cancel"
    needs_role: ClassVar[Role] = Role.SUPPORT
    is_destructive: ClassVar[bool] = True
    payment_id: PaymentId

    async def changes(self, context: OperationContext) -> list[str]:
        payment = (await require_payment(context.database, self.payment_id)).payment
        return [f"{describe_payment(payment)}, becomes CANCELLED; it is {payment.status}"]

    async def apply(self, context: OperationContext, tx: Tx) -> CancelledPayment:
        """Raise `INVALID_PAYMENT_STATE` for every status but PENDING."""
        payment = (await require_payment(tx, self.payment_id)).payment
        await cancel(tx, payment.id)
        payment = (await require_payment(tx, self.payment_id)).payment
        return CancelledPayment(
            id=self.payment_id,
            merchant_id=payment.merchant_id,
            status=payment.status,
            cancelled_at=payment.cancelled_at,
        )


class RefundPayment(ChangeOperation[RefundDetails], frozen=True, kw_only=True):
    """Refund a payment in full or in part on behalf of its merchant; a worker sends the refund.

    On a chain, it needs a second operator if it exceeds the threshold or if its destination is not
    the payer's address.
    """

    action: ClassVar[str] = "payment.refund"
    needs_role: ClassVar[Role] = Role.FINANCE
    is_destructive: ClassVar[bool] = True
    payment_id: PaymentId
    amount: Annotated[
        str | None, option("Part of the payment's amount; by default, the remaining amount.")
    ] = None
    reason: Annotated[str | None, option("The reason that the merchant sees.")] = None
    destination: Annotated[
        str | None, option("On a chain: the receiving address, if not the payer's.")
    ] = None
    key: Annotated[
        UUID | None, option("Idempotency key: a repeated request within 24 hours has no effect.")
    ] = None

    async def changes(self, context: OperationContext) -> list[str]:
        payment = (await require_payment(context.database, self.payment_id)).payment
        amount = self.amount or "the remaining amount"
        destination = self.destination or "the original source"
        return [f"{describe_payment(payment)}: refund {amount}", f"to {destination}"]

    async def check(self, context: OperationContext) -> None:
        check_text_if_given("reason", self.reason, _REASON_MAX)
        check_text_if_given("destination", self.destination, _DESTINATION_MAX)

    async def apply(self, context: OperationContext, tx: Tx) -> RefundDetails:
        """Reserve and queue the refund; raises the errors of the merchant's own request."""
        payment = (await require_payment(tx, self.payment_id)).payment
        request = CreateRefundRequest(
            merchant_id=payment.merchant_id,
            payment_id=payment.id,
            key=self.key,
            requested_by=context.who,
            amount=self.amount,
            reason=self.reason,
            destination=self.destination,
        )
        unavailable_channels = await read_unavailable_channels(tx)
        accounts = GatewayAccounts(context.database, context.encryption, context.gateways)
        creator = RefundCreator(database=context.database, accounts=accounts)
        refund = (await creator.create_within(tx, request, unavailable_channels)).refund
        if refund.step is RefundStep.APPROVAL and context.is_agreed:
            await refunds.skip_approval(tx, refund.id)
        return await read_refund_details(tx, ids.format_id(ids.REFUND, refund.id))

    def audit_details(self, result: RefundDetails) -> dict[str, object]:
        return {"refund_id": result.id}


class EndPayment(ChangeOperation[EndedPaymentView], frozen=True, kw_only=True):
    """Expire a PROCESSING payment if its chain is not watched or its gateway is gone.

    It needs a second operator. Money that arrives later no longer pays the payment; it belongs to
    the case that this opens.
    """

    action: ClassVar[str] = "payment.end"
    needs_role: ClassVar[Role] = Role.FINANCE
    is_destructive: ClassVar[bool] = True
    payment_id: PaymentId

    async def needs_approval(self, context: OperationContext) -> bool:
        """Return True, because the buyer may have paid."""
        return True

    async def changes(self, context: OperationContext) -> list[str]:
        payment = await require_payment(context.database, self.payment_id)
        stranded = await check_stranded(context.database, payment, context.gateways)
        reason = stranded.reason
        if stranded.session.quote.chain:
            number = await settlements.count_transactions(context.database, stranded.session.id)
            reason += f": {number} transactions of this payment were seen or posted"
        return [
            f"{describe_payment(payment.payment)}, becomes EXPIRED; it is PROCESSING",
            reason,
            "money that arrives later belongs to a case and does not pay this payment",
        ]

    async def check(self, context: OperationContext) -> None:
        payment = await require_payment(context.database, self.payment_id)
        await check_stranded(context.database, payment, context.gateways)

    async def apply(self, context: OperationContext, tx: Tx) -> EndedPaymentView:
        payment = (await require_payment(tx, self.payment_id)).payment
        ended_payment = await expire_stranded(tx, payment.id, context.gateways)
        return EndedPaymentView(
            id=ids.format_id(ids.PAYMENT, ended_payment.payment.id),
            merchant_id=ended_payment.payment.merchant_id,
            status=ended_payment.payment.status,
            expired_at=ended_payment.payment.expired_at,
            case_id=ids.format_id(ids.CASE, ended_payment.case_id),
        )


def describe_payment(payment: Payment) -> str:
    payment_id = ids.format_id(ids.PAYMENT, payment.id)
    amount = f"{payment.amount_text} {payment.currency}"
    return f"payment {payment_id} of merchant {payment.merchant_id}, {amount}"
