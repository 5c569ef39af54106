"""End a payment manually if its chain or gateway is gone."""

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from payintent.core import ids
from payintent.core.access import Role
from payintent.db.database import Tx
from payintent.operators.operation import ChangeOperation, OperationContext
from payintent.payment_sessions import store as settlement_store
from payintent.payment_sessions.expire import check_stranded, expire_stranded
from payintent.payments.operations import PaymentId, describe_payment
from payintent.payments.store import require_payment


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedPaymentView:
    """A payment that was ended manually, and the case for money that may still arrive."""

    id: str
    merchant_id: int
    status: str
    expired_at: datetime | None
    case_id: str


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
            number = await settlement_store.count_transactions(
                context.database, stranded.session.id
            )
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
