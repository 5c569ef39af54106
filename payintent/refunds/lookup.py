"""The merchant's view of refunds, for the API and the portal."""

from typing import Any
from uuid import UUID

from payintent.core import ids
from payintent.core.errors import NotFoundError
from payintent.db.database import Database
from payintent.payments.lookup import make_foreign_object_error
from payintent.refunds import store as refund_store
from payintent.refunds.model import Refund
from payintent.runtime.json_format import format_timestamp


async def get_merchant_refund(
    database: Database, merchant_id: int, refund_id: UUID | None
) -> Refund:
    """Return a merchant's refund of a payment.

    Raises the same errors as `get_merchant_payment`. Refunds of cases are excluded, because they
    belong to the operator and do not reduce a payment's amount.
    """
    refund = await refund_store.get(database, refund_id) if refund_id else None
    if refund is None or refund.case_id is not None or refund.merchant_id is None:
        raise NotFoundError("no such refund")
    if refund.merchant_id != merchant_id:
        raise await make_foreign_object_error(database, merchant_id, refund.merchant_id, "refund")
    return refund


def make_refund_fields(refund: Refund) -> dict[str, Any]:
    """Return the API representation of a payment's refund, without empty fields."""
    assert refund.payment_id is not None  # noqa: S101 - only refunds of cases lack it
    fields: dict[str, Any] = {
        "id": ids.format_id(ids.REFUND, refund.id),
        "payment_id": ids.format_id(ids.PAYMENT, refund.payment_id),
        "amount": refund.amount_text,
        "currency": refund.currency,
        "status": refund.status,
        "reason": refund.reason,
        "destination": refund.destination,
        "failure_reason": refund.failure_reason,
        "created_at": format_timestamp(refund.created_at),
        "updated_at": format_timestamp(refund.updated_at),
    }
    return {name: value for name, value in fields.items() if value is not None}
