"""JSON responses, conditional responses with ETags, server-sent events and list pages."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from payintent.runtime.json_format import encode_json

T = TypeVar("T")
#: Header of a response that is replayed for a repeated `Idempotency-Key`.
REPLAYED_HEADERS = {"Idempotency-Replayed": "true"}


def json_response(
    fields: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    return Response(encode_json(fields), status, headers, "application/json")


def etag_response(
    request: Request,
    body: bytes,
    etag: str,
    headers: Mapping[str, str],
    media_type: str = "application/json",
) -> Response:
    """Build a response with an ETag, or a 304 if the client already has this body."""
    headers = {**headers, "ETag": etag}
    tags = ",".join(request.headers.getlist("If-None-Match")).split(",")
    # If-None-Match uses weak comparison (RFC 9110, 13.1.2).
    if any(tag.strip().removeprefix("W/") in {etag, "*"} for tag in tags):
        return Response(None, 304, headers)
    return Response(body, 200, headers, media_type)


HEARTBEAT_S = 15.0
STREAM_S = 300.0  # afterwards the browser reconnects, possibly to a different process
_RETRY_MS = 2_000
STREAM_HEADERS = {
    "Content-Type": "text/event-stream",
    "X-Accel-Buffering": "no",  # proxies must not buffer events
}
#: The first bytes of a stream, which set the browser's reconnection delay.
STREAM_RETRY = f"retry: {_RETRY_MS}\n\n".encode()
#: An SSE comment that keeps the connection open.
STREAM_KEEP_ALIVE = b": here\n\n"


def encode_event(name: str, data: Mapping[str, Any], event_id: int | None = None) -> bytes:
    """Encode a server-sent event. Browsers send its ID as `Last-Event-ID` when they reconnect."""
    id_line = b"" if event_id is None else b"id: %d\n" % event_id
    return b"%bevent: %b\ndata: %b\n\n" % (id_line, name.encode(), encode_json(data))


#: Scope key: the ID of the authenticated merchant.
MERCHANT_ID = "payintent.merchant_id"


def page_response(
    rows: Sequence[T],
    limit: int,
    to_fields: Callable[[T], object],
    to_cursor: Callable[[T], str],
) -> Response:
    """Build a list page. Pass `limit + 1` rows if there is a next page."""
    page: dict[str, object] = {"data": [to_fields(row) for row in rows[:limit]]}
    if len(rows) > limit:
        page["next_cursor"] = to_cursor(rows[limit - 1])
    return json_response(page)
