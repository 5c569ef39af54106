"""Read payments for merchants and buyers. Payments past their deadline are expired first."""

from dataclasses import replace
from functools import partial
from uuid import UUID

from payintent.core import ids
from payintent.core.errors import ErrorCode, NotFoundError, RefusedError
from payintent.db.batcher import Batcher
from payintent.db.database import Database
from payintent.db.replica import ReadDatabase
from payintent.merchants import store as merchant_store
from payintent.payments import list_store
from payintent.payments import store as payment_store
from payintent.payments.expire import expire_if_due
from payintent.payments.list_store import PaymentFilter, Position
from payintent.payments.model import PaymentStatus
from payintent.payments.store import PaymentSnapshot
from payintent.runtime import tracing
from payintent.runtime.encryption import EncryptionKeyError

_LIST_ATTEMPTS_MAX = 5  # payments that replace expired payments on a page may also be due


class PaymentLookup:
    """Reads payments. Concurrent calls share statements."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._by_id = Batcher(
            process_item=partial(payment_store.get, database),
            process_batch=partial(payment_store.get_batch, database),
        )
        self._by_checkout = Batcher(
            process_item=partial(payment_store.find_by_checkout, database),
            process_batch=partial(payment_store.find_by_checkouts, database),
        )

    async def get_merchant_payment(
        self, merchant_id: int, payment_id: UUID | None
    ) -> PaymentSnapshot:
        """Return a merchant's payment.

        Raises `NOT_FOUND` if it does not exist, and `FORBIDDEN` if it belongs to another merchant.
        """
        snapshot = await self._by_id.run(payment_id) if payment_id else None
        if snapshot is None:
            raise NotFoundError("no such payment")
        if snapshot.payment.merchant_id != merchant_id:
            owner = snapshot.payment.merchant_id
            raise await make_foreign_object_error(self._database, merchant_id, owner, "payment")
        tracing.follow_payment(snapshot.payment.id)
        return await self._expire_if_due(_require_readable(snapshot))

    async def find_checkout_payment(self, checkout_id: str) -> PaymentSnapshot:
        """Return a checkout's payment. Raises `CHECKOUT_NOT_FOUND` if it does not exist."""
        is_valid = ids.is_checkout_id(checkout_id)
        snapshot = await self._by_checkout.run(checkout_id) if is_valid else None
        if snapshot is None:
            raise RefusedError(ErrorCode.CHECKOUT_NOT_FOUND, "no such checkout")
        tracing.follow_payment(snapshot.payment.id)
        return await self._expire_if_due(_require_readable(snapshot))

    async def close(self) -> None:
        await self._by_id.close()
        await self._by_checkout.close()

    async def _expire_if_due(self, snapshot: PaymentSnapshot) -> PaymentSnapshot:
        if not _is_due(snapshot):
            return snapshot
        payment_id = snapshot.payment.id
        await expire_if_due(self._database, payment_id)
        return await payment_store.get(self._database, payment_id) or snapshot


async def list_merchant_payments(
    database: Database, read_database: ReadDatabase, payment_filter: PaymentFilter
) -> tuple[list[PaymentSnapshot], Position | None]:
    """Return a page of a merchant's payments and the position after which the next page starts.

    Payments that cannot be decrypted are omitted.
    """
    snapshots: list[PaymentSnapshot] = []
    limit = payment_filter.limit
    source = read_database.get_page_database(payment_filter.before and payment_filter.before[0])
    for _ in range(_LIST_ATTEMPTS_MAX):
        snapshots = await list_store.list_payments(source, replace(payment_filter, limit=limit + 1))
        due_ids = [snapshot.payment.id for snapshot in snapshots if _is_due(snapshot)]
        if not due_ids:
            break
        await expire_if_due(database, *due_ids)
        source = database  # the replica may lag behind
    page = snapshots[:limit]
    last_payment = page[-1].payment if len(snapshots) > limit else None
    if PaymentStatus.EXPIRED not in payment_filter.statuses:
        page = [snapshot for snapshot in page if not _is_due(snapshot)]
    page = [snapshot for snapshot in page if payment_store.is_readable(snapshot.payment)]
    return page, last_payment and (last_payment.created_at, last_payment.id)


async def make_foreign_object_error(
    database: Database, merchant_id: int, owner_id: int, noun: str
) -> RefusedError:
    """Return `FORBIDDEN` if both merchants are in the same mode, otherwise `NOT_FOUND`."""
    if await merchant_store.have_same_mode(database, merchant_id, owner_id):
        return RefusedError(ErrorCode.FORBIDDEN, f"this {noun} belongs to another merchant")
    return NotFoundError(f"no such {noun}")


def _require_readable(snapshot: PaymentSnapshot) -> PaymentSnapshot:
    if payment_store.is_readable(snapshot.payment):
        return snapshot
    raise EncryptionKeyError(f"payment {snapshot.payment.id} cannot be decrypted")


def _is_due(snapshot: PaymentSnapshot) -> bool:
    return snapshot.payment.status is PaymentStatus.PENDING and snapshot.payment.is_past_expiry(
        snapshot.now
    )
