"""The browser SDK as served: minified scripts, and their TypeScript types."""

import base64
import gzip
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256, sha384
from importlib import resources

from starlette.requests import Request
from starlette.responses import Response

from payintent.api.etag import etag_response
from payintent.domain.errors import ErrorCode, RefusedError
from payintent.web.minify import minify

_HASH_CHARS = 12
_HEADERS = {
    "Access-Control-Allow-Origin": "*",
    "Cross-Origin-Resource-Policy": "cross-origin",
    "Vary": "Accept-Encoding",
    "X-Content-Type-Options": "nosniff",
}
_FOR_EVER = "public, max-age=31536000, immutable"
_FOR_MINUTES = "public, max-age=300"
_SCRIPT = "text/javascript"


@dataclass(frozen=True, slots=True)
class _File:
    type: str
    plain: bytes
    packed: bytes
    keep: str
    at: str  # the address with the hash of this content, where there is one


async def get_sdk_file(request: Request) -> Response:
    """`GET /sdk/{name}`: the scripts, by their plain names or pinned by their hashes."""
    found = _files().get(request.path_params["name"])
    if found is None:
        raise RefusedError(ErrorCode.NOT_FOUND, "no such file")
    headers = {**_HEADERS, "Cache-Control": found.keep}
    if found.at:
        headers["Content-Location"] = found.at
    body = found.plain
    if "gzip" in request.headers.get("accept-encoding", ""):
        body, headers["Content-Encoding"] = found.packed, "gzip"
    return etag_response(request, body, f'"{sha256(body).hexdigest()}"', headers, found.type)


@cache
def _files() -> Mapping[str, _File]:
    wallets = minify(_read("v1.onchain.js"))
    core = minify(_insert_hash(_read("v1.js"), wallets))
    return {
        **_script("v1.js", core),
        **_script("v1.onchain.js", wallets),
        "loader.js": _file(_SCRIPT, minify(_read("loader.js"))),
        "v1.d.ts": _file("text/plain", _read("v1.d.ts")),
    }


def _insert_hash(core: str, wallets: str) -> str:
    """Insert the hash of the wallet script: a page that pins the core so pins both."""
    digest = base64.b64encode(sha384(wallets.encode()).digest()).decode()
    named = core.replace('PART = "v1.onchain.js"', f'PART = "{_pinned("v1.onchain.js", wallets)}"')
    return named.replace('INTEGRITY = ""', f'INTEGRITY = "sha384-{digest}"')


def _script(name: str, text: str) -> dict[str, _File]:
    pinned = _pinned(name, text)
    return {
        name: _file(_SCRIPT, text, at=f"/sdk/{pinned}"),
        pinned: _file(_SCRIPT, text, keep=_FOR_EVER),
    }


def _pinned(name: str, text: str) -> str:
    return f"{name.removesuffix('.js')}.{sha256(text.encode()).hexdigest()[:_HASH_CHARS]}.js"


def _file(type_: str, text: str, *, keep: str = _FOR_MINUTES, at: str = "") -> _File:
    plain = text.encode()
    return _File(type_, plain, gzip.compress(plain, mtime=0), keep, at)


def _read(name: str) -> str:
    return (resources.files("payintent") / "checkout" / "sdk" / name).read_text()
