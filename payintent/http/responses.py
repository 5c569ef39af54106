"""JSON responses, and conditional responses with a strong ETag."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from payintent.runtime.json_format import encode_json

T = TypeVar("T")
#: Marks the response to a repeated request with the same Idempotency-Key.
REPLAYED = {"Idempotency-Replayed": "true"}


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
    """Respond with a body and its ETag, or with 304 if the client has this body."""
    headers = {**headers, "ETag": etag}
    tags = ",".join(request.headers.getlist("If-None-Match")).split(",")
    # If-None-Match uses weak comparison (RFC 9110, 13.1.2).
    if any(tag.strip().removeprefix("W/") in {etag, "*"} for tag in tags):
        return Response(None, 304, headers)
    return Response(body, 200, headers, media_type)


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


#: Key of a request's scope: the authenticated merchant.
MERCHANT = "payintent.merchant_id"


def page_response(
    rows: Sequence[T], limit: int, fields: Callable[[T], object], cursor: Callable[[T], str]
) -> Response:
    """Respond with a page; `rows` has `limit + 1` rows if a page follows."""
    page: dict[str, object] = {"data": [fields(row) for row in rows[:limit]]}
    if len(rows) > limit:
        page["next_cursor"] = cursor(rows[limit - 1])
    return json_response(page)
