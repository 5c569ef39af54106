"""Cancel PENDING payments for a merchant, an operator or the buyer."""

from uuid import UUID

from payintent.core.errors import ErrorCode, RefusedError
from payintent.db.database import Tx
from payintent.payments import store as payment_store
from payintent.payments.idempotency_store import claim_or_match, compute_request_fingerprint
from payintent.payments.model import (
    IdempotentRequest,
    Payment,
    PaymentStatus,
    PaymentTrigger,
    TransitionRequest,
)
from payintent.payments.transitions import apply_transitions

OPERATION = "cancel"


async def cancel_by_merchant(tx: Tx, payment: Payment, key: UUID | None) -> bool:
    """Cancel a payment and notify the merchant. Returns False for a repeated request.

    Raises `INVALID_PAYMENT_STATE` unless the payment is PENDING, and `IDEMPOTENCY_CONFLICT` if
    `key` was used to cancel a different payment. The key can be reused after an error.
    """
    if key is not None and await _is_repeat(tx, payment, key):
        return False
    await cancel(tx, payment.id)
    return True


async def cancel_by_buyer(tx: Tx, payment_id: UUID) -> None:
    """Cancel a payment without notifying the merchant (spec section 3)."""
    await cancel(tx, payment_id, PaymentTrigger.BUYER_CANCEL)


async def cancel(tx: Tx, payment_id: UUID, trigger: PaymentTrigger = PaymentTrigger.CANCEL) -> None:
    payment, now = await payment_store.lock_payment(tx, payment_id)
    if payment.status is not PaymentStatus.PENDING or payment.is_past_expiry(now):
        status = (
            PaymentStatus.EXPIRED if payment.status is PaymentStatus.PENDING else payment.status
        )
        raise RefusedError(
            ErrorCode.INVALID_PAYMENT_STATE, f"cannot cancel a payment in {status} status"
        )
    await apply_transitions(tx, [TransitionRequest(payment=payment, trigger=trigger, at=now)])


async def _is_repeat(tx: Tx, payment: Payment, key: UUID) -> bool:
    request = IdempotentRequest(
        merchant_id=payment.merchant_id,
        key=key,
        request_hash=compute_request_fingerprint(OPERATION, payment=str(payment.id)),
        raw_fields=(OPERATION, str(payment.id)),
    )
    return await claim_or_match(tx, OPERATION, request, payment.id) is not None
