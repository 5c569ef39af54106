"""The simulator's log: what it was asked and what it told merchants, each with the answer."""

from collections import deque
from typing import Any

from payintent_sandbox.emulators.simulator.model import rfc3339, utc_now

ENTRIES_MAX = 1_000  # older ones are forgotten
BODY_CHARS_MAX = 2_048


class Journal:
    """The last entries, oldest first. Keys and secrets are never in it."""

    def __init__(self) -> None:
        self._entries: deque[dict[str, Any]] = deque(maxlen=ENTRIES_MAX)

    def asked(self, method: str, path: str, body: bytes) -> dict[str, Any]:
        """Note a request; the caller adds the `status` of its answer."""
        return self._add(kind="request", method=method, path=path, body=_text(body))

    def told(self, event: dict[str, Any], body: bytes, **facts: Any) -> dict[str, Any]:
        """Note a callback; the caller adds the `status` or the `error` that came back."""
        known = {"kind": "callback", "id": event["id"], "type": event["type"]}
        return self._add(**known, **facts, body=_text(body))

    def entries(self) -> list[dict[str, Any]]:
        """List what is remembered."""
        return list(self._entries)

    def _add(self, **entry: Any) -> dict[str, Any]:
        entry = {"at": rfc3339(utc_now())} | entry
        self._entries.append(entry)
        return entry


def _text(body: bytes) -> str:
    return body[:BODY_CHARS_MAX].decode(errors="replace")
