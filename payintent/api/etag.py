"""JSON responses, and conditional responses with a strong ETag."""

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from payintent.json_format import encode_json

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
    """Answer with a body and its ETag, or 304 where the client has this very body."""
    carried = {**headers, "ETag": etag}
    tags = ",".join(request.headers.getlist("If-None-Match")).split(",")
    # Weak comparison, as RFC 9110 section 13.1.2 has it for If-None-Match.
    if any(tag.strip().removeprefix("W/") in {etag, "*"} for tag in tags):
        return Response(None, 304, carried)
    return Response(body, 200, carried, media_type)
