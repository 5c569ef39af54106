"""The request target of a URL as it was given, where the HTTP library would encode it anew."""

from __future__ import annotations

import re
from urllib.parse import quote

import httpx

_PARTS = re.compile(r"[^:/?#]*://[^/?#]*([^#]*)(?:#.*)?", re.DOTALL)
_AS_GIVEN = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"


def exact_target(url: str) -> dict[str, bytes]:
    """Return the extensions of a request by which `url` is called byte for byte.

    They are empty if the library sends the same anyway: with a proxy they would do harm.
    """
    match = _PARTS.fullmatch(url)
    if match is None:
        return {}
    path = match[1] if match[1].startswith("/") else "/" + match[1]
    target = quote(path, safe=_AS_GIVEN).encode()
    return {} if httpx.URL(url).raw_path == target else {"target": target}
