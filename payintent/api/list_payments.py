"""`GET /payments`: a merchant's payments, newest first, a page at a time."""

from collections.abc import Mapping
from datetime import datetime

from starlette.requests import Request
from starlette.responses import Response

from payintent.api import schemas
from payintent.api.context import AppContext
from payintent.api.etag import json_response
from payintent.api.merchant_access import merchant_route
from payintent.api.pagination import read_limit, read_time_cursor, write_time_cursor
from payintent.api.payments import payment_response_fields
from payintent.api.times import read_time
from payintent.domain.currencies import CURRENCIES
from payintent.domain.errors import ErrorCode, RefusedError
from payintent.domain.payment import PaymentStatus
from payintent.payments.lookup import list_merchant_payments
from payintent.storage.api_keys import AuthenticatedMerchant
from payintent.storage.payment_list import PaymentFilter

_PAYER_UID_MAX = 255


@merchant_route
async def list_payments(
    request: Request, app: AppContext, merchant: AuthenticatedMerchant
) -> Response:
    """`GET /payments?status=&currency=&payer_uid=&created_from=&created_to=&limit=&cursor=`.

    `next_cursor` is in the answer while there are more.
    """
    wanted = read_payment_filter(request.query_params, merchant.merchant_id)
    service = app.service
    snapshots, following = await list_merchant_payments(service.database, service.reading, wanted)
    answer: dict[str, object] = {
        "data": [payment_response_fields(app, snapshot) for snapshot in snapshots]
    }
    if following is not None:
        answer["next_cursor"] = write_time_cursor(*following)
    return json_response(answer)


def read_payment_filter(query: Mapping[str, str], merchant_id: int) -> PaymentFilter:
    """Read which of a merchant's payments to list (`BAD_REQUEST`)."""
    status, currency, payer = query.get("status"), query.get("currency"), query.get("payer_uid")
    if status is not None and status not in set(PaymentStatus):
        raise RefusedError(
            ErrorCode.BAD_REQUEST, f"status must be one of {', '.join(PaymentStatus)}"
        )
    if currency is not None and currency not in CURRENCIES:
        raise RefusedError(
            ErrorCode.INVALID_CURRENCY, f"currency must be one of {', '.join(CURRENCIES)}"
        )
    if payer is not None:
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
