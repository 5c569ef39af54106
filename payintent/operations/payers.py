"""What a payer may ask for: all that is stored of the person, and its erasure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, ClassVar
from uuid import UUID

import msgspec

from payintent.domain import ids
from payintent.domain.errors import BadRequestError, ConflictError, NotFoundError
from payintent.operations.base import ChangeOperation, OperationContext, ReadOperation
from payintent.operations.fields import ListLimit, MerchantId, argument, option
from payintent.operations.validation import check_list_limit, check_merchant, quote_input
from payintent.payments.serialization import erase_payer
from payintent.storage import payer_data, payer_erasure
from payintent.storage.database import Executor, Tx
from payintent.storage.payer_data import PayerPaymentRecord

#: Payments of one erasure; a payer with more needs another one.
_ERASED_MAX = 1_000
_EMPTY = "{}"  # of an event that was sealed and does not open: nobody can read whom it is about
_PayerUid = Annotated[str, argument("As the merchant names the payer.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedPayment:
    """A payment with what is stored of its payer; nothing that opens its checkout."""

    id: str
    status: str
    currency: str
    amount: str
    payer_email: str | None
    metadata: msgspec.Raw
    created_at: datetime
    updated_at: datetime
    sessions: msgspec.Raw
    callbacks: msgspec.Raw
    transfers: msgspec.Raw
    refunds: msgspec.Raw
    denials: msgspec.Raw
    events: msgspec.Raw


class ExportPayer(ReadOperation[list[ExportedPayment]], frozen=True, kw_only=True):
    """Export what is stored of one payer of a merchant, the oldest payment first."""

    action: ClassVar[str] = "payer.export"
    columns: ClassVar[tuple[str, ...]] = ("id", "status", "amount", "currency", "payer_email")
    merchant_id: MerchantId
    payer_uid: _PayerUid
    after: Annotated[
        str | None, option("The next page: payments after this one, the last of a page.")
    ] = None
    limit: ListLimit = 100

    async def read(self, context: OperationContext) -> list[ExportedPayment]:
        await check_merchant(context.database, self.merchant_id)
        check_list_limit(self.limit)
        after = None if self.after is None else ids.parse_id(ids.PAYMENT, self.after)
        if self.after is not None and after is None:
            raise BadRequestError(f"after cannot be {quote_input(self.after)}")
        records = await payer_data.list_payments_of_payer(
            context.database, self.merchant_id, self.payer_uid, after, self.limit
        )
        if not records and after is None:
            raise NotFoundError(f"no payer {quote_input(self.payer_uid)}")
        return [_exported(record) for record in records]


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasedPayer:
    """How many payments lost their payer, and whether the payer has more."""

    merchant_id: int
    payments: int
    more: bool


class ErasePayer(ChangeOperation[ErasedPayer], frozen=True, kw_only=True):
    """Erase what is stored of one payer of a merchant; needs two people, and cannot be undone.

    Amounts, times, states and the books stay. It waits for what is open: payments, refunds,
    cases, disputes, deliveries.
    """

    action: ClassVar[str] = "payer.erase"
    is_destructive: ClassVar[bool] = True
    unrecorded: ClassVar[frozenset[str]] = frozenset({"payer_uid"})
    merchant_id: MerchantId
    payer_uid: _PayerUid

    async def needs_approval(self, context: OperationContext) -> bool:
        """Return True: nothing brings it back."""
        return True

    async def changes(self, context: OperationContext) -> list[str]:
        """Describe what goes, by a payment and without the payer: a proposal is kept for ever."""
        found = await self._payments(context.database)
        first = ids.format_id(ids.PAYMENT, found[0])
        return [
            f"{len(found)} payments of merchant {self.merchant_id}, the first is {first}",
            "their payer's name, e-mail, metadata and addresses are erased for ever",
        ]

    async def check(self, context: OperationContext) -> None:
        await check_merchant(context.database, self.merchant_id)
        await _check_not_needed(context.database, await self._payments(context.database))

    async def apply(self, context: OperationContext, tx: Tx) -> ErasedPayer:
        """Erase the payer of up to 1,000 payments, the oldest first."""
        found = await self._payments(tx)
        await payer_erasure.lock_payments(tx, found)
        await _check_not_needed(tx, found)
        bodies = await payer_erasure.read_events(tx, found)
        erased = {
            event_id: erase_payer(body, payer_erasure.ERASED) if body is not None else _EMPTY
            for event_id, body in bodies.items()
        }
        await payer_erasure.erase(tx, found, erased)
        more = bool(await payer_erasure.list_payments(tx, self.merchant_id, self.payer_uid, 1))
        return ErasedPayer(merchant_id=self.merchant_id, payments=len(found), more=more)

    def audit_details(self, result: ErasedPayer) -> Mapping[str, object]:
        return {"payments": result.payments}

    async def _payments(self, database: Executor) -> Sequence[UUID]:
        found = await payer_erasure.list_payments(
            database, self.merchant_id, self.payer_uid, _ERASED_MAX
        )
        if not found or self.payer_uid == payer_erasure.ERASED:
            raise NotFoundError(f"no payer {quote_input(self.payer_uid)}")
        return found


async def _check_not_needed(database: Executor, payments: Sequence[UUID]) -> None:
    needed = await payer_erasure.find_needed(database, payments)
    if needed is not None:
        named = ids.format_id(ids.PAYMENT, needed.payment_id)
        raise ConflictError(f"{named} {needed.why}: erase its payer when that is over")


def _exported(record: PayerPaymentRecord) -> ExportedPayment:
    return ExportedPayment(
        id=ids.format_id(ids.PAYMENT, record.id),
        status=record.status,
        currency=record.currency,
        amount=f"{record.amount.normalize():f}",
        payer_email=record.payer_email,
        metadata=_json(record.metadata),
        created_at=record.created_at,
        updated_at=record.updated_at,
        sessions=_json(record.sessions),
        callbacks=_json(record.callbacks),
        transfers=_json(record.transfers),
        refunds=_json(record.refunds),
        denials=_json(record.denials),
        events=_json(record.events),
    )


def _json(text: str) -> msgspec.Raw:
    return msgspec.Raw(text.encode())
