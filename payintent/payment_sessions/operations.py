"""The operation that ends a payment if its gateway or chain is unavailable."""

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from payintent.core import ids
from payintent.core.access import Role
from payintent.core.texts import format_count
from payintent.db.database import Tx
from payintent.operators.operation import ChangeOperation, OperationContext
from payintent.payment_sessions import store as settlement_store
from payintent.payment_sessions.expire import expire_stranded, require_stranded_session
from payintent.payments.operations import PaymentId, describe_payment
from payintent.payments.store import require_payment


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedPayment:
    """A payment that was ended manually, and the case for money that may still arrive."""

    id: str
    merchant_id: int
    status: str
    expired_at: datetime | None
    case_id: str


class EndPayment(ChangeOperation[EndedPayment], frozen=True, kw_only=True):
    """Expire a PROCESSING payment if its chain is not watched or its gateway is unavailable.

    A second operator must approve this. The operation opens a case for money that arrives later,
    because such money does not complete the payment.
    """

    action: ClassVar[str] = "payment.end"
    needs_role: ClassVar[Role] = Role.FINANCE
    is_destructive: ClassVar[bool] = True
    payment_id: PaymentId

    async def needs_approval(self, context: OperationContext) -> bool:
        """Return True, because the buyer may have paid."""
        return True

    async def changes(self, context: OperationContext) -> list[str]:
        snapshot = await require_payment(context.database, self.payment_id)
        stranded_session = await require_stranded_session(
            context.database, snapshot, context.gateways
        )
        reason = stranded_session.reason
        if stranded_session.session.quote.chain:
            count = await settlement_store.count_transactions(
                context.database, stranded_session.session.id
            )
            reason += f": {format_count(count, 'detected or posted transaction')} for this payment"
        return [
            f"{describe_payment(snapshot.payment)}, changes from PROCESSING to EXPIRED",
            reason,
            "money that arrives later is recorded in a case and does not complete this payment",
        ]

    async def check(self, context: OperationContext) -> None:
        snapshot = await require_payment(context.database, self.payment_id)
        await require_stranded_session(context.database, snapshot, context.gateways)

    async def apply(self, context: OperationContext, tx: Tx) -> EndedPayment:
        payment = (await require_payment(tx, self.payment_id)).payment
        payment, case_id = await expire_stranded(tx, payment.id, context.gateways)
        return EndedPayment(
            id=ids.format_id(ids.PAYMENT, payment.id),
            merchant_id=payment.merchant_id,
            status=payment.status,
            expired_at=payment.expired_at,
            case_id=ids.format_id(ids.CASE, case_id),
        )
