"""The query parameters of `GET /payments`."""

from collections.abc import Mapping
from datetime import datetime

from payintent.api import schemas
from payintent.api.pagination import read_limit, read_time_cursor
from payintent.api.times import read_time
from payintent.domain.currencies import CURRENCIES
from payintent.domain.errors import ErrorCode, RefusedError
from payintent.domain.payment import PaymentStatus
from payintent.storage.payment_list import PaymentFilter

_PAYER_UID_MAX = 255


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
        created_to=_time("created_to", query.get("created_to")),
        before=None if cursor is None else read_time_cursor(cursor),
        limit=read_limit(query.get("limit")),
    )


def _time(name: str, raw: str | None) -> datetime | None:
    return None if raw is None else read_time(name, raw)
