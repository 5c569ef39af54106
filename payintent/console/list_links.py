"""URLs of lists in the console, with their filters."""

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
    """Return the URL of a list; `filters` are fields of its operation."""
    return _LISTS[name] + (f"?{urlencode(filters)}" if filters else "")
