"""Compressed responses."""

import gzip
import re
from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import Response

_GZIP_LEVEL = 5
_SURROGATE = re.compile("[\ud800-\udfff]")


def accepts_gzip(request: Request) -> bool:
    """Whether a client accepts gzip; `gzip;q=0` rejects it."""
    for part in request.headers.get("accept-encoding", "").lower().split(","):
        coding, _, weight = part.partition(";")
        if coding.strip() == "gzip":
            return weight.strip().removeprefix("q=").strip("0.") != "" or not weight
    return False


def html_response(
    request: Request, html: str, headers: Mapping[str, str], status: int = 200
) -> Response:
    """Respond with a page, compressed if possible; unpaired surrogates are replaced."""
    content = _SURROGATE.sub("\ufffd", html).encode()
    if accepts_gzip(request):
        content = gzip.compress(content, _GZIP_LEVEL, mtime=0)
        headers = {**headers, "Content-Encoding": "gzip"}
    return Response(content, status, headers, "text/html")
