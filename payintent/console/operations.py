"""All operations of the console: their list by subject."""

from collections.abc import Mapping
from itertools import groupby

from starlette.requests import Request
from starlette.responses import Response

from payintent.console.access import signed_in
from payintent.console.rendering import render
from payintent.domain.operator import Role
from payintent.operations.registry import OPERATIONS, Operation


async def get_operations(request: Request) -> Response:
    """`GET /operations`: what the operator's role may do, by subject."""
    session = await signed_in(request)
    return render(request, "operations.html", subjects=_allowed(session.actor.role))


def _allowed(role: Role | None) -> Mapping[str, list[Operation]]:
    kinds = [
        kind
        for kind in sorted(OPERATIONS.values(), key=lambda kind: kind.action)
        if role is not None and role.includes(kind.needs_role)
    ]
    grouped = groupby(kinds, key=lambda kind: kind.action.partition(".")[0])
    return {subject: list(members) for subject, members in grouped}
