"""Pages of lists: filters read from the address bar, links to the next page and to forms."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlencode

from starlette.requests import Request

from payintent.console.context import get_console_context
from payintent.console.sessions import OperatorSession
from payintent.operations.base import ChangeOperation, ReadOperation
from payintent.operations.conversion import convert_operation
from payintent.operations.submit import run_operation

R = TypeVar("R")
Read = TypeVar("Read", bound=ReadOperation[Any])
#: Rows of a page.
ROWS = 50
_MINUTES = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d", re.ASCII)  # as browsers send a time


def read_query(request: Request, kind: type[Read], **fixed: object) -> Read:
    """Make a list's operation of the address bar; what it does not name there is left out.

    Raises `BAD_REQUEST` for a value that the operation cannot have.
    """
    names = set(kind.__struct_fields__) - fixed.keys()
    values = {
        name: _with_seconds(value.strip())
        for name, value in request.query_params.items()
        if name in names and value.strip()
    }
    return convert_operation({**values, **fixed}, kind, strict=False)


async def read_list(request: Request, session: OperatorSession, operation: ReadOperation[R]) -> R:
    return await run_operation(
        get_console_context(request).operation_context, operation, session.actor
    )


def typed(request: Request) -> Mapping[str, str]:
    return {name: value.strip() for name, value in request.query_params.items()}


def other_page(request: Request, **changes: object) -> str:
    """Return the address of this page with other values; None leaves one out."""
    values = {**request.query_params, **changes}
    given = {name: str(value) for name, value in values.items() if value not in (None, "")}
    return f"{request.url.path}?{urlencode(given)}" if given else request.url.path


@dataclass(frozen=True, slots=True)
class NextPage:
    href: str
    label: str


def queue_order(request: Request, *, waits: bool) -> dict[str, str]:
    """Return the order of a list: what waits begins with the oldest, unless the address says."""
    return {"order": "oldest"} if waits and not request.query_params.get("order") else {}


def next_page(request: Request, order: str, ids: Sequence[object]) -> NextPage | None:
    """Return the page that follows one with these rows; None if it is the last."""
    if len(ids) < ROWS:
        return None
    if order == "oldest":
        return NextPage(other_page(request, after=ids[-1]), "Newer ones")
    return NextPage(other_page(request, before=ids[-1]), "Older ones")


def link_operation(
    session: OperatorSession, operation: type[ChangeOperation[Any]], **fields: object
) -> str | None:
    """Return the address of an operation's form with these fields; None if the role lacks it."""
    role = session.actor.role
    if role is None or not role.includes(operation.needs_role):
        return None
    address = f"/operations/{operation.action.replace('.', '/')}"
    given = {name: str(value) for name, value in fields.items() if value is not None}
    return f"{address}?{urlencode(given)}" if given else address


def _with_seconds(text: str) -> str:
    return f"{text}:00Z" if _MINUTES.fullmatch(text) else text
