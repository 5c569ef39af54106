"""The checkout's own files: scripts and styles by a hash of them all, and flags by their names."""

from importlib import resources

from starlette.requests import Request
from starlette.responses import Response

from payintent.domain.countries import COUNTRIES
from payintent.domain.errors import ErrorCode, RefusedError
from payintent.web.static_files import HEADERS, StaticFiles

_FILES = StaticFiles(
    "checkout/static",
    "/c/static",
    ("checkout.css", "checkout.js", "card.js", "onchain.js", "wallet.js"),
)
_FLAGS = frozenset(f"{country.lower()}.svg" for country in COUNTRIES)
_FOR_A_WHILE = {"Cache-Control": "public, max-age=3600"}


def static_url(name: str) -> str:
    """Return the present address of one of our files."""
    return _FILES.url(name)


async def get_static_file(request: Request) -> Response:
    """`GET /c/static/{mark}/{name}`: scripts and styles; any other mark gets the present file."""
    return await _FILES.get(request)


async def get_flag(request: Request) -> Response:
    """`GET /c/static/flags/{name}`: a country's flag, as `GET /countries` names it."""
    name: str = request.path_params["name"]
    if name not in _FLAGS:
        raise RefusedError(ErrorCode.NOT_FOUND, "no such file")
    content = (resources.files("payintent") / "checkout" / "static" / "flags" / name).read_bytes()
    return Response(content, 200, HEADERS | _FOR_A_WHILE, "image/svg+xml")
