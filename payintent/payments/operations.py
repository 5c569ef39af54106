"""Operators' changes to a payment: cancel it, refund it, or end it if its gateway is gone."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, ClassVar

from payintent.core import ids
from payintent.core.access import Role
from payintent.db.database import Tx
from payintent.operators.fields import argument
from payintent.operators.operation import ChangeOperation, OperationContext
from payintent.payments.cancel import cancel
from payintent.payments.model import Payment
from payintent.payments.store import require_payment

PaymentId = Annotated[str, argument("Such as pay_0351NDickobV3yYH8omp8v.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelledPayment:
    id: str
    merchant_id: int
    status: str
    cancelled_at: datetime | None


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


def describe_payment(payment: Payment) -> str:
    payment_id = ids.format_id(ids.PAYMENT, payment.id)
    amount = f"{payment.amount_text} {payment.currency}"
    return f"payment {payment_id} of merchant {payment.merchant_id}, {amount}"
