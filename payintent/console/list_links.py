"""Preserve a list's filters, order and page when the user follows a link and returns.

A link from a list to a page contains the list's query as the parameter `list`. The page links back
to the list with this query.
"""

from collections.abc import Mapping
from urllib.parse import parse_qsl, urlencode

from starlette.requests import Request

_PARAMETER = "list"
_CURSORS = frozenset({"before", "after"})
_QUERY_CHARS_MAX, _FIELDS_MAX = 1_500, 40


def make_list_links(request: Request) -> Mapping[str, str]:
    """Return the queries that links on the current page append to their URLs.

    `list_suffix`: from a list to one of its entries. `list_query`: from an entry back to its list.
    `kept_list`: from an entry to another page about the same entry; `list_value` is the same query
    as a form value. `export_query`: from a list to its export, which starts at the first page.
    """
    query = request.url.query
    list_query = _read_list_query(request)
    return {
        "list_suffix": _make_suffix(query if len(query) <= _QUERY_CHARS_MAX else ""),
        "list_query": f"?{list_query}" if list_query else "",
        "kept_list": _make_suffix(list_query),
        "list_value": list_query,
        "export_query": make_export_query(request),
    }


def _read_list_query(request: Request) -> str:
    """Return the query of the list that led to this page. An invalid query is ignored."""
    text = request.query_params.get(_PARAMETER, "")
    if len(text) > _QUERY_CHARS_MAX:
        return ""
    try:
        return urlencode(parse_qsl(text, max_num_fields=_FIELDS_MAX))
    except ValueError:
        return ""


def make_export_query(request: Request, **fixed_fields: str) -> str:
    """Return the query of a list's export, with `fixed_fields` instead of the list's values."""
    filters = {
        name: value
        for name, value in request.query_params.items()
        if name not in _CURSORS and value
    } | fixed_fields
    return f"?{urlencode(filters)}" if filters else ""


def _make_suffix(query: str) -> str:
    return f"?{urlencode({_PARAMETER: query})}" if query else ""
