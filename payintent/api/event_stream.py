"""Server-sent events: their headers, their bytes, and how long one stream lasts."""

from collections.abc import Mapping
from typing import Any

from payintent.json_format import encode_json

HEARTBEAT_S = 15.0
STREAM_S = 300.0  # then the browser reconnects, maybe to another process
_RETRY_MS = 2_000
HEADERS = {
    "Content-Type": "text/event-stream",
    "X-Accel-Buffering": "no",  # a proxy that buffers would hold events back
}
#: The first bytes of a stream: how long a browser waits before it connects again.
RETRY = f"retry: {_RETRY_MS}\n\n".encode()
#: A comment, which keeps the connection open.
KEEP_ALIVE = b": here\n\n"


def encode_event(name: str, data: Mapping[str, Any], event_id: int | None = None) -> bytes:
    """Write an event; `event_id` is what a browser gives back as `Last-Event-ID`."""
    number = b"" if event_id is None else b"id: %d\n" % event_id
    return b"%bevent: %b\ndata: %b\n\n" % (number, name.encode(), encode_json(data))
