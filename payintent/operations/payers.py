"""What a payer may ask for: all that is stored of the person."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, ClassVar

import msgspec

from payintent.domain import ids
from payintent.domain.errors import ErrorCode, RefusedError
from payintent.operations.base import OperationContext, ReadOperation
from payintent.operations.fields import ListLimit, MerchantId, argument, option
from payintent.operations.validation import check_list_limit, check_merchant, quote_input
from payintent.storage import payer_data
from payintent.storage.payer_data import PayerPaymentRecord


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
    payer_uid: Annotated[str, argument("As the merchant names the payer.")]
    after: Annotated[
        str | None, option("The next page: payments after this one, the last of a page.")
    ] = None
    limit: ListLimit = 100

    async def read(self, context: OperationContext) -> list[ExportedPayment]:
        """Return a page of payments; refuse where there is none of this payer."""
        await check_merchant(context.database, self.merchant_id)
        check_list_limit(self.limit)
        after = None if self.after is None else ids.parse_id(ids.PAYMENT, self.after)
        if self.after is not None and after is None:
            raise RefusedError(ErrorCode.BAD_REQUEST, f"after cannot be {quote_input(self.after)}")
        found = await payer_data.list_payments_of_payer(
            context.database, self.merchant_id, self.payer_uid, after, self.limit
        )
        if not found and after is None:
            raise RefusedError(ErrorCode.NOT_FOUND, f"no payer {quote_input(self.payer_uid)}")
        return [_exported(record) for record in found]


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
