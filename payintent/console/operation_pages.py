"""Operation pages: the form, the dry run, the confirmation and the result."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import groupby
from typing import Any

from starlette.responses import Response

from payintent.approvals.operations import make_proposal_view
from payintent.console import operation_forms
from payintent.console.access import OperatorVisit
from payintent.console.lists import make_next_link
from payintent.console.rendering import has_secret, to_plain
from payintent.core.errors import BadRequestError, ErrorCode, RefusedError
from payintent.http.errors import get_http_status
from payintent.operations import OPERATIONS
from payintent.operators.operation import ChangeOperation, OperationType, ReadOperation
from payintent.operators.proposals_store import Proposal
from payintent.operators.submit import count_changes, describe, find_operation, submit

_CONFIRMED, _DRY_RUN = "confirmed", "dry-run"


async def get_operations(visit: OperatorVisit) -> Response:
    operation_types = sorted(
        _list_allowed_operations(visit), key=lambda operation_type: operation_type.action
    )
    groups = groupby(
        operation_types, key=lambda operation_type: operation_type.action.partition(".")[0]
    )
    return visit.render(
        "operations.html", subjects={subject: list(members) for subject, members in groups}
    )


async def get_operation(visit: OperatorVisit) -> Response:
    operation_type = _find_allowed_operation(visit)
    query = dict(visit.request.query_params)
    if not issubclass(operation_type, ReadOperation) or not operation_forms.has_required_fields(
        operation_type, query
    ):
        return _render_form(visit, operation_type, query)
    try:
        operation = operation_forms.read_operation(operation_type, query)
        result = await submit(visit.context.operation_context, operation, visit.actor)
    except RefusedError as refusal:
        return _render_form(visit, operation_type, query, refusal=refusal)
    plain = to_plain(result)
    next_link = _make_next_link(visit, operation, plain)
    return _render_form(
        visit, operation_type, query, result=plain, has_result=True, next_link=next_link
    )


async def post_operation(visit: OperatorVisit) -> Response:
    """`POST /operations/{subject}/{verb}`: perform a dry run, ask for confirmation, or execute."""
    operation_type = _find_allowed_operation(visit)
    if not issubclass(operation_type, ChangeOperation):
        raise BadRequestError(f"{operation_type.action} is read-only; use GET")
    try:
        return await _process_form(visit, operation_type)
    except RefusedError as refusal:
        return _render_form(visit, operation_type, visit.form, refusal=refusal)


def list_allowed_actions(visit: OperatorVisit) -> set[str]:
    return {operation_type.action for operation_type in _list_allowed_operations(visit)}


def _list_allowed_operations(visit: OperatorVisit) -> list[OperationType]:
    return [
        operation_type for operation_type in OPERATIONS.values() if visit.allows(operation_type)
    ]


def render_result(
    visit: OperatorVisit, operation_type: OperationType, result: object, back: str | None = None
) -> Response:
    """Render a change's result, or its proposal if a second operator must approve it."""
    if isinstance(result, Proposal):
        approval = to_plain(make_proposal_view(result))
        return visit.render(
            "proposed.html", status=202, operation_type=operation_type, approval=approval
        )
    plain = to_plain(result)
    return visit.render(
        "done.html",
        operation_type=operation_type,
        result=plain,
        secret=has_secret(plain),
        back=back,
    )


async def _process_form(
    visit: OperatorVisit, operation_type: type[ChangeOperation[Any]]
) -> Response:
    context, form = visit.context.operation_context, visit.form
    operation = operation_forms.read_operation(operation_type, form)
    actor = replace(visit.actor, reason=form.get("why", "").strip())
    step = form.get("step", "")
    if step == _DRY_RUN:
        preview = to_plain(await count_changes(context, operation, actor))
        return _render_form(visit, operation_type, form, preview=preview)
    if operation_type.is_destructive and step != _CONFIRMED:
        changes = await describe(context, operation, actor)
        return visit.render(
            "confirm.html",
            operation_type=operation_type,
            changes=changes,
            hidden_fields=operation_forms.list_hidden_fields(operation_type, form),
            why=actor.reason,
        )
    return render_result(visit, operation_type, await visit.submit(operation, actor.reason))


def _find_allowed_operation(visit: OperatorVisit) -> OperationType:
    """Return the operation in the path; raise `FORBIDDEN` if the role does not allow it."""
    path = visit.request.path_params
    operation_type = find_operation(OPERATIONS, f"{path['subject']}.{path['verb']}")
    if not visit.allows(operation_type):
        raise RefusedError(
            ErrorCode.FORBIDDEN,
            f"{operation_type.action} requires the {operation_type.needs_role} role; "
            f"{visit.actor.name} has the {visit.actor.role} role",
        )
    return operation_type


def _render_form(
    visit: OperatorVisit,
    operation_type: OperationType,
    form: Mapping[str, str],
    *,
    refusal: RefusedError | None = None,
    **result_fields: Any,
) -> Response:
    """Render an operation's form with its values, and its error or result if there is one."""
    field = None if refusal is None else operation_forms.find_invalid_field(operation_type, refusal)
    errors = {} if refusal is None or field is None else {field: refusal.message}
    prefix = f"{operation_type.action.partition('.')[0]}."
    related_operations = [
        related_type
        for related_type in _list_allowed_operations(visit)
        if related_type.action.startswith(prefix) and related_type is not operation_type
    ]
    fields: dict[str, Any] = {
        "operation_type": operation_type,
        "is_read": issubclass(operation_type, ReadOperation),
        "fields": operation_forms.build_form(operation_type, form, errors),
        "why": form.get("why", ""),
        "why_error": errors.get("why"),
        "refusal": None if refusal is None else _format_error(field, refusal),
        "related_operations": related_operations,
        "has_result": False,
        "result": None,
        "next_link": None,
        "preview": None,
    }
    status = 200 if refusal is None else get_http_status(refusal)
    response = visit.render("operation.html", status=status, **fields | result_fields)
    if refusal is not None and refusal.retry_after_s is not None:
        response.headers["Retry-After"] = str(refusal.retry_after_s)
    return response


def _format_error(field: str | None, refusal: RefusedError) -> str:
    if field is None or refusal.message.startswith(field):
        return refusal.message
    return f"{field.replace('_', ' ')}: {refusal.message}"


def _make_next_link(visit: OperatorVisit, operation: Any, rows: Any) -> dict[str, str] | None:
    """Return the link to the next page if the operation is a list with more rows."""
    if "before" not in operation.__struct_fields__:
        return None
    row_ids = [row.get("id") or row["event_id"] for row in rows]
    order = getattr(operation, "order", "newest")
    return make_next_link(visit, order, row_ids, operation.limit)


def make_page_actions(links: Iterable[tuple[str, str | None]]) -> list[dict[str, str]]:
    """Make page actions from `(label, URL)` pairs, omitting pairs without a URL."""
    return [{"label": label, "href": href} for label, href in links if href is not None]
