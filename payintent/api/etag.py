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
    """Respond with a body and its ETag, or with 304 if the client has this body."""
    headers = {**headers, "ETag": etag}
    tags = ",".join(request.headers.getlist("If-None-Match")).split(",")
    # If-None-Match uses weak comparison (RFC 9110, 13.1.2).
    if any(tag.strip().removeprefix("W/") in {etag, "*"} for tag in tags):
        return Response(None, 304, headers)
    return Response(body, 200, headers, media_type)
