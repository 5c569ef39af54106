"""`GET /payments`: a merchant's payments, newest first, a page at a time."""

import base64
import binascii
from datetime import datetime, timedelta
from uuid import UUID

from starlette.requests import Request
from starlette.responses import Response

from payintent.api import schemas
from payintent.api.context import AppContext, json_response
from payintent.api.merchant_access import merchant_route
from payintent.api.payments import payment_response_fields
from payintent.api.times import read_time
from payintent.domain.currencies import CURRENCIES
from payintent.domain.errors import ErrorCode, RefusedError
from payintent.domain.payment import PaymentStatus
from payintent.payments.lookup import list_merchant_payments
from payintent.storage.api_keys import AuthenticatedMerchant
from payintent.storage.payment_list import LISTED_MAX, PaymentFilter

_LISTED_DEFAULT = 20
_PAYER_UID_MAX = 255
_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
_CURSOR_BYTES = 24
_ID_CURSOR_BYTES = 16


@merchant_route
async def list_payments(
    request: Request, app: AppContext, merchant: AuthenticatedMerchant
) -> Response:
    """`GET /payments?status=&currency=&payer_uid=&created_from=&created_to=&limit=&cursor=`."""
    wanted = _wanted(request, merchant.merchant_id)
    service = app.service
    found, more = await list_merchant_payments(service.database, service.id_generator, wanted)
    answer: dict[str, object] = {
        "data": [payment_response_fields(app, snapshot) for snapshot in found]
    }
    if more is not None:
        answer["next_cursor"] = _write_cursor(*more)
    return json_response(answer)


def _wanted(request: Request, merchant_id: int) -> PaymentFilter:
    query = request.query_params
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
        before=None if cursor is None else _read_cursor(cursor),
        limit=read_limit(query.get("limit")),
    )


def read_limit(raw: str | None) -> int:
    """Read how many are to be listed; refused (`BAD_REQUEST`) outside 1 to 100."""
    if raw is None:
        return _LISTED_DEFAULT
    well_formed = raw.isascii() and raw.isdecimal() and len(raw) <= len(str(LISTED_MAX))
    if not well_formed or not 1 <= int(raw) <= LISTED_MAX:
        raise RefusedError(ErrorCode.BAD_REQUEST, f"limit must be from 1 to {LISTED_MAX}")
    return int(raw)


def write_id_cursor(last_id: UUID) -> str:
    """Name the end of a page of a list in the order of its ids."""
    return base64.urlsafe_b64encode(last_id.bytes).decode()


def read_id_cursor(raw: str | None) -> UUID | None:
    """Read the end of a page; refused (`BAD_REQUEST`) where no list has given it."""
    if raw is None:
        return None
    try:
        read = base64.b64decode(raw.encode("ascii"), altchars=b"-_", validate=True)
        if len(read) == _ID_CURSOR_BYTES:
            return UUID(bytes=read)
    except (binascii.Error, ValueError):
        pass
    raise RefusedError(ErrorCode.BAD_REQUEST, "cursor is not one that a list has given")


def _time(name: str, raw: str | None) -> datetime | None:
    return None if raw is None else read_time(name, raw)


def _write_cursor(created_at: datetime, payment_id: UUID) -> str:
    moment = (created_at - _EPOCH) // timedelta(microseconds=1)
    return base64.urlsafe_b64encode(moment.to_bytes(8, "big") + payment_id.bytes).decode()


def _read_cursor(raw: str) -> tuple[datetime, UUID]:
    try:
        read = base64.b64decode(raw.encode("ascii"), altchars=b"-_", validate=True)
        if len(read) == _CURSOR_BYTES:
            moment = timedelta(microseconds=int.from_bytes(read[:8], "big"))
            return _EPOCH + moment, UUID(bytes=read[8:])
    except (binascii.Error, ValueError, OverflowError):
        pass
    raise RefusedError(ErrorCode.BAD_REQUEST, "cursor is not one that a list has given")
