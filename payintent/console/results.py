"""Prepare operation results for display, with links to lists and records."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import quote, urlencode

import msgspec

from payintent.core import ids
from payintent.operators.operation import to_json_value
from payintent.runtime.json_format import encode_json

_LISTS = {
    "payments": "/payments",
    "cases": "/cases",
    "refunds": "/refunds",
    "disputes": "/disputes",
    "approvals": "/approvals",
    "webhooks": "/webhooks/events",
}


def list_url(name: str, **filters: str) -> str:
    """Return the URL of a list page; `filters` are fields of the list operation."""
    return _LISTS[name] + (f"?{urlencode(filters)}" if filters else "")


_BY_NAME = {
    "merchant_id": "/merchants/{}",
    "account_id": "/operations/account/show?account_id={}",
    "event_id": "/webhooks/events/{}",
}
_BY_PREFIX = {
    ids.PAYMENT: "/payments/{}",
    ids.REFUND: "/refunds/{}",
    ids.CASE: "/cases/{}",
    ids.APPROVAL: "/approvals/{}",
}


def find_link(value: object, name: str) -> str | None:
    if isinstance(value, str):
        prefix, underscore, _ = value.partition("_")
        if underscore and prefix in _BY_PREFIX and ids.parse_id(prefix, value) is not None:
            return _BY_PREFIX[prefix].format(quote(value))
    if name in _BY_NAME and isinstance(value, str | int) and value != "":
        return _BY_NAME[name].format(quote(str(value)))
    return None


_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", re.ASCII)
_STATUSES = frozenset({"status", "state", "step", "activation", "outcome", "level"})
_AMOUNTS = re.compile(r"(?:.*_)?(?:amount|fee|tax|total|rate|minor|limit|count|attempts|ms)")
_KINDS: dict[type, str] = {bool: "flag", dict: "record", int: "number", float: "number"}
#: Secret fields, which are shown only once.
_SECRETS = frozenset({"api_key", "token", "callback_secret", "secret"})


@dataclass(frozen=True, slots=True)
class ShownValue:
    kind: str  # none, flag, time, status, link, number, record, table, list or text
    value: Any
    href: str | None = None


def to_plain(result: object) -> Any:
    return msgspec.json.decode(encode_json({"result": to_json_value(result)}))["result"]


def table_columns(rows: Sequence[dict[str, Any]], columns: Sequence[str] = ()) -> list[str]:
    """Return `columns` or, if it is empty, the fields of all rows."""
    if columns:
        return list(columns)
    return list(dict.fromkeys(name for row in rows for name in row))


def show_value(value: Any, name: str = "") -> ShownValue:
    if value is None or value in ("", [], {}):
        return ShownValue("none", None)
    href = find_link(value, name)
    return ShownValue(_kind(value, name) if href is None else "link", value, href)


def _kind(value: Any, name: str) -> str:
    if isinstance(value, list):
        items = cast("list[object]", value)
        return "table" if all(isinstance(item, dict) for item in items) else "list"
    if isinstance(value, str) and _TIME.fullmatch(value):
        return "time"
    if isinstance(value, str) and name in _STATUSES:
        return "status"
    return _KINDS.get(value.__class__, "text")


def is_amount(name: str) -> bool:
    """Return whether a column contains amounts or counts, which are right-aligned."""
    return _AMOUNTS.fullmatch(name) is not None


def has_secret(result: Any) -> bool:
    if isinstance(result, dict):
        fields = cast("dict[str, Any]", result)
        return not _SECRETS.isdisjoint(fields) or any(map(has_secret, fields.values()))
    return False


def label(name: str) -> str:
    return name.replace("_", " ").capitalize()
