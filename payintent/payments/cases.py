"""Opens cases: money or a contradiction that needs manual review."""

from uuid import UUID

from payintent.domain.case import CaseKind, MoneyOrigin
from payintent.domain.payment import Payment
from payintent.domain.refund import Refund
from payintent.payments.transitions import lock_payments
from payintent.storage import cases
from payintent.storage.cases import NewCase
from payintent.storage.database import Database, Tx


def session_origin(payment: Payment, session_id: UUID) -> MoneyOrigin:
    return MoneyOrigin(
        merchant_id=payment.merchant_id, payment_id=payment.id, session_id=session_id
    )


def refund_origin(refund: Refund) -> MoneyOrigin:
    return MoneyOrigin(
        merchant_id=refund.merchant_id,
        payment_id=refund.payment_id,
        session_id=None,  # the capture leads to it
    )


async def open_case(
    tx: Tx,
    kind: CaseKind,
    origin: MoneyOrigin,
    *,
    capture_id: UUID | None = None,
    refund_id: UUID | None = None,
    subject: str | None = None,
    note: str = "",
) -> UUID | None:
    """Open a case; return None if such a case exists for the same objects."""
    case = NewCase(
        id=tx.id_generator.new_id(),
        kind=kind,
        origin=origin,
        capture_id=capture_id,
        refund_id=refund_id,
        subject=subject,
        note=note,
    )
    return case.id if await cases.open_cases(tx, [case]) else None


async def hand_over_to_operator(database: Database, payment_id: UUID, session_id: UUID) -> None:
    """Open a case, once, for a session whose chain does not end it; the payment stays open."""
    async with database.transaction() as tx:
        locked_payments = await lock_payments(tx, [payment_id])
        origin = session_origin(locked_payments.payments[0], session_id)
        await open_case(tx, CaseKind.RECONCILIATION, origin)
