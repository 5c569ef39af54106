"""The operator's routes, on a port of their own, each with a named token; and metrics."""

from uuid import UUID

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import Request
from starlette.responses import Response

from payintent.api import auth
from payintent.api.context import Context, context, json_answer
from payintent.domain import ids
from payintent.domain.errors import Code, Refused
from payintent.lifecycle.deliver import replay
from payintent.lifecycle.wire import payment_fields, timestamp
from payintent.log import get
from payintent.storage import captures, outbox, payments

_log = get("operator")
_LISTED_DEFAULT, _LISTED_MAX = 20, 100
_INTEGER_CHARS_MAX = 18


async def metrics(request: Request) -> Response:
    """`GET /metrics`: of this process, for Prometheus."""
    del request
    return Response(generate_latest(), 200, {"Content-Type": CONTENT_TYPE_LATEST})


async def get_payment(request: Request) -> Response:
    """`GET /operator/payments/{payment_id}`: as its merchant sees it, and its cases."""
    here = await _operated(request)
    payment_id = ids.parse(ids.PAYMENT, request.path_params["payment_id"])
    seen = await payments.by_id(here.service.database, payment_id) if payment_id else None
    if seen is None:
        raise Refused(Code.NOT_FOUND, "no such payment")
    fields = payment_fields(seen.payment, seen.session)
    fields["checkout_id"] = ids.masked(seen.payment.checkout_id)
    cases = await captures.cases_of(here.service.database, seen.payment.id)
    fields["cases"] = [
        {
            "id": ids.text(ids.CASE, one.id),
            "kind": one.kind,
            "status": one.status,
            "opened_at": timestamp(one.opened_at),
        }
        for one in cases
    ]
    return json_answer(fields)


async def list_webhooks(request: Request) -> Response:
    """`GET /operator/webhooks?merchant=&state=&limit=`: events and how far they are."""
    here = await _operated(request)
    limit = _integer(request, "limit")
    limit = _LISTED_DEFAULT if limit is None else limit
    if not 1 <= limit <= _LISTED_MAX:
        raise Refused(Code.BAD_REQUEST, f"limit must be from 1 to {_LISTED_MAX}")
    found = await outbox.listed(
        here.service.database,
        _integer(request, "merchant"),
        _state(request),
        limit,
    )
    return json_answer({"data": [_delivery_fields(one) for one in found]})


async def replay_webhook(request: Request) -> Response:
    """`POST /operator/webhooks/{event_id}/replay`: sends it again under the same webhook-id."""
    here = await _operated(request)
    try:
        event_id = UUID(request.path_params["event_id"])
    except ValueError:
        raise Refused(Code.NOT_FOUND, "no such event") from None
    if not await replay(here.service.database, event_id):
        raise Refused(Code.NOT_FOUND, "no such event")
    return json_answer({"event_id": str(event_id), "state": "pending"})


async def _operated(request: Request) -> Context:
    here = context(request)
    who = await auth.operator(here.service.database, here.service.secrets, request.headers)
    _log.info("operator", who=who.name, method=request.method, path=request.url.path)
    return here


def _integer(request: Request, name: str) -> int | None:
    raw = request.query_params.get(name)
    if raw is None:
        return None
    if not (raw.isascii() and raw.isdecimal()) or len(raw) > _INTEGER_CHARS_MAX:
        raise Refused(Code.BAD_REQUEST, f"{name} must be a whole number")
    return int(raw)


def _state(request: Request) -> str | None:
    state = request.query_params.get("state")
    if state is not None and state not in outbox.STATES:
        raise Refused(Code.BAD_REQUEST, f"state must be one of {', '.join(outbox.STATES)}")
    return state


def _delivery_fields(one: outbox.Delivery) -> dict[str, object]:
    return {
        "event_id": str(one.event_id),
        "type": one.type,
        "payment_id": ids.text(ids.PAYMENT, one.payment_id),
        "merchant_id": one.merchant_id,
        "state": one.state,
        "attempts": one.attempts,
        "next_at": timestamp(one.next_at),
        "occurred_at": timestamp(one.occurred_at),
    }
