"""The audit log page with its filters, and CSV and JSON Lines exports of the log."""

import csv
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from io import StringIO
from typing import Any
from urllib.parse import urlencode

import msgspec
from starlette.responses import Response, StreamingResponse

from payintent.console.access import OperatorVisit
from payintent.console.lists import read_merchant_names
from payintent.console.operation_forms import (
    FormField,
    build_form,
    find_invalid_field,
    read_operation,
)
from payintent.console.rendering import to_plain
from payintent.core.errors import NotFoundError, RefusedError
from payintent.operators.audit_store import AuditEntry
from payintent.operators.operations import ListAuditEntries
from payintent.runtime.json_format import encode_json

_PAGE_ROWS = 50
_BATCH_ROWS = 500  # entries per export batch, to bound memory
_FILTERS = ("who", "of", "merchant_id", "since", "until")
_COLUMNS = ("at", "who", "action", "merchant_id", "why", "details", "id")
#: Leading characters that make a spreadsheet treat a cell as a formula, or that end a field.
_FORMULA_PREFIXES = ("=", "+", "-", "@", "\t", "\r", "\n")


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
        query=urlencode(filters),
    )


async def get_audit_export(visit: OperatorVisit) -> Response:
    """`GET /audit/export.{extension}`: stream all entries that match the filters.

    The extension is `csv` or `jsonl`.
    """
    extension = visit.request.path_params["extension"]
    if extension not in _WRITERS:
        raise NotFoundError("an export must be csv or jsonl")
    operation = _read_operation(_read_filters(visit.request.query_params), _BATCH_ROWS)
    first = await visit.read(operation)
    media_type, header, write = _WRITERS[extension]
    return StreamingResponse(
        _stream_export(visit, operation, first, header, write),
        headers={
            "Cache-Control": "no-store",
            "Content-Disposition": f'attachment; filename="audit.{extension}"',
            "X-Content-Type-Options": "nosniff",
        },
        media_type=media_type,
    )


async def _stream_export(
    visit: OperatorVisit,
    operation: ListAuditEntries,
    entries: list[AuditEntry],
    header: bytes,
    write: Callable[[Iterable[AuditEntry]], bytes],
) -> AsyncIterator[bytes]:
    yield header
    while entries:
        yield write(entries)
        if len(entries) < operation.limit:
            return
        operation = msgspec.structs.replace(operation, before=entries[-1].id)
        entries = await visit.read(operation)


def _read_operation(fields: Mapping[str, str], limit: int) -> ListAuditEntries:
    return read_operation(ListAuditEntries, {**fields, "limit": str(limit)})


def _read_filters(query: Mapping[str, str]) -> dict[str, str]:
    return {name: query[name] for name in _FILTERS if query.get(name)}


def _build_filter_fields(query: Mapping[str, str], errors: Mapping[str, str]) -> list[FormField]:
    fields = {field.name: field for field in build_form(ListAuditEntries, query, errors)}
    return [fields[name] for name in _FILTERS]


def _to_csv(entries: Iterable[AuditEntry]) -> bytes:
    return _write_rows(
        [_guard_formula(_select_columns(entry)[name]) for name in _COLUMNS] for entry in entries
    )


def _to_json_lines(entries: Iterable[AuditEntry]) -> bytes:
    return b"".join(encode_json(_select_columns(entry)) + b"\n" for entry in entries)


def _select_columns(entry: AuditEntry) -> dict[str, Any]:
    fields: dict[str, Any] = to_plain(entry)
    return {name: fields[name] for name in _COLUMNS}


def _guard_formula(value: object) -> str:
    """Prefix text with a quote if a spreadsheet would interpret it as a formula."""
    if value is None:
        return ""
    text = encode_json({"": value})[4:-1].decode() if isinstance(value, dict) else str(value)
    return f"'{text}" if text.startswith(_FORMULA_PREFIXES) else text


def _write_rows(rows: Iterable[Iterable[str]]) -> bytes:
    buffer = StringIO()
    csv.writer(buffer, quoting=csv.QUOTE_ALL).writerows(rows)
    return buffer.getvalue().encode()


_WRITERS: dict[str, tuple[str, bytes, Callable[[Iterable[AuditEntry]], bytes]]] = {
    "csv": ("text/csv", _write_rows([_COLUMNS]), _to_csv),
    "jsonl": ("application/jsonl", b"", _to_json_lines),
}
