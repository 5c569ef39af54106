"""Cells: the database of each, whether it answers, how it does, and what may be done about it."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from starlette.requests import Request
from starlette.responses import Response

from payintent.api.context import get_context
from payintent.console.access import signed_in
from payintent.console.chains import runbook_section
from payintent.console.operations import list_allowed
from payintent.console.rendering import render
from payintent.operations.cell_views import CellView
from payintent.storage import payments
from payintent.storage.cell_facts import COUNTED_MAX

_AWAY = "A cell is away"
_LATE = "Copies are late"
_LATE_AFTER = timedelta(minutes=1)  # after a change, as the alert has it
_FULL_PART = 0.9  # of a server's connections
_WAITS = timedelta(minutes=5)  # longer than this it is late


@dataclass(frozen=True, slots=True, kw_only=True)
class CellPart:
    """What the page shows of one cell."""

    cell: CellView
    is_full: bool  # its server has hardly a connection left
    webhook_is_late: bool
    callback_is_late: bool
    runbook: str | None  # the heading of the section for its state
    steps: str | None  # that section, as HTML


async def get_cells(request: Request) -> Response:
    """`GET /cells`: every cell, as it was a second ago at most; each is asked at once."""
    session = await signed_in(request)
    app = get_context(request)
    cells = await app.cells.get()
    now = await payments.now(app.service.database)
    return render(
        request,
        "cells.html",
        parts=[_part(cell, now) for cell in cells],
        counted_max=COUNTED_MAX,
        now=now,
        allowed={kind.action for kind in list_allowed(session.actor.role)},
    )


def _part(cell: CellView, now: datetime) -> CellPart:
    heading = _find_runbook(cell, now)
    used, allowed = cell.server_connections, cell.connections_max
    return CellPart(
        cell=cell,
        is_full=used is not None and allowed is not None and used >= allowed * _FULL_PART,
        webhook_is_late=_is_late(cell.webhook_due_at, now),
        callback_is_late=_is_late(cell.callback_at, now),
        runbook=heading,
        steps=heading and runbook_section(heading),
    )


def _find_runbook(cell: CellView, now: datetime) -> str | None:
    """Return the section of the runbook for what is wrong with a cell; None where nothing is."""
    if not cell.answers:
        return _AWAY
    if not cell.changes_behind:
        return None
    is_late = cell.copied_at is None or now - cell.copied_at > _LATE_AFTER
    return _LATE if is_late or cell.changes_behind < 0 else None


def _is_late(at: datetime | None, now: datetime) -> bool:
    return at is not None and now - at > _WAITS
