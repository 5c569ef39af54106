"""The browser SDK: minified scripts and their TypeScript types."""

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
    cache_control: str
    pinned_url: str  # with the hash of the content; empty for other files


async def get_sdk_file(request: Request) -> Response:
    file = _files().get(request.path_params["name"])
    if file is None:
        raise RefusedError(ErrorCode.NOT_FOUND, "no such file")
    headers = {**_HEADERS, "Cache-Control": file.cache_control}
    if file.pinned_url:
        headers["Content-Location"] = file.pinned_url
    body = file.plain
    if "gzip" in request.headers.get("accept-encoding", ""):
        body, headers["Content-Encoding"] = file.packed, "gzip"
    return etag_response(request, body, f'"{sha256(body).hexdigest()}"', headers, file.type)


@cache
def _files() -> Mapping[str, _File]:
    wallets = minify(_read_source("v1.onchain.js"))
    core = minify(_insert_hash(_read_source("v1.js"), wallets))
    return {
        **_script("v1.js", core),
        **_script("v1.onchain.js", wallets),
        "loader.js": _file(_SCRIPT, minify(_read_source("loader.js"))),
        "v1.d.ts": _file("text/plain", _read_source("v1.d.ts")),
    }


def _insert_hash(core: str, wallets: str) -> str:
    """Insert the hash of the wallet script, so that pinning the core pins both scripts."""
    digest = base64.b64encode(sha384(wallets.encode()).digest()).decode()
    core = core.replace(
        'PART = "v1.onchain.js"', f'PART = "{_pinned_name("v1.onchain.js", wallets)}"'
    )
    return core.replace('INTEGRITY = ""', f'INTEGRITY = "sha384-{digest}"')


def _script(name: str, text: str) -> dict[str, _File]:
    pinned = _pinned_name(name, text)
    return {
        name: _file(_SCRIPT, text, pinned_url=f"/sdk/{pinned}"),
        pinned: _file(_SCRIPT, text, cache_control=_FOR_EVER),
    }


def _pinned_name(name: str, text: str) -> str:
    return f"{name.removesuffix('.js')}.{sha256(text.encode()).hexdigest()[:_HASH_CHARS]}.js"


def _file(
    type_: str, text: str, *, cache_control: str = _FOR_MINUTES, pinned_url: str = ""
) -> _File:
    plain = text.encode()
    return _File(type_, plain, gzip.compress(plain, mtime=0), cache_control, pinned_url)


def _read_source(name: str) -> str:
    return (resources.files("payintent") / "checkout" / "sdk" / name).read_text()
