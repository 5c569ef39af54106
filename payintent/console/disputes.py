"""The page of disputes, with the time until each must be answered."""

from starlette.requests import Request
from starlette.responses import Response

from payintent.api.context import get_context
from payintent.console.access import signed_in
from payintent.console.listing import ROWS, other_page, read_list, read_query, typed
from payintent.console.rendering import render
from payintent.operations.disputes import ListDisputes
from payintent.storage import payments


async def get_disputes(request: Request) -> Response:
    """`GET /disputes`: disputes that run, newest first, or all."""
    session = await signed_in(request)
    wanted = read_query(request, ListDisputes, limit=ROWS)
    found = await read_list(request, session, wanted)
    older = other_page(request, before=found[-1].id) if len(found) == ROWS else None
    return render(
        request,
        "disputes.html",
        typed=typed(request),
        disputes=found,
        now=await payments.now(get_context(request).service.reading),
        which=wanted.status,
        older=older,
    )
