"""Read payments for merchants and for holders of checkout ids."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial
from uuid import UUID

from payintent.core import ids
from payintent.core.errors import ErrorCode, RefusedError
from payintent.core.money import CURRENCIES
from payintent.db.batcher import Batcher
from payintent.db.database import Database
from payintent.db.replica import ReadDatabase
from payintent.http.pagination import read_limit, read_time, read_time_cursor
from payintent.merchants import store as merchant_store
from payintent.payments import list_store, schemas
from payintent.payments import store as payment_store
from payintent.payments.expire import expire_if_due
from payintent.payments.list_store import PaymentFilter, Position
from payintent.payments.model import PaymentStatus
from payintent.payments.store import PaymentSnapshot
from payintent.runtime import tracing
from payintent.runtime.encryption import EncryptionKeyError

_PAYER_UID_MAX = 255
_LIST_TRIES_MAX = 5  # the payments that replace expired payments on a page may be due as well


class PaymentLookup:
    """Reads payments; concurrent readers share statements."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._by_id = Batcher(
            alone=partial(payment_store.get, database),
            together=partial(payment_store.get_batch, database),
        )
        self._by_checkout = Batcher(
            alone=partial(payment_store.find_by_checkout, database),
            together=partial(payment_store.find_by_checkouts, database),
        )

    async def get_merchant_payment(
        self, merchant_id: int, payment_id: UUID | None
    ) -> PaymentSnapshot:
        """Return a merchant's payment, expired first if its deadline has passed.

        Raises `NOT_FOUND` if it does not exist, `FORBIDDEN` if it belongs to another merchant.
        """
        snapshot = await self._by_id.run(payment_id) if payment_id else None
        if snapshot is None:
            raise RefusedError(ErrorCode.NOT_FOUND, "no such payment")
        if snapshot.payment.merchant_id != merchant_id:
            owner = snapshot.payment.merchant_id
            raise await foreign_object_error(self._database, merchant_id, owner, "payment")
        tracing.follow_payment(snapshot.payment.id)
        return await self._expired_if_due(_require_readable(snapshot))

    async def find_checkout_payment(self, checkout_id: str) -> PaymentSnapshot:
        """Return the payment of a checkout; raises `CHECKOUT_NOT_FOUND` if it does not exist."""
        is_valid = ids.is_checkout_id(checkout_id)
        snapshot = await self._by_checkout.run(checkout_id) if is_valid else None
        if snapshot is None:
            raise RefusedError(ErrorCode.CHECKOUT_NOT_FOUND, "no such checkout")
        tracing.follow_payment(snapshot.payment.id)
        return await self._expired_if_due(_require_readable(snapshot))

    async def close(self) -> None:
        await self._by_id.close()
        await self._by_checkout.close()

    async def _expired_if_due(self, snapshot: PaymentSnapshot) -> PaymentSnapshot:
        if not _is_due(snapshot):
            return snapshot
        payment_id = snapshot.payment.id
        await expire_if_due(self._database, payment_id)
        return await payment_store.get(self._database, payment_id) or snapshot


def read_payment_filter(query: Mapping[str, str], merchant_id: int) -> PaymentFilter:
    """Parse the filter of a payment list; raises `BAD_REQUEST` if a parameter is malformed."""
    status, currency, payer = query.get("status"), query.get("currency"), query.get("payer_uid")
    if status is not None and status not in set(PaymentStatus):
        raise RefusedError(
            ErrorCode.BAD_REQUEST, f"status must be one of {', '.join(PaymentStatus)}"
        )
    if currency is not None and currency not in CURRENCIES:
        raise RefusedError(
            ErrorCode.INVALID_CURRENCY, f"currency must be one of {', '.join(CURRENCIES)}"
        )
    schemas.check_text("payer_uid", payer, _PAYER_UID_MAX)
    cursor = query.get("cursor")
    return PaymentFilter(
        merchant_id=merchant_id,
        statuses=tuple(PaymentStatus) if status is None else (PaymentStatus(status),),
        currencies=tuple(CURRENCIES) if currency is None else (currency,),
        payer_uid=payer,
        created_from=_time("created_from", query.get("created_from")),
        created_before=_time("created_to", query.get("created_to")),
        before=None if cursor is None else read_time_cursor(cursor),
        limit=read_limit(query.get("limit")),
    )


def _time(name: str, raw: str | None) -> datetime | None:
    return None if raw is None else read_time(name, raw)


async def list_merchant_payments(
    database: Database, reading: ReadDatabase, payment_filter: PaymentFilter
) -> tuple[list[PaymentSnapshot], Position | None]:
    """Return a page of a merchant's payments and the cursor of the next page.

    Payments past their deadline are expired first. Payments that cannot be decrypted are omitted.
    """
    snapshots: list[PaymentSnapshot] = []
    limit = payment_filter.limit
    source = reading.page_after(payment_filter.before and payment_filter.before[0])
    for _ in range(_LIST_TRIES_MAX):
        snapshots = await list_store.list_payments(source, replace(payment_filter, limit=limit + 1))
        due_ids = [snapshot.payment.id for snapshot in snapshots if _is_due(snapshot)]
        if not due_ids:
            break
        await expire_if_due(database, *due_ids)
        source = database  # a replica may not have the changes yet
    page = snapshots[:limit]
    last = page[-1].payment if len(snapshots) > limit else None
    if PaymentStatus.EXPIRED not in payment_filter.statuses:
        page = [snapshot for snapshot in page if not _is_due(snapshot)]
    page = [snapshot for snapshot in page if payment_store.is_readable(snapshot.payment)]
    return page, last and (last.created_at, last.id)


async def foreign_object_error(
    database: Database, merchant_id: int, owner_id: int, noun: str
) -> RefusedError:
    """Return `FORBIDDEN`, or `NOT_FOUND` if one merchant is in test mode and the owner is not."""
    if await merchant_store.share_mode(database, merchant_id, owner_id):
        return RefusedError(ErrorCode.FORBIDDEN, f"this {noun} belongs to another merchant")
    return RefusedError(ErrorCode.NOT_FOUND, f"no such {noun}")


def _require_readable(snapshot: PaymentSnapshot) -> PaymentSnapshot:
    if payment_store.is_readable(snapshot.payment):
        return snapshot
    raise EncryptionKeyError(f"payment {snapshot.payment.id} cannot be decrypted")


def _is_due(snapshot: PaymentSnapshot) -> bool:
    return snapshot.payment.status is PaymentStatus.PENDING and snapshot.payment.is_past_expiry(
        snapshot.now
    )
