"""The page of disputes, with the time until each must be answered."""

from starlette.requests import Request
from starlette.responses import Response

from payintent.console.access import signed_in
from payintent.console.context import get_console_context
from payintent.console.listing import ROWS, next_page, queue_order, read_list, read_query, typed
from payintent.console.rendering import render
from payintent.operations.disputes import ListDisputes
from payintent.storage.database import current_time


async def get_disputes(request: Request) -> Response:
    session = await signed_in(request)
    waits = request.query_params.get("status") in (None, "", "RUNNING")
    order = queue_order(request, waits=waits)
    wanted = read_query(request, ListDisputes, limit=ROWS, **order)
    found = await read_list(request, session, wanted)
    return render(
        request,
        "disputes.html",
        typed=typed(request),
        disputes=found,
        now=await current_time(get_console_context(request).reading),
        which=wanted.status,
        following=next_page(request, wanted.order, [row.id for row in found]),
    )
