"""`payintent webhooks list` and `show`: events, and every attempt to deliver them."""

from dataclasses import asdict
from typing import Any
from uuid import UUID

import typer

from payintent.cli.common import (
    Json,
    Limit,
    fail,
    print_json,
    print_record,
    print_table,
    read_as_operator,
)
from payintent.domain import ids
from payintent.domain.errors import ErrorCode, RefusedError
from payintent.service import Service
from payintent.storage import outbox
from payintent.storage.database import Row
from payintent.storage.outbox import DeliveryRecord, EventRecord

_Id = typer.Argument(help="Such as 01a1fd8e-30f1-7452-8742-48e063df9146.")


def add_to(group: typer.Typer) -> None:
    """Add `list` and `show` to the group `webhooks`."""
    group.command("list")(list_events)
    group.command("show")(show_event)


def list_events(
    merchant: int | None = typer.Option(None, help="Of one merchant."),
    state: str | None = typer.Option(None, help=f"One of {', '.join(outbox.STATES)}."),
    limit: int = Limit,
    as_json: bool = Json,
) -> None:
    """List events and how far their delivery is, newest first."""
    if state is not None and state not in outbox.STATES:
        fail(f"--state must be one of {', '.join(outbox.STATES)}")

    async def work(service: Service) -> list[DeliveryRecord]:
        return await outbox.list_deliveries(service.database, merchant, state, limit)

    columns = ("event_id", "type", "payment_id", "merchant_id", "state", "attempts")
    print_table([_named(delivery) for delivery in read_as_operator(work)], columns, as_json=as_json)


def show_event(event_id: UUID = _Id, as_json: bool = Json) -> None:
    """Show an event, its bytes, and every attempt at it."""

    async def work(service: Service) -> tuple[EventRecord, list[Row]]:
        found = await outbox.get_event(service.database, event_id)
        if found is None:
            raise RefusedError(ErrorCode.NOT_FOUND, f"no event {event_id}")
        return found, await outbox.list_attempts(service.database, event_id)

    found, attempts = read_as_operator(work)
    made = [dict(attempt) for attempt in attempts]
    if as_json:
        print_json({"event": _named(found), "attempts": made})
        return
    print_record(_named(found), as_json=False)
    print_table(made, ("number", "outcome", "status", "detail", "duration_ms"), as_json=False)


def _named(record: DeliveryRecord | EventRecord) -> dict[str, Any]:
    """Name the payment as merchants and operators know it."""
    return asdict(record) | {"payment_id": ids.format_id(ids.PAYMENT, record.payment_id)}
