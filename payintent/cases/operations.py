"""Operations that list and show cases, and the format of cases in the merchant API."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal
from uuid import UUID

from payintent.cases import list_store as case_lists
from payintent.cases import store as case_store
from payintent.cases.list_store import CaseDetails, CaseFilter, MerchantCase
from payintent.cases.model import CaseKind
from payintent.cases.store import STATUSES, CaseRecord
from payintent.core import ids
from payintent.core.errors import BadRequestError, NotFoundError
from payintent.core.money import format_smallest_units
from payintent.db.database import Executor
from payintent.http.pagination import read_id_cursor
from payintent.operators.fields import argument, option, parse_before, quote_input
from payintent.operators.operation import OperationContext, PendingList, ReadOperation
from payintent.payments.operations import OrderFilter
from payintent.payments.search_store import find_order_payments
from payintent.runtime.json_format import format_timestamp

_PAYMENT_ID = re.compile(r"pay_[0-9A-Za-z]{22}", re.ASCII)
_UNKNOWN_PAYMENT_ID = UUID(int=0)
CaseId = Annotated[str, argument("The case id, such as case_0351NDickobV3yYH8omp8v.")]


class ListCases(PendingList[list[CaseDetails]], frozen=True, kw_only=True):
    """List cases."""

    action: ClassVar[str] = "case.list"
    columns = (
        *("id", "kind", "status", "merchant_id", "payment_id"),
        *("chain", "amount_minor", "currency", "opened_at"),
    )
    status: Annotated[
        Literal["OPEN", "ACCEPTED", "DISMISSED", "REFUNDED", "ALL"],
        option("Only cases with this status, or ALL."),
    ] = "OPEN"
    kind: Annotated[CaseKind | None, option("Only cases of this kind.")] = None
    order_id: OrderFilter = None
    before: Annotated[str | None, option("The last case on the previous page.")] = None
    after: Annotated[
        str | None, option("The last case on the previous page, if the order is `oldest`.")
    ] = None

    async def read(self, context: OperationContext) -> list[CaseDetails]:
        times = await self.check_list(context, self.before, self.after)
        case_filter = CaseFilter(
            merchant_id=self.merchant_id,
            status=None if self.status == "ALL" else self.status,
            kind=self.kind,
            payment_ids=await find_order_payments(
                context.database, self.order_id, self.merchant_id
            ),
            opened_from=times.since,
            opened_before=times.until,
            oldest_first=self.order == "oldest",
            last=parse_before(ids.CASE, self.before) or parse_before(ids.CASE, self.after, "after"),
        )
        return await case_lists.list_cases(context.read_database, case_filter, self.limit)


class ShowCase(ReadOperation[CaseDetails], frozen=True, kw_only=True):
    """Show a case, with the expected and received amounts."""

    action: ClassVar[str] = "case.show"
    case_id: CaseId

    async def read(self, context: OperationContext) -> CaseDetails:
        case = await require_case(context.database, self.case_id)
        details = await case_lists.get(context.database, case.id)
        money = await case_lists.get_money(context.database, case.id)
        return replace(details, expected=money.expected, received=money.received)


async def read_case_details(database: Executor, case_id: str) -> CaseDetails:
    return await case_lists.get(database, (await require_case(database, case_id)).id)


async def require_case(database: Executor, case_id: str) -> CaseRecord:
    parsed_id = ids.parse_id(ids.CASE, case_id)
    case = await case_store.get(database, parsed_id) if parsed_id else None
    if case is None:
        raise NotFoundError(f"no case {quote_input(case_id)}")
    return case


def format_case(case: MerchantCase) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "id": ids.format_id(ids.CASE, case.id),
        "kind": case.kind,
        "status": case.status,
        "payment_id": case.payment_id and ids.format_id(ids.PAYMENT, case.payment_id),
        "currency": case.currency,
        "amount": _format_amount(case),
        "dispute": _format_dispute(case),
        "opened_at": format_timestamp(case.opened_at),
        "closed_at": case.closed_at and format_timestamp(case.closed_at),
    }
    return {name: value for name, value in fields.items() if value is not None}


def _format_amount(case: MerchantCase) -> str | None:
    if case.amount_minor is None or case.currency is None:
        return None
    return format_smallest_units(
        case.amount_minor, case.currency, case.token_decimals, on_chain=case.on_chain
    )


def _format_dispute(case: MerchantCase) -> dict[str, Any] | None:
    if case.dispute is None:
        return None
    fields: dict[str, Any] = {"state": case.dispute.state, "funds": case.dispute.funds}
    if case.dispute.reason:
        fields["reason"] = case.dispute.reason
    if case.dispute.respond_by is not None:
        fields["respond_by"] = format_timestamp(case.dispute.respond_by)
    return fields


def parse_case_filter(query: Mapping[str, str], merchant_id: int) -> CaseFilter:
    """Parse the query parameters of a case list; raise `BAD_REQUEST` for invalid values."""
    status, kind, payment = query.get("status"), query.get("kind"), query.get("payment_id")
    if status is not None and status not in STATUSES:
        raise BadRequestError(f"status must be one of {', '.join(STATUSES)}")
    if kind is not None and kind not in set(CaseKind):
        raise BadRequestError(f"kind must be one of {', '.join(CaseKind)}")
    return CaseFilter(
        merchant_id=merchant_id,
        status=status,
        kind=kind,
        payment_ids=None if payment is None else [_parse_payment_id(payment)],
        last=read_id_cursor(query.get("cursor")),
    )


def _parse_payment_id(raw: str) -> UUID:
    """Parse a payment id. An id with an invalid checksum does not match any case."""
    if not _PAYMENT_ID.fullmatch(raw):
        raise BadRequestError("payment_id must be a payment id")
    return ids.parse_id(ids.PAYMENT, raw) or _UNKNOWN_PAYMENT_ID
