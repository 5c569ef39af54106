"""Payments that wait for an unwatched chain, ended by two operators."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, ClassVar

from payintent.domain import ids
from payintent.domain.errors import ErrorCode, RefusedError
from payintent.domain.operator import Role
from payintent.operations.base import ChangeOperation, OperationContext
from payintent.operations.fields import argument
from payintent.operations.validation import quote_input
from payintent.payments.expire import check_stranded, expire_stranded
from payintent.storage import payments
from payintent.storage.database import Executor, Tx
from payintent.storage.onchain import pending_transfers
from payintent.storage.payments import PaymentSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedPaymentView:
    """A payment that was ended by hand, and the case for money that may still come."""

    id: str
    merchant_id: int
    status: str
    expired_at: datetime | None
    case_id: str


class EndPayment(ChangeOperation[EndedPaymentView], frozen=True, kw_only=True):
    """Expire a payment whose time is over and whose chain nobody watches; needs two people.

    Money that the chain shows later pays it no more: it is that of the case which this opens.
    """

    action: ClassVar[str] = "payment.end"
    needs_role: ClassVar[Role] = Role.FINANCE
    payment_id: Annotated[str, argument("Such as pay_0351NDickobV3yYH8omp8v.")]

    async def needs_approval(self, context: OperationContext) -> bool:
        """Return True: the buyer may have paid, and the payment is given up."""
        del context
        return True

    async def changes(self, context: OperationContext) -> list[str]:
        """Describe what ends, where it was to be paid, and which transfers were seen."""
        payment = await _find(context.database, self.payment_id)
        session = await check_stranded(context.database, payment)
        found = await pending_transfers.list_session_transactions(context.database, session.id)
        amount = f"{payment.payment.amount_text} {payment.payment.currency}"
        return [
            (
                f"payment {self.payment_id} of merchant {payment.payment.merchant_id}, {amount}, "
                "becomes EXPIRED; it is PROCESSING"
            ),
            (
                f"{session.quote.chain} is not watched: {len(found)} transactions of this payment "
                "were seen or posted"
            ),
            "money that is found there later is a case's and pays nothing",
        ]

    async def check(self, context: OperationContext) -> None:
        """Refuse a payment that ends without an operator."""
        await check_stranded(context.database, await _find(context.database, self.payment_id))

    async def apply(self, context: OperationContext, tx: Tx) -> EndedPaymentView:
        """Expire it, with its event and its case."""
        found = await _find(tx, self.payment_id)
        ended = await expire_stranded(tx, context.id_generator, found.payment.id)
        return EndedPaymentView(
            id=ids.format_id(ids.PAYMENT, ended.payment.id),
            merchant_id=ended.payment.merchant_id,
            status=ended.payment.status,
            expired_at=ended.payment.expired_at,
            case_id=ids.format_id(ids.CASE, ended.case_id),
        )

    def merchant_id_of(self, result: EndedPaymentView) -> int:
        """Return the payment's merchant."""
        return result.merchant_id


async def _find(database: Executor, payment_id: str) -> PaymentSnapshot:
    parsed = ids.parse_id(ids.PAYMENT, payment_id)
    found = await payments.get(database, parsed) if parsed else None
    if found is None:
        raise RefusedError(ErrorCode.NOT_FOUND, f"no payment {quote_input(payment_id)}")
    return found
