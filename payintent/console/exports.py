"""Exports of the console's lists, each recorded in the audit log with its filters."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from msgspec import structs
from starlette.responses import Response

from payintent.approvals.operations import ListApprovals
from payintent.cases.list_store import CaseDetails
from payintent.cases.operations import ListCases
from payintent.console.access import OperatorVisit
from payintent.console.lists import read_query
from payintent.console.rendering import to_plain
from payintent.disputes.operations import ListDisputes
from payintent.http.exports import (
    PAGE_ROWS,
    Export,
    IncompleteExportError,
    read_pages,
    stream_export,
)
from payintent.merchants.operations import ListMerchants
from payintent.operators.export_log import record_export
from payintent.operators.operation import ReadOperation, to_json_value
from payintent.payments.operations import ListPayments
from payintent.payments.search_store import PaymentRecord
from payintent.refunds.operations import ListRefunds
from payintent.webhooks.operations import ListDeliveries, ListEndpoints

T = TypeVar("T")
_PAGE_FIELDS = frozenset({"before", "after", "limit", "order"})
#: Maximum number of reads of up to 10,000 payments each, for filters without an index.
_PAYMENT_READS_MAX = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedList:
    operation: type[ReadOperation[list[Any]]]
    columns: tuple[str, ...]
    cursor: str = "id"  # the field of a row from which the next page continues
    is_ascending: bool = False  # always sorted by an ascending number
    make_fields: Callable[[Any], Mapping[str, Any]] = to_plain


def _make_case_fields(case: CaseDetails) -> Mapping[str, Any]:
    return to_plain(case) | {"received": case.received and case.received.text}


#: The lists by the first segment of their path.
EXPORTED_LISTS = {
    "payments": ExportedList(
        operation=ListPayments,
        columns=(
            *("id", "created_at", "status", "amount", "currency", "merchant_id", "order_id"),
            *("payer_uid", "provider", "kind", "chain", "country", "expires_at", "updated_at"),
        ),
    ),
    "cases": ExportedList(
        operation=ListCases,
        columns=(
            *("id", "opened_at", "kind", "status", "received", "merchant_id", "payment_id"),
            *("account_id", "reference", "chain", "tx_hash", "closed_at", "closed_by", "note"),
        ),
        make_fields=_make_case_fields,
    ),
    "refunds": ExportedList(
        operation=ListRefunds,
        columns=(
            *("id", "created_at", "status", "step", "amount", "currency", "amount_minor"),
            *("merchant_id", "payment_id", "case_id", "provider", "account_id", "destination"),
            *("chain", "reason", "requested_by", "approved_by", "note", "failure_reason"),
            *("reference", "sent_at", "updated_at"),
        ),
    ),
    "disputes": ExportedList(
        operation=ListDisputes,
        columns=(
            *("id", "created_at", "reference", "state", "funds", "amount", "currency", "reason"),
            *("respond_by", "case_id", "case_status", "merchant_id", "payment_id", "account_id"),
            "updated_at",
        ),
    ),
    "approvals": ExportedList(
        operation=ListApprovals,
        columns=(
            *("id", "proposed_at", "action", "status", "changes", "merchant_id", "proposed_by"),
            *("why", "expires_at", "decided_by", "decided_at", "note"),
        ),
    ),
    "merchants": ExportedList(
        operation=ListMerchants,
        columns=(
            *("id", "name", "activation", "livemode", "callback_url", "tax_manager"),
            *("default_country", "return_url", "support_url"),
        ),
        is_ascending=True,
    ),
    "webhooks": ExportedList(
        operation=ListEndpoints,
        columns=(
            *("merchant_id", "merchant_name", "callback_url", "pending", "late_s", "dead"),
            *("skipped", "attempts", "delivered", "median_ms", "p95_ms", "slowest_ms"),
            *("open_since", "open_until", "trips", "last_at", "last_outcome", "last_status"),
        ),
        cursor="merchant_id",
        is_ascending=True,
    ),
    "events": ExportedList(
        operation=ListDeliveries,
        columns=(
            *("event_id", "occurred_at", "type", "state", "attempts", "next_at"),
            *("merchant_id", "payment_id"),
        ),
        cursor="event_id",
    ),
}


def make_export_page(name: str) -> Callable[[OperatorVisit], Awaitable[Response]]:
    """Return the handler that exports every list entry matching the query's filters."""
    exported = EXPORTED_LISTS[name]

    async def get_export(visit: OperatorVisit) -> Response:
        operation = read_query(
            visit, exported.operation, **_start_fields(exported), limit=PAGE_ROWS
        )
        pages = (
            _read_payment_pages(visit, operation)
            if isinstance(operation, ListPayments)
            else read_pages(_make_page_reader(visit, exported, operation))
        )
        return await stream_recorded_export(
            visit,
            Export(
                name=name,
                columns=exported.columns,
                pages=pages,
                make_fields=exported.make_fields,
            ),
            operation,
        )

    return get_export


async def stream_recorded_export(
    visit: OperatorVisit, export: Export[Any], operation: ReadOperation[Any]
) -> Response:
    """Stream an export, and record it in the audit log."""
    target = visit.make_export_target()
    record = partial(
        record_export,
        visit.context.database,
        visit.actor,
        getattr(operation, "merchant_id", None),
        export.name,
        target.extension,
        _list_filters(operation),
    )
    return await stream_export(export, target, record)


def _start_fields(exported: ExportedList) -> dict[str, Any]:
    """Return the cursors of the first page, which replace the cursors in the list's URL."""
    names = {"before", "after"} & set(exported.operation.__struct_fields__)
    return dict.fromkeys(names, 0 if exported.is_ascending else None)


def _make_page_reader(
    visit: OperatorVisit, exported: ExportedList, operation: ReadOperation[list[Any]]
) -> Callable[[Any, int], Awaitable[Sequence[Any]]]:
    is_ascending = exported.is_ascending or getattr(operation, "order", "newest") == "oldest"
    cursor = "after" if is_ascending else "before"

    async def read_page(last: Any, limit: int) -> Sequence[Any]:
        position = {} if last is None else {cursor: getattr(last, exported.cursor)}
        return await visit.read(structs.replace(operation, limit=limit, **position))

    return read_page


async def _read_payment_pages(
    visit: OperatorVisit, operation: ListPayments
) -> AsyncGenerator[Sequence[PaymentRecord]]:
    """Yield pages of payments. Pages that are empty because of the filters are skipped."""
    for _ in range(_PAYMENT_READS_MAX):
        page = await operation.read_page(visit.context.operation_context)
        if page.payments:
            yield page.payments
        if page.next_before is None:
            return
        operation = structs.replace(operation, before=page.next_before)
    raise IncompleteExportError("too many payments were searched")


def _list_filters(operation: ReadOperation[Any]) -> dict[str, Any]:
    filters = {
        field.name: getattr(operation, field.name)
        for field in structs.fields(operation)
        if field.name not in _PAGE_FIELDS
    }
    return {
        name: to_json_value(value)
        for name, value in filters.items()
        if value is not None and value is not False
    }
