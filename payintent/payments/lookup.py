"""Read access: a payment for its merchant, a checkout for the holder of its id."""

from dataclasses import replace
from datetime import datetime
from functools import partial
from uuid import UUID

from payintent import tracing
from payintent.domain import ids
from payintent.domain.errors import ErrorCode, RefusedError
from payintent.domain.payment import PaymentStatus
from payintent.domain.refund import Refund
from payintent.encryption import EncryptionKeyError
from payintent.payments.expire import expire_if_due
from payintent.storage import merchants, payment_list, payments, refunds
from payintent.storage.batcher import Batcher
from payintent.storage.database import Database
from payintent.storage.payment_list import PaymentFilter
from payintent.storage.payments import PaymentSnapshot
from payintent.storage.replica import ReadDatabase

_LIST_TRIES_MAX = 5  # elapsed payments leave the page, and others that follow may be elapsed too


class PaymentLookup:
    """Finds a payment for its merchant or its buyer; concurrent readers share statements."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._by_id = Batcher(
            alone=partial(payments.get, database),
            together=partial(payments.get_batch, database),
        )
        self._by_checkout = Batcher(
            alone=partial(payments.find_by_checkout, database),
            together=partial(payments.find_by_checkouts, database),
        )

    async def get_merchant_payment(
        self, merchant_id: int, payment_id: UUID | None
    ) -> PaymentSnapshot:
        """Read a merchant's payment, and expire it first if its deadline has passed.

        Raises `NOT_FOUND` if it does not exist, `FORBIDDEN` if another merchant owns it.
        """
        snapshot = await self._by_id.run(payment_id) if payment_id else None
        if snapshot is None:
            raise RefusedError(ErrorCode.NOT_FOUND, "no such payment")
        if snapshot.payment.merchant_id != merchant_id:
            owner = snapshot.payment.merchant_id
            raise await _not_theirs(self._database, merchant_id, owner, "payment")
        tracing.follow_payment(snapshot.payment.id)
        return await self._fresh(_require_readable(snapshot))

    async def find_checkout_payment(self, checkout_id: str) -> PaymentSnapshot:
        """Read the payment of a checkout id; raise `CHECKOUT_NOT_FOUND` if it does not exist."""
        well_formed = ids.is_checkout_id(checkout_id)
        snapshot = await self._by_checkout.run(checkout_id) if well_formed else None
        if snapshot is None:
            raise RefusedError(ErrorCode.CHECKOUT_NOT_FOUND, "no such checkout")
        tracing.follow_payment(snapshot.payment.id)
        return await self._fresh(_require_readable(snapshot))

    async def close(self) -> None:
        await self._by_id.close()
        await self._by_checkout.close()

    async def _fresh(self, snapshot: PaymentSnapshot) -> PaymentSnapshot:
        if not _is_elapsed(snapshot):
            return snapshot
        payment_id = snapshot.payment.id
        await expire_if_due(self._database, payment_id)
        return await payments.get(self._database, payment_id) or snapshot


async def list_merchant_payments(
    database: Database, reading: ReadDatabase, wanted: PaymentFilter
) -> tuple[list[PaymentSnapshot], tuple[datetime, UUID] | None]:
    """List a merchant's payments and the next page's start; elapsed ones are expired first.

    What is sealed and does not open is left out.
    """
    found: list[PaymentSnapshot] = []
    source = reading.page_after(wanted.before and wanted.before[0])
    for _ in range(_LIST_TRIES_MAX):
        found = await payment_list.list_payments(source, replace(wanted, limit=wanted.limit + 1))
        elapsed = [snapshot.payment.id for snapshot in found if _is_elapsed(snapshot)]
        if not elapsed:
            break
        await expire_if_due(database, *elapsed)
        source = database  # what was just changed is there
    page = found[: wanted.limit]
    last = page[-1].payment if len(found) > wanted.limit else None
    if PaymentStatus.EXPIRED not in wanted.statuses:
        page = [snapshot for snapshot in page if not _is_elapsed(snapshot)]
    page = [snapshot for snapshot in page if payments.is_readable(snapshot.payment)]
    return page, last and (last.created_at, last.id)


async def get_merchant_refund(
    database: Database, merchant_id: int, refund_id: UUID | None
) -> Refund:
    """Read a merchant's refund of a payment.

    Raises `NOT_FOUND` if it does not exist, `FORBIDDEN` if another merchant owns it. Refunds of
    cases belong to the operator and are not part of a payment's amount.
    """
    refund = await refunds.get(database, refund_id) if refund_id else None
    if refund is None or refund.case_id is not None or refund.merchant_id is None:
        raise RefusedError(ErrorCode.NOT_FOUND, "no such refund")
    if refund.merchant_id != merchant_id:
        raise await _not_theirs(database, merchant_id, refund.merchant_id, "refund")
    return refund


async def list_payment_refunds(
    database: Database, payment_id: UUID, before: UUID | None, limit: int
) -> tuple[list[Refund], UUID | None]:
    """List the refunds of a payment, newest first, and where the next page starts."""
    found = await refunds.list_page_for_payment(database, payment_id, before, limit + 1)
    page = found[:limit]
    return page, page[-1].id if len(found) > limit else None


async def _not_theirs(database: Database, asker: int, owner: int, what: str) -> RefusedError:
    """Return the refusal for another merchant's object; the other mode must look empty."""
    if await merchants.share_mode(database, asker, owner):
        return RefusedError(ErrorCode.FORBIDDEN, f"this {what} belongs to another merchant")
    return RefusedError(ErrorCode.NOT_FOUND, f"no such {what}")


def _require_readable(snapshot: PaymentSnapshot) -> PaymentSnapshot:
    """Raise `EncryptionKeyError` as `payments.get` does; the log has named the payment."""
    if payments.is_readable(snapshot.payment):
        return snapshot
    raise EncryptionKeyError(f"payment {snapshot.payment.id} does not open")


def _is_elapsed(snapshot: PaymentSnapshot) -> bool:
    return snapshot.payment.status is PaymentStatus.PENDING and snapshot.payment.is_past_expiry(
        snapshot.now
    )
