"""The merchant's refunds: ask for one, read one, list those of a payment."""

from starlette.requests import Request
from starlette.responses import Response

from payintent.api import schemas
from payintent.api.context import Context, json_answer
from payintent.api.list_payments import read_id_cursor, read_limit, write_id_cursor
from payintent.api.payments import for_merchants
from payintent.api.request_body import idempotency_key, read_json
from payintent.domain import ids
from payintent.domain.errors import Code, Refused
from payintent.domain.payment import Payment
from payintent.payments.create_refund import RefundAsk
from payintent.payments.lookup import payment_for, refund_for, refunds_for
from payintent.payments.serialization import refund_fields
from payintent.storage.merchants import Holder

_REPLAYED = {"Idempotency-Replayed": "true"}


@for_merchants
async def post_refund(request: Request, here: Context, holder: Holder) -> Response:
    """`POST /payments/{payment_id}/refunds`; without a body, all that is left goes back."""
    key = idempotency_key(request.headers)
    if key is None:
        raise Refused(Code.BAD_REQUEST, "Idempotency-Key is required")
    service = here.service
    body = await read_json(
        request, schemas.REFUND, service.settings.body_bytes_max, schemas.RefundBody()
    )
    schemas.check_refund(body)
    amount = schemas.refund_amount(body.amount)
    payment = await _payment(request, here, holder)
    asked = await service.refund_desk.ask(
        RefundAsk(
            merchant_id=holder.merchant_id,
            payment_id=payment.id,
            key=key,
            amount=amount,
            reason=body.reason,
            destination=body.destination,
        )
    )
    return json_answer(refund_fields(asked.refund), 201, _REPLAYED if asked.replayed else None)


@for_merchants
async def list_refunds(request: Request, here: Context, holder: Holder) -> Response:
    """`GET /payments/{payment_id}/refunds?limit=&cursor=`: newest first."""
    limit = read_limit(request.query_params.get("limit"))
    before = read_id_cursor(request.query_params.get("cursor"))
    payment = await _payment(request, here, holder)
    found, more = await refunds_for(here.service.database, payment.id, before, limit)
    answer: dict[str, object] = {"data": [refund_fields(one) for one in found]}
    if more is not None:
        answer["next_cursor"] = write_id_cursor(more)
    return json_answer(answer)


@for_merchants
async def get_refund(request: Request, here: Context, holder: Holder) -> Response:
    """`GET /refunds/{refund_id}`."""
    refund_id = ids.parse(ids.REFUND, request.path_params["refund_id"])
    refund = await refund_for(here.service.database, holder.merchant_id, refund_id)
    return json_answer(refund_fields(refund))


async def _payment(request: Request, here: Context, holder: Holder) -> Payment:
    payment_id = ids.parse(ids.PAYMENT, request.path_params["payment_id"])
    service = here.service
    seen = await payment_for(service.database, service.mint, holder.merchant_id, payment_id)
    return seen.payment
