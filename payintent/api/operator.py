"""The operator's routes, on a port of their own, each with a named token; and metrics.

Every operation of `operations/registry.py` is a route: `POST /operator/tax/set` for a change, with
its fields and `why` as JSON, `GET /operator/tax/list` for a read, with its fields as query.
"""

from dataclasses import replace
from typing import Any
from uuid import UUID

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response

from payintent.api import authentication
from payintent.api.context import AppContext, get_context
from payintent.api.errors import error_response
from payintent.api.etag import json_response
from payintent.api.request_body import read_raw
from payintent.domain import api_key, ids
from payintent.domain.errors import ErrorCode, RefusedError
from payintent.json_format import format_timestamp
from payintent.log import get_logger
from payintent.operations.approvals import proposal_view
from payintent.operations.base import Actor, ReadOperation
from payintent.operations.conversion import convert_operation, find_operation
from payintent.operations.json_values import to_json_value
from payintent.operations.payment_details import ShowPayment
from payintent.operations.registry import OPERATIONS
from payintent.operations.webhooks import ReplayEvent
from payintent.storage import delivery_list, outbox
from payintent.storage.delivery_list import DeliveryFilter
from payintent.storage.proposals import Proposal

_log = get_logger("operator")
_LISTED_DEFAULT, _LISTED_MAX = 20, 100
_INTEGER_CHARS_MAX = 18


async def metrics(request: Request) -> Response:
    written: bytes = request.app.state.metrics()
    return Response(written, 200, {"Content-Type": CONTENT_TYPE_LATEST})


async def get_payment_details(request: Request) -> Response:
    app, operator = await _operated(request)
    wanted = ShowPayment(payment_id=request.path_params["payment_id"])
    shown = await app.service.run_operation(wanted, operator)
    return json_response(to_json_value(shown))


async def list_webhooks(request: Request) -> Response:
    """`GET /operator/webhooks?merchant=&state=&limit=`: events and their deliveries' state."""
    app, _ = await _operated(request)
    limit = _integer(request, "limit")
    limit = _LISTED_DEFAULT if limit is None else limit
    if not 1 <= limit <= _LISTED_MAX:
        raise RefusedError(ErrorCode.BAD_REQUEST, f"limit must be from 1 to {_LISTED_MAX}")
    wanted = DeliveryFilter(merchant_id=_integer(request, "merchant"), state=_state(request))
    deliveries = await delivery_list.list_deliveries(app.service.reading, wanted, limit)
    return json_response({"data": [_delivery_fields(delivery) for delivery in deliveries]})


async def replay_webhook(request: Request) -> Response:
    """`POST /operator/webhooks/{event_id}/replay`: sends it again under the same webhook-id."""
    app, operator = await _operated(request)
    try:
        event_id = UUID(request.path_params["event_id"])
    except ValueError:
        raise RefusedError(ErrorCode.NOT_FOUND, "no such event") from None
    raw = await read_raw(request, app.service.settings.body_bytes_max)
    why = _fields(raw).get("why", "") if raw else ""
    actor = replace(operator, why=_text("why", why))
    await app.service.run_operation(ReplayEvent(event_id=event_id), actor)
    return json_response({"event_id": str(event_id), "state": "pending"})


async def run_operation_route(request: Request) -> Response:
    """`GET` and `POST /operator/{subject}/{verb}`: one operation."""
    app, operator = await _operated(request)
    params = request.path_params
    kind = find_operation(OPERATIONS, f"{params['subject']}.{params['verb']}")
    wanted = "GET" if issubclass(kind, ReadOperation) else "POST"
    if request.method != wanted:
        answer = error_response(ErrorCode.BAD_REQUEST, f"{kind.action} takes {wanted}", 405)
        answer.headers["Allow"] = wanted
        return answer
    if issubclass(kind, ReadOperation):
        operation = convert_operation(dict(request.query_params), kind, strict=False)
        result = await app.service.submit(operation, operator)
    else:
        fields = _fields(await read_raw(request, app.service.settings.body_bytes_max))
        why = _text("why", fields.pop("why", ""))
        dry_run = fields.pop("dry_run", False)
        operation = convert_operation(fields, kind, strict=True)
        if dry_run is True:
            return json_response(to_json_value(await app.service.foresee(operation, operator)))
        if dry_run is not False:
            raise RefusedError(ErrorCode.BAD_REQUEST, "dry_run must be true or false")
        actor = replace(operator, why=why)
        result = await app.service.submit(operation, actor)
    if isinstance(result, Proposal):
        return json_response({"approval": to_json_value(proposal_view(result))}, 202)
    shown = to_json_value(result)
    return json_response({"data": shown} if isinstance(shown, list) else shown or {})


async def _operated(request: Request) -> tuple[AppContext, Actor]:
    app = get_context(request)
    async with app.attempts.attempt(request, api_key.OPERATOR):
        who = await authentication.authenticate_operator(
            app.service.database, app.service.encryption, request.headers
        )
    _log.info("operator", who=who.name, method=request.method, path=request.url.path)
    return app, Actor(who.name, role=who.role, over_http=True)


def _fields(raw: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(raw or b"{}", type=dict[str, Any] | None) or {}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RefusedError(ErrorCode.BAD_REQUEST, "the body must be a JSON object") from error


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise RefusedError(ErrorCode.BAD_REQUEST, f"{name} must be text")
    return value


def _integer(request: Request, name: str) -> int | None:
    raw = request.query_params.get(name)
    if raw is None:
        return None
    if not (raw.isascii() and raw.isdecimal()) or len(raw) > _INTEGER_CHARS_MAX:
        raise RefusedError(ErrorCode.BAD_REQUEST, f"{name} must be a whole number")
    return int(raw)


def _state(request: Request) -> str | None:
    state = request.query_params.get("state")
    if state is not None and state not in outbox.STATES:
        raise RefusedError(
            ErrorCode.BAD_REQUEST, f"state must be one of {', '.join(outbox.STATES)}"
        )
    return state


def _delivery_fields(delivery: outbox.DeliveryRecord) -> dict[str, object]:
    return {
        "event_id": str(delivery.event_id),
        "type": delivery.type,
        "payment_id": ids.format_id(ids.PAYMENT, delivery.payment_id),
        "merchant_id": delivery.merchant_id,
        "state": delivery.state,
        "attempts": delivery.attempts,
        "next_at": format_timestamp(delivery.next_at),
        "occurred_at": format_timestamp(delivery.occurred_at),
    }
