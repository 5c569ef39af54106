"""The merchant's view of cases: list filters and JSON fields."""

import re
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from payintent.cases.list_store import CaseFilter, MerchantCase
from payintent.cases.model import CaseKind
from payintent.cases.store import STATUSES
from payintent.core import ids
from payintent.core.errors import ErrorCode, RefusedError
from payintent.core.money import format_smallest_units
from payintent.http.pagination import read_id_cursor
from payintent.runtime.json_format import format_timestamp

_PAYMENT_ID = re.compile(r"pay_[0-9A-Za-z]{22}", re.ASCII)
_NO_PAYMENT = UUID(int=0)


def case_fields(case: MerchantCase) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "id": ids.format_id(ids.CASE, case.id),
        "kind": case.kind,
        "status": case.status,
        "payment_id": case.payment_id and ids.format_id(ids.PAYMENT, case.payment_id),
        "currency": case.currency,
        "amount": _amount(case),
        "dispute": _dispute(case),
        "opened_at": format_timestamp(case.opened_at),
        "closed_at": case.closed_at and format_timestamp(case.closed_at),
    }
    return {name: value for name, value in fields.items() if value is not None}


def _amount(case: MerchantCase) -> str | None:
    if case.amount_minor is None or case.currency is None:
        return None
    return format_smallest_units(
        case.amount_minor, case.currency, case.token_decimals, on_chain=case.on_chain
    )


def _dispute(case: MerchantCase) -> dict[str, Any] | None:
    if case.dispute is None:
        return None
    fields: dict[str, Any] = {"state": case.dispute.state, "funds": case.dispute.funds}
    if case.dispute.reason:
        fields["reason"] = case.dispute.reason
    if case.dispute.respond_by is not None:
        fields["respond_by"] = format_timestamp(case.dispute.respond_by)
    return fields


def read_case_filter(query: Mapping[str, str], merchant_id: int) -> CaseFilter:
    """Parse the query parameters of a case list; raises `BAD_REQUEST` for invalid values."""
    status, kind, payment = query.get("status"), query.get("kind"), query.get("payment_id")
    if status is not None and status not in STATUSES:
        raise RefusedError(ErrorCode.BAD_REQUEST, f"status must be one of {', '.join(STATUSES)}")
    if kind is not None and kind not in set(CaseKind):
        raise RefusedError(ErrorCode.BAD_REQUEST, f"kind must be one of {', '.join(CaseKind)}")
    return CaseFilter(
        merchant_id=merchant_id,
        status=status,
        kind=kind,
        payment_id=None if payment is None else _payment_id(payment),
        last=read_id_cursor(query.get("cursor")),
    )


def _payment_id(raw: str) -> UUID:
    """Parse a payment id. An id with an invalid checksum does not match any case."""
    if not _PAYMENT_ID.fullmatch(raw):
        raise RefusedError(ErrorCode.BAD_REQUEST, "payment_id must be the id of a payment")
    return ids.parse_id(ids.PAYMENT, raw) or _NO_PAYMENT
