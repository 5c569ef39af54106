"""The audit log page with its filters, and CSV and JSON Lines exports of the log."""

from collections.abc import Mapping
from functools import partial
from urllib.parse import urlencode

from starlette.responses import Response

from payintent.console.access import OperatorVisit
from payintent.console.exports import stream_recorded_export
from payintent.console.lists import read_merchant_names
from payintent.console.operation_forms import (
    FormField,
    build_form,
    find_invalid_field,
    read_operation,
)
from payintent.console.rendering import to_plain
from payintent.core.errors import RefusedError
from payintent.http.exports import PAGE_ROWS, Export, read_pages
from payintent.operators.audit_store import AuditEntry
from payintent.operators.operations import ListAuditEntries

_PAGE_ROWS = 50
_EXPORT_ROWS_MAX = 1_000_000
_FILTERS = ("who", "of", "merchant_id", "since", "until")
_COLUMNS = ("at", "who", "action", "merchant_id", "why", "details", "id")


async def get_audit(visit: OperatorVisit) -> Response:
    query = dict(visit.request.query_params)
    filters = _read_filters(query)
    errors: dict[str, str] = {}
    message: str | None = None
    entries: list[AuditEntry] = []
    try:
        before = {"before": query["before"]} if query.get("before") else {}
        entries = await visit.read(_read_operation(filters | before, _PAGE_ROWS))
    except RefusedError as refusal:
        field = find_invalid_field(ListAuditEntries, refusal)
        message = refusal.message
        errors = {} if field is None else {field: message}
    older_url = None
    if len(entries) == _PAGE_ROWS:
        older_url = "/audit?" + urlencode(filters | {"before": str(entries[-1].id)})
    return visit.render(
        "audit.html",
        status=400 if message else 200,
        refusal=message,
        filters=_build_filter_fields(query, errors),
        entries=[to_plain(entry) for entry in entries],
        merchant_names=await read_merchant_names(visit, entries),
        older_url=older_url,
    )


async def get_audit_export(visit: OperatorVisit) -> Response:
    """`GET /audit/export.{extension}`: stream all entries that match the filters.

    The extension is `csv` or `jsonl`.
    """
    filters = _read_filters(visit.request.query_params)
    export = Export(
        name="audit",
        columns=_COLUMNS,
        pages=read_pages(partial(_read_page, visit, filters)),
        make_fields=to_plain,
        rows_max=_EXPORT_ROWS_MAX,
    )
    return await stream_recorded_export(visit, export, _read_operation(filters, PAGE_ROWS))


async def _read_page(
    visit: OperatorVisit, filters: Mapping[str, str], last: AuditEntry | None, limit: int
) -> list[AuditEntry]:
    before = {} if last is None else {"before": str(last.id)}
    return await visit.read(_read_operation({**filters, **before}, limit))


def _read_operation(fields: Mapping[str, str], limit: int) -> ListAuditEntries:
    return read_operation(ListAuditEntries, {**fields, "limit": str(limit)})


def _read_filters(query: Mapping[str, str]) -> dict[str, str]:
    return {name: query[name] for name in _FILTERS if query.get(name)}


def _build_filter_fields(query: Mapping[str, str], errors: Mapping[str, str]) -> list[FormField]:
    fields = {field.name: field for field in build_form(ListAuditEntries, query, errors)}
    return [fields[name] for name in _FILTERS]
