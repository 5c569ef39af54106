"""The page's own files, addressed by a hash, so that browsers may cache them for ever."""

import gzip
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib import resources

from starlette.requests import Request
from starlette.responses import Response

from payintent.checkout.minify import minify
from payintent.domain.countries import COUNTRIES
from payintent.domain.errors import ErrorCode, RefusedError

_TYPES = {"css": "text/css", "js": "text/javascript"}
_FILES = ("checkout.css", "checkout.js", "card.js", "onchain.js", "wallet.js")
_FLAGS = frozenset(f"{country.lower()}.svg" for country in COUNTRIES)
_MARK_CHARS = 12
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'",  # an image that is opened is a document
    "X-Content-Type-Options": "nosniff",
}
_FOR_EVER = {"Cache-Control": "public, max-age=31536000, immutable", "Vary": "Accept-Encoding"}
#: While a new release is rolled out, a process may be asked for files of another release.
_FOR_NOW = {"Cache-Control": "no-store"}
_FOR_A_WHILE = {"Cache-Control": "public, max-age=3600"}


@dataclass(frozen=True, slots=True)
class _Asset:
    type: str
    plain: bytes
    packed: bytes


def static_url(name: str) -> str:
    """Return the present address of one of our files."""
    return f"/c/static/{_mark()}/{name}"


def accepts_gzip(request: Request) -> bool:
    """Tell whether a client accepts gzip; `gzip;q=0` refuses it."""
    for part in request.headers.get("accept-encoding", "").lower().split(","):
        coding, _, weight = part.partition(";")
        if coding.strip() == "gzip":
            return weight.strip().removeprefix("q=").strip("0.") != "" or not weight
    return False


async def get_static_file(request: Request) -> Response:
    """`GET /c/static/{mark}/{name}`: scripts and styles; any other mark gets the present file."""
    found = _assets().get(request.path_params["name"])
    if found is None:
        raise RefusedError(ErrorCode.NOT_FOUND, "no such file")
    keep = _FOR_EVER if request.path_params["mark"] == _mark() else _FOR_NOW
    headers = {**_HEADERS, **keep}
    if not accepts_gzip(request):
        return Response(found.plain, 200, headers, found.type)
    return Response(found.packed, 200, headers | {"Content-Encoding": "gzip"}, found.type)


async def get_flag(request: Request) -> Response:
    """`GET /c/static/flags/{name}`: a country's flag, as `GET /countries` names it."""
    name: str = request.path_params["name"]
    if name not in _FLAGS:
        raise RefusedError(ErrorCode.NOT_FOUND, "no such file")
    content = (resources.files("payintent") / "checkout" / "static" / "flags" / name).read_bytes()
    return Response(content, 200, _HEADERS | _FOR_A_WHILE, "image/svg+xml")


@cache
def _assets() -> dict[str, _Asset]:
    folder = resources.files("payintent") / "checkout" / "static"
    found: dict[str, _Asset] = {}
    for name in _FILES:
        text = (folder / name).read_text()
        plain = (minify(text) if name.endswith(".js") else text).encode()
        found[name] = _Asset(_TYPES[name.rpartition(".")[2]], plain, gzip.compress(plain, mtime=0))
    return found


@cache
def _mark() -> str:
    content = b"".join(asset.plain for asset in _assets().values())
    return sha256(content).hexdigest()[:_MARK_CHARS]
