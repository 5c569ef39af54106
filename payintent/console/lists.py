"""The console's list pages: query filters, pagination links and links to forms."""

import re
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urlencode

from starlette.responses import Response

from payintent.console.access import OperatorVisit
from payintent.console.list_links import make_export_query
from payintent.db.database import get_current_time
from payintent.merchants import store as merchant_store
from payintent.operators.operation import ChangeOperation, ReadOperation
from payintent.operators.submit import convert_operation
from payintent.payments import search_store

Read = TypeVar("Read", bound=ReadOperation[Any])
#: Rows per page.
PAGE_ROWS = 50
#: Format of `datetime-local` inputs.
_DATETIME_LOCAL = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d", re.ASCII)


def read_query(visit: OperatorVisit, kind: type[Read], **fixed_fields: object) -> Read:
    """Build an operation from the query and `fixed_fields`, ignoring unknown parameters.

    Raises `BAD_REQUEST` for an invalid value.
    """
    names = set(kind.__struct_fields__) - fixed_fields.keys()
    values = {
        name: f"{value}:00Z" if _DATETIME_LOCAL.fullmatch(value) else value
        for name, value in visit.query.items()
        if name in names and value
    }
    return convert_operation({**values, **fixed_fields}, kind, strict=False)


async def render_queue(
    visit: OperatorVisit,
    template: str,
    name: str,
    kind: type[ReadOperation[Any]],
    *,
    is_pending: bool = False,
    pending_status: str | None = None,
    **fields: Any,
) -> Response:
    """Render a list page; the template receives the rows under the name `name`.

    Pending rows are sorted oldest first by default. Rows are pending if `is_pending` is set, or if
    the status filter is empty or equal to `pending_status`.
    """
    if pending_status is not None:
        is_pending = visit.query.get("status", "") in ("", pending_status)
    order = {"order": "oldest"} if is_pending and not visit.query.get("order") else {}
    operation: Any = read_query(visit, kind, limit=PAGE_ROWS, **order)
    rows = await visit.read(operation)
    fields |= {name: rows, "form_values": visit.query, "status_filter": operation.status}
    fields |= {"list_order": operation.order, "change_link": partial(change_query, visit)}
    fields["export_query"] = make_export_query(visit.request, **order)
    next_link = make_next_link(visit, operation.order, [row.id for row in rows])
    fields["merchant_names"] = await read_merchant_names(visit, rows)
    fields["order_ids"] = await read_order_ids(visit, rows)
    now = await get_current_time(visit.context.read_database)
    return visit.render(template, now=now, next_link=next_link, **fields)


async def read_merchant_names(visit: OperatorVisit, rows: Iterable[Any]) -> dict[int, str]:
    """Read the names of the merchants in `rows`, keyed by id."""
    merchant_ids = {row.merchant_id for row in rows if row.merchant_id is not None}
    return await merchant_store.list_names(visit.context.read_database, sorted(merchant_ids))


async def read_order_ids(visit: OperatorVisit, rows: Iterable[Any]) -> dict[str, str]:
    """Read the order ids of the payments in `rows`, by payment id."""
    payment_ids = [getattr(row, "payment_id", None) for row in rows]
    return await search_store.list_order_ids(visit.context.database, payment_ids)


def change_query(visit: OperatorVisit, **changes: object) -> str:
    """Return the current URL with changed query parameters. None removes a parameter."""
    url = visit.request.url.path
    values = {**visit.request.query_params, **changes}
    query = {name: str(value) for name, value in values.items() if value not in (None, "")}
    return f"{url}?{urlencode(query)}" if query else url


def make_next_link(
    visit: OperatorVisit, order: str, ids: Sequence[object], limit: int = PAGE_ROWS
) -> dict[str, str] | None:
    """Return the link to the page after these rows; None if there are fewer than `limit`."""
    if len(ids) < limit:
        return None
    if order == "oldest":
        return {"href": change_query(visit, after=ids[-1]), "label": "Newer"}
    return {"href": change_query(visit, before=ids[-1]), "label": "Older"}


def get_operation_url(
    visit: OperatorVisit, operation: type[ChangeOperation[Any]], **fields: object
) -> str | None:
    """Return the URL of an operation's form with these fields; None if the role may not run it."""
    if not visit.allows(operation):
        return None
    url = f"/operations/{operation.action.replace('.', '/')}"
    query = {name: str(value) for name, value in fields.items() if value is not None}
    return f"{url}?{urlencode(query)}" if query else url
