"""PENDING → CANCELLED, by the merchant or by the buyer."""

from uuid import UUID

from payintent.domain.errors import Code, Refused
from payintent.domain.payment import Payment, Status, Trigger
from payintent.id_generator import Mint
from payintent.payments.create import request_hash
from payintent.payments.transitions import Move, advance, lock
from payintent.storage import idempotency
from payintent.storage.database import Tx
from payintent.storage.idempotency import First

OPERATION = "cancel"


async def cancel(tx: Tx, mint: Mint, payment: Payment, key: UUID | None) -> bool:
    """Cancel for the merchant, who gets the event; False where this key has done so before.

    Refused: `INVALID_PAYMENT_STATE` for every state but PENDING, `IDEMPOTENCY_CONFLICT` for a key
    that cancelled another payment. A refusal rolls the key back, so it stays free.
    """
    if key is not None and not await _take(tx, payment, key):
        return False
    await _cancel(tx, mint, payment.id, Trigger.CANCEL)
    return True


async def cancel_by_buyer(tx: Tx, mint: Mint, payment_id: UUID) -> None:
    """Cancel for the buyer; no event reaches the merchant (spec section 3)."""
    await _cancel(tx, mint, payment_id, Trigger.BUYER_CANCEL)


async def _cancel(tx: Tx, mint: Mint, payment_id: UUID, trigger: Trigger) -> None:
    locked = await lock(tx, [payment_id])
    payment = locked.payments[0]
    if payment.status is not Status.PENDING or payment.elapsed(locked.now):
        status = Status.EXPIRED if payment.status is Status.PENDING else payment.status
        raise Refused(Code.INVALID_PAYMENT_STATE, f"cannot cancel a payment in {status} status")
    await advance(tx, [Move(payment=payment, trigger=trigger, at=locked.now)], mint)


async def _take(tx: Tx, payment: Payment, key: UUID) -> bool:
    first = First(
        request_hash=request_hash(OPERATION, str(payment.id)), payment_id=payment.id, country=None
    )
    if await idempotency.take(tx, payment.merchant_id, OPERATION, key, first):
        return True
    known = await idempotency.find(tx, payment.merchant_id, OPERATION, key)
    if known is None or known.request_hash != first.request_hash:
        raise Refused(Code.IDEMPOTENCY_CONFLICT, "the Idempotency-Key was used elsewhere")
    return False
