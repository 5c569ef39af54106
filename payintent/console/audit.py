"""The audit log: who changed what and why, filtered by the address bar, and as a file."""

import csv
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from io import StringIO
from typing import Any
from urllib.parse import urlencode

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from payintent.console.access import signed_in
from payintent.console.listing import read_list
from payintent.console.operation_forms import (
    FormField,
    build_form,
    find_wrong_field,
    read_operation,
)
from payintent.console.rendering import render
from payintent.console.results import to_plain
from payintent.console.sessions import OperatorSession
from payintent.domain.errors import NotFoundError, RefusedError
from payintent.json_format import encode_json
from payintent.operations.audit_log import ListAuditEntries
from payintent.storage.audit import AuditEntry

_PAGE = 50
_BATCH = 500  # entries of an export in memory
_FILTERS = ("who", "of", "merchant_id", "since", "until")
_COLUMNS = ("at", "who", "action", "merchant_id", "why", "details", "id")
#: Characters that a spreadsheet takes for a formula, or that end a field.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


async def get_audit(request: Request) -> Response:
    session = await signed_in(request)
    typed = dict(request.query_params)
    wrong: dict[str, str] = {}
    message: str | None = None
    entries: list[AuditEntry] = []
    try:
        operation = _read_filters(typed, before=typed.get("before", ""))
        entries = await read_list(request, session, operation)
    except RefusedError as refused:
        field = find_wrong_field(ListAuditEntries, refused)
        message = refused.message
        wrong = {} if field is None else {field: message}
    older = None
    if len(entries) == _PAGE:
        older = "/audit?" + urlencode(_given(typed) | {"before": str(entries[-1].id)})
    return render(
        request,
        "audit.html",
        status=400 if message else 200,
        refused=message,
        filters=_filters(typed, wrong),
        entries=[to_plain(entry) for entry in entries],
        older=older,
        query=urlencode(_given(typed)),
    )


async def get_audit_export(request: Request) -> Response:
    """`GET /audit/export.{form}`: all changes of the filters, as `csv` or `jsonl`.

    It is written while it is read, so that its size costs no memory.
    """
    session = await signed_in(request)
    form = request.path_params["form"]
    if form not in _WRITERS:
        raise NotFoundError("an export is csv or jsonl")
    operation = _read_filters(dict(request.query_params))
    first = await read_list(request, session, operation)
    media_type, head, write = _WRITERS[form]
    return StreamingResponse(
        _lines(request, session, operation, first, head, write),
        headers={
            "Cache-Control": "no-store",
            "Content-Disposition": f'attachment; filename="audit.{form}"',
            "X-Content-Type-Options": "nosniff",
        },
        media_type=media_type,
    )


async def _lines(
    request: Request,
    session: OperatorSession,
    operation: ListAuditEntries,
    entries: list[AuditEntry],
    head: bytes,
    write: Callable[[Iterable[AuditEntry]], bytes],
) -> AsyncIterator[bytes]:
    yield head
    while entries:
        yield write(entries)
        if len(entries) < operation.limit:
            return
        operation = msgspec.structs.replace(operation, before=entries[-1].id)
        entries = await read_list(request, session, operation)


def _read_filters(typed: Mapping[str, str], before: str | None = None) -> ListAuditEntries:
    """Make the operation of a page, or of an export where there is no `before`."""
    limit = {"limit": str(_BATCH if before is None else _PAGE)}
    return read_operation(
        ListAuditEntries, _given(typed) | limit | ({"before": before} if before else {})
    )


def _filters(typed: Mapping[str, str], wrong: Mapping[str, str]) -> list[FormField]:
    fields = {field.name: field for field in build_form(ListAuditEntries, typed, wrong)}
    return [fields[name] for name in _FILTERS]


def _given(typed: Mapping[str, str]) -> dict[str, str]:
    return {name: typed[name] for name in _FILTERS if typed.get(name)}


def _as_csv(entries: Iterable[AuditEntry]) -> bytes:
    return _write_rows(
        [_guard_formula(_plain(entry)[name]) for name in _COLUMNS] for entry in entries
    )


def _as_json_lines(entries: Iterable[AuditEntry]) -> bytes:
    return b"".join(encode_json(_plain(entry)) + b"\n" for entry in entries)


def _plain(entry: AuditEntry) -> dict[str, Any]:
    fields: dict[str, Any] = to_plain(entry)
    return {name: fields[name] for name in _COLUMNS}


def _guard_formula(value: object) -> str:
    """Write a value that no spreadsheet runs: put a quote before what looks like a formula."""
    if value is None:
        return ""
    text = encode_json({"": value})[4:-1].decode() if isinstance(value, dict) else str(value)
    return f"'{text}" if text.startswith(_FORMULA) else text


def _write_rows(rows: Iterable[Iterable[str]]) -> bytes:
    written = StringIO()
    csv.writer(written, quoting=csv.QUOTE_ALL).writerows(rows)
    return written.getvalue().encode()


_WRITERS: dict[str, tuple[str, bytes, Callable[[Iterable[AuditEntry]], bytes]]] = {
    "csv": ("text/csv", _write_rows([_COLUMNS]), _as_csv),
    "jsonl": ("application/jsonl", b"", _as_json_lines),
}
