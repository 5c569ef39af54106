"""Export or erase a payer's personal data, and show the effect of the retention rules."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar
from uuid import UUID

from payintent.core import ids
from payintent.core.errors import BadRequestError, ConflictError, NotFoundError
from payintent.core.texts import format_count
from payintent.db.database import Executor, Tx
from payintent.operators.fields import (
    ListLimit,
    MerchantId,
    argument,
    check_list_limit,
    check_merchant,
    option,
    quote_input,
)
from payintent.operators.operation import ChangeOperation, OperationContext, ReadOperation
from payintent.payments.serialization import erase_payer
from payintent.privacy import data_store, retention_store
from payintent.privacy.data_store import ExportedPayment
from payintent.runtime.settings import RetentionRule

#: Payments per erasure. Run the operation again if the payer has more payments.
_PAYMENTS_MAX = 1_000
_EMPTY_BODY = "{}"  # replaces an event body that cannot be decrypted
_PayerUid = Annotated[str, argument("The merchant's id for the payer.")]


class ExportPayer(ReadOperation[list[ExportedPayment]], frozen=True, kw_only=True):
    """Export the data stored about a merchant's payer, oldest payment first."""

    action: ClassVar[str] = "payer.export"
    columns: ClassVar[tuple[str, ...]] = ("id", "status", "amount", "currency", "payer_email")
    merchant_id: MerchantId
    payer_uid: _PayerUid
    after: Annotated[str | None, option("The last payment on the previous page.")] = None
    limit: ListLimit = 100

    async def read(self, context: OperationContext) -> list[ExportedPayment]:
        await check_merchant(context.database, self.merchant_id)
        check_list_limit(self.limit)
        after = None if self.after is None else ids.parse_id(ids.PAYMENT, self.after)
        if self.after is not None and after is None:
            raise BadRequestError(f"after must be a payment id, not {quote_input(self.after)}")
        payments = await data_store.export_payments(
            context.database, self.merchant_id, self.payer_uid, after, self.limit
        )
        if not payments and after is None:
            raise NotFoundError(f"no payer {quote_input(self.payer_uid)}")
        return payments


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasedPayer:
    merchant_id: int
    payments: int  # number of changed payments
    more: bool  # True if the payer has further payments


class ErasePayer(ChangeOperation[ErasedPayer], frozen=True, kw_only=True):
    """Permanently erase the data stored about a merchant's payer.

    A second operator must approve the erasure. Amounts, times, statuses and the ledger are
    retained. The operation fails if the payer has an open payment, refund, case, dispute or
    delivery.
    """

    action: ClassVar[str] = "payer.erase"
    is_destructive: ClassVar[bool] = True
    personal_fields: ClassVar[frozenset[str]] = frozenset({"payer_uid"})
    merchant_id: MerchantId
    payer_uid: _PayerUid

    async def needs_approval(self, context: OperationContext) -> bool:
        return True

    async def changes(self, context: OperationContext) -> list[str]:
        """Describe the change without naming the payer, because proposals are never deleted."""
        payment_ids = await self._list_payment_ids(context.database)
        first_id = ids.format_id(ids.PAYMENT, payment_ids[0])
        payments = format_count(len(payment_ids), "payment")
        return [
            f"{payments} of merchant {self.merchant_id}, starting with {first_id}",
            "the payer's name, email, metadata and addresses are permanently erased",
        ]

    async def check(self, context: OperationContext) -> None:
        await check_merchant(context.database, self.merchant_id)
        await _require_erasable(context.database, await self._list_payment_ids(context.database))

    async def apply(self, context: OperationContext, tx: Tx) -> ErasedPayer:
        """Erase the payer's data from up to 1,000 payments, oldest first."""
        payment_ids = await self._list_payment_ids(tx)
        await data_store.lock_payments(tx, payment_ids)
        await _require_erasable(tx, payment_ids)
        bodies = await data_store.read_event_bodies(tx, payment_ids)
        new_bodies = {
            event_id: erase_payer(body, data_store.ERASED) if body is not None else _EMPTY_BODY
            for event_id, body in bodies.items()
        }
        await data_store.erase(tx, payment_ids, new_bodies)
        more = bool(await data_store.list_payment_ids(tx, self.merchant_id, self.payer_uid, 1))
        return ErasedPayer(merchant_id=self.merchant_id, payments=len(payment_ids), more=more)

    def audit_details(self, result: ErasedPayer) -> Mapping[str, object]:
        return {"payments": result.payments}

    async def _list_payment_ids(self, database: Executor) -> Sequence[UUID]:
        payment_ids = await data_store.list_payment_ids(
            database, self.merchant_id, self.payer_uid, _PAYMENTS_MAX
        )
        if not payment_ids or self.payer_uid == data_store.ERASED:
            raise NotFoundError(f"no payer {quote_input(self.payer_uid)}")
        return payment_ids


async def _require_erasable(database: Executor, payment_ids: Sequence[UUID]) -> None:
    blocking_payment = await data_store.find_blocking_payment(database, payment_ids)
    if blocking_payment is not None:
        payment_id = ids.format_id(ids.PAYMENT, blocking_payment.payment_id)
        raise ConflictError(
            f"{payment_id} {blocking_payment.reason}, so its payer cannot be erased yet"
        )


_COUNT_MAX = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DueRetention:
    rule: RetentionRule
    days: int | None  # None: deletion is disabled
    due: int  # rows that the rule would delete now, counted up to `_COUNT_MAX`
    more: bool  # True if more rows are due than were counted


class ShowRetention(ReadOperation[list[DueRetention]], frozen=True, kw_only=True):
    """Count the rows that each retention rule will delete next, without deleting them."""

    action: ClassVar[str] = "retention.show"
    columns: ClassVar[tuple[str, ...]] = ("rule", "days", "due", "more")

    async def read(self, context: OperationContext) -> list[DueRetention]:
        """Count up to 100,000 rows for each rule."""
        rules: list[DueRetention] = []
        for rule, days in context.settings.retention.items():
            count = days and await retention_store.count_due(
                context.read_database, rule, days, _COUNT_MAX + 1
            )
            rules.append(
                DueRetention(
                    rule=rule,
                    days=days or None,
                    due=min(count, _COUNT_MAX),
                    more=count > _COUNT_MAX,
                )
            )
        return rules
