"""The page of disputes, with the time that is left to respond to each."""

from starlette.responses import Response

from payintent.console.access import OperatorVisit
from payintent.console.listing import has_status, next_page, read_queue
from payintent.operations.disputes import ListDisputes
from payintent.storage.database import current_time


async def get_disputes(visit: OperatorVisit) -> Response:
    operation = read_queue(visit, ListDisputes, is_pending=has_status(visit, "RUNNING"))
    disputes = await visit.read(operation)
    return visit.render(
        "disputes.html",
        typed=visit.query,
        disputes=disputes,
        now=await current_time(visit.context.reading),
        which=operation.status,
        following=next_page(visit, operation.order, [dispute.id for dispute in disputes]),
    )
