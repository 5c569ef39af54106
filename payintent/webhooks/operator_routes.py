"""Operator routes that list deliveries and replay an event."""

from dataclasses import asdict, dataclass, replace
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from payintent.core.errors import ErrorCode, RefusedError
from payintent.http.application import read_path_uuid
from payintent.http.bodies import read_raw
from payintent.http.pagination import parse_number, read_limit
from payintent.http.responses import json_response
from payintent.operators.access import OperatorApi, read_fields, read_reason
from payintent.operators.operation import Actor, OperationContext
from payintent.operators.submit import run_operation
from payintent.runtime.json_format import format_timestamp
from payintent.webhooks import deliveries_store as delivery_store
from payintent.webhooks import outbox_store
from payintent.webhooks.operations import ReplayEvent

_NUMBER_MAX = 10**18 - 1  # fits in a bigint


@dataclass(frozen=True, slots=True)
class OperatorWebhookRoutes:
    api: OperatorApi
    context: OperationContext

    def routes(self) -> list[Route]:
        replay = "/operator/webhooks/{event_id}/replay"
        return [
            self.api.route("/operator/webhooks", self.list_deliveries),
            self.api.route(replay, self.replay_event, ["POST"]),
        ]

    async def list_deliveries(self, request: Request, actor: Actor) -> Response:
        """`GET /operator/webhooks?merchant=&state=&limit=`: list deliveries, newest first."""
        del actor
        limit = read_limit(request.query_params.get("limit"))
        deliveries = await delivery_store.list_deliveries(
            self.context.reading,
            limit,
            merchant_id=_read_merchant_id(request),
            state=_read_state(request),
        )
        return json_response({"data": [_delivery_fields(delivery) for delivery in deliveries]})

    async def replay_event(self, request: Request, actor: Actor) -> Response:
        """`POST /operator/webhooks/{event_id}/replay`: resend the event, keeping its webhook-id."""
        event_id = read_path_uuid(request, "event_id", "no such event")
        raw = await read_raw(request, self.context.settings.body_bytes_max)
        actor = replace(actor, why=read_reason(read_fields(raw)))
        await run_operation(self.context, ReplayEvent(event_id=event_id), actor)
        return json_response({"event_id": str(event_id), "state": "pending"})


def _read_merchant_id(request: Request) -> int | None:
    raw = request.query_params.get("merchant")
    if raw is None:
        return None
    merchant_id = parse_number(raw, _NUMBER_MAX)
    if merchant_id is None:
        raise RefusedError(ErrorCode.BAD_REQUEST, "merchant must be a whole number")
    return merchant_id


def _read_state(request: Request) -> str | None:
    state = request.query_params.get("state")
    if state is not None and state not in outbox_store.STATES:
        raise RefusedError(
            ErrorCode.BAD_REQUEST, f"state must be one of {', '.join(outbox_store.STATES)}"
        )
    return state


def _delivery_fields(delivery: outbox_store.DeliveryRecord) -> dict[str, Any]:
    times = {"next_at": delivery.next_at, "occurred_at": delivery.occurred_at}
    return asdict(delivery) | {name: format_timestamp(at) for name, at in times.items()}
