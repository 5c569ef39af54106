"""Conditional answers: strong ETags, and 304 without a body."""

from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import Response


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
