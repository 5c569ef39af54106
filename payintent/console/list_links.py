"""Where the lists of the console are, with their filters in the address."""

from urllib.parse import urlencode

_LISTS = {
    "payments": "/payments",
    "cases": "/cases",
    "refunds": "/refunds",
    "disputes": "/disputes",
    "approvals": "/approvals",
    "webhooks": "/webhooks/events",
}


def list_url(name: str, **filters: str) -> str:
    """Return the address of a list; `filters` are fields of its operation."""
    return _LISTS[name] + (f"?{urlencode(filters)}" if filters else "")
