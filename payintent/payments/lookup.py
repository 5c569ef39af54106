"""Read access: a payment for its merchant, a checkout for the holder of its id."""

from dataclasses import replace
from datetime import datetime
from uuid import UUID

from payintent.domain import ids
from payintent.domain.errors import ErrorCode, RefusedError
from payintent.domain.merchant import Merchant
from payintent.domain.payment import Payment, PaymentStatus
from payintent.domain.refund import Refund
from payintent.id_generator import IdGenerator
from payintent.payments.expire import expire_if_due
from payintent.storage import merchants, payment_list, payments, refunds
from payintent.storage.database import Database
from payintent.storage.payment_list import PaymentFilter
from payintent.storage.payments import PaymentSnapshot

_LIST_TRIES_MAX = 5  # elapsed payments leave the page, and others that follow may be elapsed too


async def get_merchant_payment(
    database: Database, id_generator: IdGenerator, merchant_id: int, payment_id: UUID | None
) -> PaymentSnapshot:
    """Read a merchant's payment, expired first where its time is over.

    Raises `NOT_FOUND` where there is none, `FORBIDDEN` where it is another merchant's.
    """
    snapshot = await payments.get(database, payment_id) if payment_id else None
    if snapshot is None:
        raise RefusedError(ErrorCode.NOT_FOUND, "no such payment")
    if snapshot.payment.merchant_id != merchant_id:
        raise RefusedError(ErrorCode.FORBIDDEN, "this payment belongs to another merchant")
    return await _fresh(database, id_generator, snapshot)


async def list_merchant_payments(
    database: Database, id_generator: IdGenerator, wanted: PaymentFilter
) -> tuple[list[PaymentSnapshot], tuple[datetime, UUID] | None]:
    """List a merchant's payments and the next page's start; elapsed ones are expired first."""
    found: list[PaymentSnapshot] = []
    for _ in range(_LIST_TRIES_MAX):
        found = await payment_list.list_payments(database, replace(wanted, limit=wanted.limit + 1))
        elapsed = [snapshot.payment.id for snapshot in found if _is_elapsed(snapshot)]
        if not elapsed:
            break
        await expire_if_due(database, id_generator, *elapsed)
    page = found[: wanted.limit]
    last = page[-1].payment if len(found) > wanted.limit else None
    if PaymentStatus.EXPIRED not in wanted.statuses:
        page = [snapshot for snapshot in page if not _is_elapsed(snapshot)]
    return page, last and (last.created_at, last.id)


async def get_merchant_refund(
    database: Database, merchant_id: int, refund_id: UUID | None
) -> Refund:
    """Read a merchant's refund of a payment.

    Raises `NOT_FOUND` where there is none, `FORBIDDEN` where it is another merchant's. The refund
    of a case is the operator's: it is no part of any payment's amount.
    """
    refund = await refunds.get(database, refund_id) if refund_id else None
    if refund is None or refund.case_id is not None:
        raise RefusedError(ErrorCode.NOT_FOUND, "no such refund")
    if refund.merchant_id != merchant_id:
        raise RefusedError(ErrorCode.FORBIDDEN, "this refund belongs to another merchant")
    return refund


async def list_payment_refunds(
    database: Database, payment_id: UUID, before: UUID | None, limit: int
) -> tuple[list[Refund], UUID | None]:
    """List the refunds of a payment, newest first, and where the next page starts."""
    found = await refunds.list_page_for_payment(database, payment_id, before, limit + 1)
    page = found[:limit]
    return page, page[-1].id if len(found) > limit else None


async def find_checkout_payment(
    database: Database, id_generator: IdGenerator, checkout_id: str
) -> PaymentSnapshot:
    """Read the payment of a checkout id; raise `CHECKOUT_NOT_FOUND` where there is none."""
    well_formed = ids.is_checkout_id(checkout_id)
    snapshot = await payments.find_by_checkout(database, checkout_id) if well_formed else None
    if snapshot is None:
        raise RefusedError(ErrorCode.CHECKOUT_NOT_FOUND, "no such checkout")
    return await _fresh(database, id_generator, snapshot)


async def _fresh(
    database: Database, id_generator: IdGenerator, snapshot: PaymentSnapshot
) -> PaymentSnapshot:
    if not _is_elapsed(snapshot):
        return snapshot
    await expire_if_due(database, id_generator, snapshot.payment.id)
    return await payments.get(database, snapshot.payment.id) or snapshot


def _is_elapsed(snapshot: PaymentSnapshot) -> bool:
    return snapshot.payment.status is PaymentStatus.PENDING and snapshot.payment.is_past_expiry(
        snapshot.now
    )


async def get_payment_merchant(database: Database, payment: Payment) -> Merchant:
    """Read the merchant that a payment is for."""
    merchant = await merchants.get(database, payment.merchant_id)
    assert merchant is not None  # noqa: S101 - merchants are never deleted
    return merchant
