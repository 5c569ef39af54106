"""A page for every operation: its form, a dry run, a confirmation, and what it gave."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import groupby
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from payintent.api.errors import http_status
from payintent.console.access import read_form, signed_in
from payintent.console.context import get_console_context
from payintent.console.operation_forms import (
    build_form,
    find_wrong_field,
    has_required,
    read_operation,
    typed_again,
)
from payintent.console.rendering import render
from payintent.console.results import has_secret, to_plain
from payintent.console.sessions import OperatorSession
from payintent.domain.errors import BadRequestError, ErrorCode, RefusedError
from payintent.domain.operator import Role
from payintent.operations.approvals import proposal_view
from payintent.operations.base import ChangeOperation, OperationType, ReadOperation
from payintent.operations.conversion import find_operation
from payintent.operations.registry import OPERATIONS
from payintent.operations.submit import describe, foresee, submit
from payintent.storage.proposals import Proposal

_CONFIRMED, _DRY_RUN = "confirmed", "dry-run"


async def get_operations(request: Request) -> Response:
    session = await signed_in(request)
    kinds = sorted(list_allowed(session.actor.role), key=lambda kind: kind.action)
    grouped = groupby(kinds, key=lambda kind: kind.action.partition(".")[0])
    subjects = {subject: list(members) for subject, members in grouped}
    return render(request, "operations.html", subjects=subjects)


async def get_operation(request: Request) -> Response:
    session = await signed_in(request)
    kind = _find_allowed(request, session)
    typed = dict(request.query_params)
    if not issubclass(kind, ReadOperation) or not has_required(kind, typed):
        return _form_page(request, session, kind, typed)
    try:
        operation = read_operation(kind, typed)
        result = await submit(
            get_console_context(request).operation_context, operation, session.actor
        )
    except RefusedError as refused:
        return _form_page(request, session, kind, typed, refused=refused)
    plain = to_plain(result)
    older = _older_page(request, operation, plain)
    return _form_page(request, session, kind, typed, result=plain, has_result=True, older=older)


async def post_operation(request: Request) -> Response:
    """`POST /operations/{subject}/{verb}`: a dry run, a confirmation, or the change itself."""
    session = await signed_in(request)
    kind = _find_allowed(request, session)
    typed = await read_form(request, session)
    if not issubclass(kind, ChangeOperation):
        raise BadRequestError(f"{kind.action} changes nothing")
    try:
        return await _run_step(request, session, kind, typed)
    except RefusedError as refused:
        return _form_page(request, session, kind, typed, refused=refused)


def list_allowed(role: Role | None) -> list[OperationType]:
    return [
        kind for kind in OPERATIONS.values() if role is not None and role.includes(kind.needs_role)
    ]


def render_done(
    request: Request,
    kind: OperationType,
    result: object,
    back: str | None = None,
) -> Response:
    """Show what a change gave, or that it waits for a second person."""
    if isinstance(result, Proposal):
        approval = to_plain(proposal_view(result))
        return render(request, "proposed.html", status=202, kind=kind, approval=approval)
    plain = to_plain(result)
    return render(
        request,
        "done.html",
        kind=kind,
        result=plain,
        secret=has_secret(plain),
        back=back,
    )


async def _run_step(
    request: Request,
    session: OperatorSession,
    kind: type[ChangeOperation[Any]],
    typed: Mapping[str, str],
) -> Response:
    context = get_console_context(request)
    operation = read_operation(kind, typed)
    actor = replace(session.actor, why=typed.get("why", "").strip())
    step = typed.get("step", "")
    if step == _DRY_RUN:
        foreseen = to_plain(await foresee(context.operation_context, operation, actor))
        return _form_page(request, session, kind, typed, foreseen=foreseen)
    if kind.is_destructive and step != _CONFIRMED:
        changes = await describe(context.operation_context, operation, actor)
        return render(
            request,
            "confirm.html",
            kind=kind,
            changes=changes,
            again=typed_again(kind, typed),
            why=actor.why,
        )
    return render_done(request, kind, await submit(context.operation_context, operation, actor))


def _find_allowed(request: Request, session: OperatorSession) -> OperationType:
    """Return the operation of a path; `FORBIDDEN` if the role does not include it."""
    params = request.path_params
    kind = find_operation(OPERATIONS, f"{params['subject']}.{params['verb']}")
    role = session.actor.role
    if role is None or not role.includes(kind.needs_role):
        raise RefusedError(
            ErrorCode.FORBIDDEN,
            f"{kind.action} needs the role {kind.needs_role}; {session.actor.who} is {role}",
        )
    return kind


def _form_page(
    request: Request,
    session: OperatorSession,
    kind: OperationType,
    typed: Mapping[str, str],
    *,
    refused: RefusedError | None = None,
    **shown: Any,
) -> Response:
    """Show an operation's form, with what was typed and what is wrong with it."""
    field = None if refused is None else find_wrong_field(kind, refused)
    wrong = {} if refused is None or field is None else {field: refused.message}
    subject = kind.action.partition(".")[0]
    siblings = [
        other
        for other in list_allowed(session.actor.role)
        if other.action.startswith(f"{subject}.") and other is not kind
    ]
    fields: dict[str, Any] = {
        "kind": kind,
        "is_read": issubclass(kind, ReadOperation),
        "fields": build_form(kind, typed, wrong),
        "why": typed.get("why", ""),
        "refused": None if refused is None else _words(field, refused),
        "siblings": siblings,
        "has_result": False,
        "result": None,
        "older": None,
        "foreseen": None,
    }
    response = render(
        request,
        "operation.html",
        status=200 if refused is None else http_status(refused),
        **fields | shown,
    )
    if refused is not None and refused.retry_after_s is not None:
        response.headers["Retry-After"] = str(refused.retry_after_s)
    return response


def _words(field: str | None, refused: RefusedError) -> str:
    if field is None or refused.message.startswith(field):
        return refused.message
    return f"{field.replace('_', ' ')}: {refused.message}"


def _older_page(request: Request, operation: Any, result: Any) -> str | None:
    """Return the address of the next page of a list that is read by keyset."""
    if "before" not in operation.__struct_fields__ or len(result) < operation.limit:
        return None
    last = result[-1]
    query: dict[str, str] = {**request.query_params, "before": last.get("id") or last["event_id"]}
    return f"{request.url.path}?{urlencode(query)}"
