"""The operator's routes, on a port of their own, each with a named token; and metrics.

Every operation of `operations/registry.py` is a route: `POST /operator/tax/set` for a change, with
its fields and `why` as JSON, `GET /operator/tax/list` for what only reads, with its fields
as query.
"""

from dataclasses import replace
from typing import Any, TypeVar
from uuid import UUID

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import Request
from starlette.responses import Response

from payintent.api import authentication
from payintent.api.context import Context, context, json_answer
from payintent.api.errors import error
from payintent.api.request_body import read_raw
from payintent.domain import api_key, ids
from payintent.domain.errors import Code, Refused
from payintent.log import get
from payintent.operations.approvals import proposal_view
from payintent.operations.base import Actor, Read
from payintent.operations.json_values import plain
from payintent.operations.payment_details import trail
from payintent.operations.registry import OPERATIONS
from payintent.operations.webhooks import ReplayEvent
from payintent.payments.serialization import timestamp
from payintent.storage import outbox
from payintent.storage.proposals import Proposal

T = TypeVar("T")
_log = get("operator")
_LISTED_DEFAULT, _LISTED_MAX = 20, 100
_INTEGER_CHARS_MAX = 18


async def metrics(request: Request) -> Response:
    """`GET /metrics`: of this process, for Prometheus."""
    del request
    return Response(generate_latest(), 200, {"Content-Type": CONTENT_TYPE_LATEST})


async def get_payment(request: Request) -> Response:
    """`GET /operator/payments/{payment_id}`: as its merchant sees it, and its trail."""
    here, _ = await _operated(request)
    return json_answer(await trail(here.service.database, request.path_params["payment_id"]))


async def list_webhooks(request: Request) -> Response:
    """`GET /operator/webhooks?merchant=&state=&limit=`: events and how far they are."""
    here, _ = await _operated(request)
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
    here, operator = await _operated(request)
    try:
        event_id = UUID(request.path_params["event_id"])
    except ValueError:
        raise Refused(Code.NOT_FOUND, "no such event") from None
    raw = await read_raw(request, here.service.settings.body_bytes_max)
    why = _fields(raw).get("why", "") if raw else ""
    actor = replace(operator, why=_text("why", why))
    await here.service.perform(ReplayEvent(event_id=event_id), actor)
    return json_answer({"event_id": str(event_id), "state": "pending"})


async def operate(request: Request) -> Response:
    """`GET` and `POST /operator/{subject}/{verb}`: one operation."""
    here, operator = await _operated(request)
    kind = OPERATIONS.get(f"{request.path_params['subject']}.{request.path_params['verb']}")
    if kind is None:
        raise Refused(Code.NOT_FOUND, "no such operation")
    wanted = "GET" if issubclass(kind, Read) else "POST"
    if request.method != wanted:
        answer = error(Code.BAD_REQUEST, f"{kind.action} takes {wanted}", 405)
        answer.headers["Allow"] = wanted
        return answer
    if issubclass(kind, Read):
        operation = _convert(dict(request.query_params), kind, strict=False)
        result = await here.service.submit(operation, operator)
    else:
        fields = _fields(await read_raw(request, here.service.settings.body_bytes_max))
        why = _text("why", fields.pop("why", ""))
        operation = _convert(fields, kind, strict=True)
        result = await here.service.submit(operation, replace(operator, why=why))
    if isinstance(result, Proposal):
        return json_answer({"approval": plain(proposal_view(result))}, 202)
    shown = plain(result)
    return json_answer({"data": shown} if isinstance(shown, list) else shown or {})


async def _operated(request: Request) -> tuple[Context, Actor]:
    """Let an operator in; gives who it is."""
    here = context(request)
    with here.attempts.attempt(request, api_key.OPERATOR):
        who = await authentication.operator(
            here.service.database, here.service.secrets, request.headers
        )
    _log.info("operator", who=who.name, method=request.method, path=request.url.path)
    return here, Actor(who.name, role=who.role, over_http=True)


def _fields(raw: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(raw or b"{}", type=dict[str, Any] | None) or {}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(Code.BAD_REQUEST, "the body must be a JSON object") from error


def _convert(fields: dict[str, Any], kind: type[T], *, strict: bool) -> T:
    try:
        return msgspec.convert(fields, kind, strict=strict)
    except msgspec.ValidationError as error:
        raise Refused(Code.BAD_REQUEST, f"{error}".replace("`$.", "`")) from error


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise Refused(Code.BAD_REQUEST, f"{name} must be text")
    return value


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
