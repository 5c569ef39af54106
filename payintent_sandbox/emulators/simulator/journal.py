"""The simulator's log: requests to it and callbacks to merchants, each with its response."""

from collections import deque
from typing import Any

from payintent_sandbox.emulators.simulator.model import rfc3339, utc_now

ENTRIES_MAX = 1_000  # older entries are dropped
BODY_CHARS_MAX = 2_048


class Journal:
    """The latest entries, oldest first. They contain no keys or secrets."""

    def __init__(self) -> None:
        self._entries: deque[dict[str, Any]] = deque(maxlen=ENTRIES_MAX)

    def add_request(self, method: str, path: str, body: bytes) -> dict[str, Any]:
        """Add a request. The caller sets the `status` of its response."""
        return self._add(kind="request", method=method, path=path, body=_text(body))

    def add_callback(self, event: dict[str, Any], body: bytes, **facts: Any) -> dict[str, Any]:
        """Add a callback. The caller sets the `status` of its response, or the `error`."""
        head = {"kind": "callback", "id": event["id"], "type": event["type"]}
        return self._add(**head, **facts, body=_text(body))

    def entries(self) -> list[dict[str, Any]]:
        """List the entries, oldest first."""
        return list(self._entries)

    def _add(self, **entry: Any) -> dict[str, Any]:
        entry = {"at": rfc3339(utc_now())} | entry
        self._entries.append(entry)
        return entry


def _text(body: bytes) -> str:
    return body[:BODY_CHARS_MAX].decode(errors="replace")
