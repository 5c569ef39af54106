"""The operator's webhook routes: list deliveries and replay an event."""

from dataclasses import dataclass, replace
from uuid import UUID

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from payintent.core.errors import ErrorCode, RefusedError
from payintent.http.bodies import read_raw
from payintent.http.pagination import read_limit
from payintent.http.responses import json_response
from payintent.operators.access import OperatorApi, read_fields, read_reason
from payintent.operators.operation import Actor, OperationContext
from payintent.operators.submit import run_operation
from payintent.runtime.json_format import format_timestamp
from payintent.webhooks import deliveries_store as delivery_store
from payintent.webhooks import outbox_store
from payintent.webhooks.operations import ReplayEvent

_INTEGER_CHARS_MAX = 18


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
        """`GET /operator/webhooks?merchant=&state=&limit=`: events and their delivery state."""
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
        """`POST /operator/webhooks/{event_id}/replay`: deliver it again with its webhook-id."""
        try:
            event_id = UUID(request.path_params["event_id"])
        except ValueError:
            raise RefusedError(ErrorCode.NOT_FOUND, "no such event") from None
        raw = await read_raw(request, self.context.settings.body_bytes_max)
        actor = replace(actor, why=read_reason(read_fields(raw)))
        await run_operation(self.context, ReplayEvent(event_id=event_id), actor)
        return json_response({"event_id": str(event_id), "state": "pending"})


def _read_merchant_id(request: Request) -> int | None:
    raw = request.query_params.get("merchant")
    if raw is None:
        return None
    if not (raw.isascii() and raw.isdecimal()) or len(raw) > _INTEGER_CHARS_MAX:
        raise RefusedError(ErrorCode.BAD_REQUEST, "merchant must be a whole number")
    return int(raw)


def _read_state(request: Request) -> str | None:
    state = request.query_params.get("state")
    if state is not None and state not in outbox_store.STATES:
        raise RefusedError(
            ErrorCode.BAD_REQUEST, f"state must be one of {', '.join(outbox_store.STATES)}"
        )
    return state


def _delivery_fields(delivery: outbox_store.DeliveryRecord) -> dict[str, object]:
    return {
        "event_id": str(delivery.event_id),
        "type": delivery.type,
        "payment_id": delivery.payment_id,
        "merchant_id": delivery.merchant_id,
        "state": delivery.state,
        "attempts": delivery.attempts,
        "next_at": format_timestamp(delivery.next_at),
        "occurred_at": format_timestamp(delivery.occurred_at),
    }
