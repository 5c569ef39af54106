"""Replace a payment's current session when the buyer selects or changes the method."""

from collections.abc import Sequence
from datetime import datetime

from payintent.db.database import Tx
from payintent.payments import sessions_store as session_store
from payintent.payments.model import Payment, PaymentTrigger, Session, TransitionRequest
from payintent.payments.transitions import apply_transitions


async def complete_selections(
    tx: Tx, selections: Sequence[tuple[Payment, Session]], now: datetime
) -> list[Payment]:
    """Make each opened session its payment's current session; mark replaced sessions as closing."""
    if not selections:
        return []
    await session_store.mark_open(tx, [session for _, session in selections])
    requests = [
        TransitionRequest(payment=payment, trigger=PaymentTrigger.SELECT, at=now, session=session)
        for payment, session in selections
    ]
    changed_payments = await apply_transitions(tx, requests)
    replaced_ids = [payment.session_id for payment, _ in selections if payment.session_id]
    if replaced_ids:
        await session_store.mark_closing(tx, replaced_ids, now)
    return changed_payments
