"""Server-sent events: headers, encoding, and the duration of a stream."""

from collections.abc import Mapping
from typing import Any

from payintent.json_format import encode_json

HEARTBEAT_S = 15.0
STREAM_S = 300.0  # then the browser reconnects, possibly to a different process
_RETRY_MS = 2_000
HEADERS = {
    "Content-Type": "text/event-stream",
    "X-Accel-Buffering": "no",  # tell proxies not to buffer events
}
#: The first bytes of a stream: the delay before a browser reconnects.
RETRY = f"retry: {_RETRY_MS}\n\n".encode()
#: A comment that keeps the connection open.
KEEP_ALIVE = b": here\n\n"


def encode_event(name: str, data: Mapping[str, Any], event_id: int | None = None) -> bytes:
    """Encode an event; browsers send its id in `Last-Event-ID` when they reconnect."""
    number = b"" if event_id is None else b"id: %d\n" % event_id
    return b"%bevent: %b\ndata: %b\n\n" % (number, name.encode(), encode_json(data))
