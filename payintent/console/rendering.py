"""Templates, headers and navigation of console pages, and the display of values."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import cache
from typing import Any, cast
from urllib.parse import quote, urlencode

import msgspec
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import Response

from payintent.console.list_links import make_list_links
from payintent.console.queue_counts import QUEUE_UNITS, format_queue_count
from payintent.console.sessions import OperatorSession
from payintent.core import ids
from payintent.core.money import format_rate, group_thousands
from payintent.core.texts import format_count
from payintent.http.middleware import ScriptSources, content_security_policy
from payintent.http.pages.static_files import (
    InlineBlock,
    StaticFiles,
    html_response,
    make_environment,
    make_inline_block,
)
from payintent.operations import OPERATIONS
from payintent.operators.fields import summarize
from payintent.operators.operation import OperationType, to_json_value
from payintent.runtime.json_format import encode_json, format_timestamp

#: The lists that can be filtered and exported.
LIST_PATHS = {
    "payments": "/payments",
    "cases": "/cases",
    "refunds": "/refunds",
    "disputes": "/disputes",
    "approvals": "/approvals",
    "merchants": "/merchants",
    "webhooks": "/webhooks",
    "events": "/webhooks/events",
}
_PATHS_BY_FIELD = {
    "merchant_id": "/merchants/{}",
    "account_id": "/operations/account/show?account_id={}",
    "event_id": "/webhooks/events/{}",
}
_PATHS_BY_ID_PREFIX = {
    ids.PAYMENT: "/payments/{}",
    ids.REFUND: "/refunds/{}",
    ids.CASE: "/cases/{}",
    ids.APPROVAL: "/approvals/{}",
}
_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", re.ASCII)
_STATUS_FIELDS = frozenset({"status", "state", "step", "activation", "outcome", "level"})
_AMOUNT_FIELD = re.compile(r"(?:.*_)?(?:amount|fee|tax|total|rate|minor|limit|count|attempts|ms)")
_KINDS: dict[type, str] = {bool: "flag", dict: "record", int: "number", float: "number"}
#: Secret fields, which are shown only once.
_SECRET_FIELDS = frozenset({"api_key", "token", "callback_secret", "secret"})
#: Navigation labels and their paths.
NAVIGATION = {
    "Today": "/",
    "Payments": "/payments",
    "Cases": "/cases",
    "Refunds": "/refunds",
    "Disputes": "/disputes",
    "Webhooks": "/webhooks",
    "Merchants": "/merchants",
    "Approvals": "/approvals",
    "Gateways": "/gateways",
    "Chains": "/chains",
    "Audit": "/audit",
    "Operations": "/operations",
}
_FILES = (
    "console.css",
    "figures.css",
    "lists.css",
    "times.js",
    "today.js",
    "uPlot.iife.min.js",
    "uPlot.min.css",
)
CONSOLE_FILES = StaticFiles("console/static", "/static", _FILES)
#: Labels for fields whose names are not suitable as labels.
_LABELS = {"at": "Time", "of": "Operation", "who": "Operator", "why": "Reason"}
_ACRONYMS = frozenset({"api", "id", "kyc", "uid", "url"})
_LONG_CHARS = 40
#: A whitespace character, and a position after punctuation in a URL.
_SPACE, _AFTER_PUNCTUATION = re.compile(r"(\s)"), re.compile(r"(?<=[/.:@?&=-])(?=[^/.:@?&=-])")
_WORD_CHARS, _PART_CHARS_MAX, _CHUNK_CHARS = 16, 32, 16
_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60))
_TONE_WORDS = {
    "good": "PAID SUCCEEDED ACTIVE APPROVED DELIVERED ENABLED OK HEALTHY RESOLVED WON",
    "warn": "WAITING PENDING PROCESSING OPEN SUSPENDED APPROVAL LAPSED LATE PARTIALLY_REFUNDED",
    "bad": "FAILED REJECTED DEAD REVOKED EXPIRED DISABLED HALTED LOST",
    "info": "REFUNDED QUEUED SENT NEW REQUESTED VALIDATED",
}
_TONES = {word: tone for tone, words in _TONE_WORDS.items() for word in words.split()}
_templates = make_environment("console/templates")
#: Headers of every response. With `no-referrer`, browsers would send `Origin: null` with forms.
COMMON_HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}


def list_url(name: str, **filters: str) -> str:
    """Return the URL of a list page; `filters` are fields of the list operation."""
    return LIST_PATHS[name] + (f"?{urlencode(filters)}" if filters else "")


def find_link(value: object, name: str) -> str | None:
    if isinstance(value, str):
        prefix, underscore, _ = value.partition("_")
        if underscore and prefix in _PATHS_BY_ID_PREFIX and ids.parse_id(prefix, value) is not None:
            return _PATHS_BY_ID_PREFIX[prefix].format(quote(value))
    if name in _PATHS_BY_FIELD and isinstance(value, str | int) and value != "":
        return _PATHS_BY_FIELD[name].format(quote(str(value)))
    return None


@dataclass(frozen=True, slots=True)
class DisplayValue:
    kind: str  # none, flag, time, status, link, number, record, table, list or text
    value: Any
    href: str | None = None


def to_plain(result: object) -> Any:
    return msgspec.json.decode(encode_json({"result": to_json_value(result)}))["result"]


def select_table_columns(rows: Sequence[dict[str, Any]], columns: Sequence[str] = ()) -> list[str]:
    """Return `columns` or, if it is empty, the fields of all rows."""
    if columns:
        return list(columns)
    return list(dict.fromkeys(name for row in rows for name in row))


def to_display_value(value: Any, name: str = "") -> DisplayValue:
    if value is None or value in ("", [], {}):
        return DisplayValue("none", None)
    href = find_link(value, name)
    return DisplayValue(_choose_display_kind(value, name) if href is None else "link", value, href)


def _choose_display_kind(value: Any, name: str) -> str:
    if isinstance(value, list):
        items = cast("list[object]", value)
        return "table" if all(isinstance(item, dict) for item in items) else "list"
    if isinstance(value, str) and _TIMESTAMP.fullmatch(value):
        return "time"
    if isinstance(value, str) and name in _STATUS_FIELDS:
        return "status"
    return _KINDS.get(value.__class__, "text")


def is_amount(name: str) -> bool:
    """Return whether a column contains amounts or counts, which are right-aligned."""
    return _AMOUNT_FIELD.fullmatch(name) is not None


def has_secret(result: Any) -> bool:
    if isinstance(result, dict):
        fields = cast("dict[str, Any]", result)
        return not _SECRET_FIELDS.isdisjoint(fields) or any(map(has_secret, fields.values()))
    return False


def format_label(name: str) -> str:
    """Return the label of a field, such as `Merchant ID`."""
    if label := _LABELS.get(name):
        return label
    words = name.replace("_", " ").capitalize().split(" ")
    return " ".join(word.upper() if word.lower() in _ACRONYMS else word for word in words)


@cache
def load_style(name: str) -> InlineBlock:
    return make_inline_block(CONSOLE_FILES.text(name))


_STYLE_SOURCES = [load_style(name).csp_source for name in _FILES if name.endswith(".css")]
#: Headers of every page and page fragment.
HEADERS = COMMON_HEADERS | {
    "Content-Security-Policy": content_security_policy(
        scripts=ScriptSources(), styles=_STYLE_SOURCES
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Vary": "Accept-Encoding, Cookie",
    "X-Frame-Options": "DENY",
    "X-Robots-Tag": "noindex, nofollow",
}


def render(
    request: Request, template_name: str, /, *, status: int = 200, **fields: Any
) -> Response:
    """Render a template with `fields`, and with the navigation if an operator is signed in."""
    session: OperatorSession | None = request.scope.get("payintent.console_session")
    html = _templates.get_template(template_name).render(
        _list_common_fields(request, session) | fields
    )
    return html_response(request, html, HEADERS, status)


def render_fragment(template_name: str, **fields: Any) -> str:
    """Render a page fragment that is independent of the request and the operator."""
    return _templates.get_template(template_name).render(fields)


def _list_common_fields(request: Request, session: OperatorSession | None) -> dict[str, Any]:
    path = request.url.path
    entries = NAVIGATION.items() if session else ()
    counts: Mapping[str, int] = request.scope.get("payintent.queue_counts", {})
    return {
        "asset": CONSOLE_FILES.url,
        **make_list_links(request),
        "merchant_names": {},
        "navigation": [  # label, path, and whether the section is open
            (name, entry, path == entry or (entry != "/" and path.startswith(f"{entry}/")))
            for name, entry in entries
        ],
        "path": path,
        "queue_counts": {
            label: (format_queue_count(count), QUEUE_UNITS[label])
            for label, count in counts.items()
            if count
        },
        "session": session,
        "style": load_style,
    }


def format_moment(moment: datetime) -> str:
    """Format a time in UTC, as `2026-01-31 09:30:00`."""
    return format_timestamp(moment)[:19].replace("T", " ")


def get_status_tone(word: str) -> str:
    return _TONES.get(word.upper(), "")


def format_plain_summary(kind: OperationType) -> str:
    return " ".join(summarize(kind).replace("`", "").split())


#: Titles of audited actions that are not operations.
_OTHER_TITLES = {
    "approval.propose": "Propose change",
    "list.export": "Export list",
    "operator.sign-in": "Sign in",
    "refund": "Refund",
}


def format_operation_title(action: str) -> str:
    """Return the title of an audited action, such as `Set callback URL`."""
    if action not in OPERATIONS:
        return _OTHER_TITLES.get(action, action)
    words = re.findall("[A-Z][a-z]+", OPERATIONS[action].__name__)
    return format_label(" ".join(words))


def is_long(value: object) -> bool:
    return isinstance(value, list | dict) or (isinstance(value, str) and len(value) > _LONG_CHARS)


def add_break_opportunities(value: object) -> Markup:
    """Let browsers break long words: after punctuation in URLs, or within long identifiers.

    Short words with punctuation, such as dates, are kept whole.
    """
    return Markup("").join(
        _split_long_word(word) if len(word) > _WORD_CHARS else _keep_whole(word)
        for word in _SPACE.split(str(value))
    )


def _keep_whole(word: str) -> Markup:
    if _AFTER_PUNCTUATION.search(word) is None:
        return escape(word)
    return Markup('<span class="whole">{}</span>').format(word)


def _split_long_word(word: str) -> Markup:
    chunks = [
        part[start : start + size]
        for part in _AFTER_PUNCTUATION.split(word)
        for size in (len(part) if len(part) <= _PART_CHARS_MAX else _CHUNK_CHARS,)
        for start in range(0, len(part), size)
    ]
    return Markup("<wbr>").join(map(escape, chunks))


def shorten_timestamp(text: str) -> str:
    return text[:19].replace("T", " ")


def format_age(at: datetime, now: datetime) -> str:
    seconds = max(0, int((now - at).total_seconds()))
    for unit, size in _UNITS:
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def format_percent(rate: Decimal | str) -> str:
    return f"{format_rate(Decimal(rate) * 100)} %"


def join_labels(fields: Mapping[str, object]) -> str:
    return ", ".join(map(format_label, fields))


cast("dict[str, Any]", _templates.filters).update(
    age=format_age,
    amount=group_thousands,
    breakable=add_break_opportunities,
    clock=shorten_timestamp,
    columns=select_table_columns,
    count=format_count,
    is_amount=is_amount,
    is_long=is_long,
    keys=join_labels,
    label=format_label,
    link=find_link,
    moment=format_moment,
    percent=format_percent,
    shown=to_display_value,
    summary=format_plain_summary,
    timestamp=format_timestamp,
    title=format_operation_title,
    tone=get_status_tone,
)
