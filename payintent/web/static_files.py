"""Files of pages, addressed by a hash of them all, so that browsers may cache them for ever."""

import gzip
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from importlib import resources

from starlette.requests import Request
from starlette.responses import Response

from payintent.domain.errors import ErrorCode, RefusedError
from payintent.web.compression import accepts_gzip
from payintent.web.minify import minify

_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_MARK_CHARS = 12
#: Headers of every static file.
HEADERS = {
    "Content-Security-Policy": "default-src 'none'",  # an image that is opened is a document
    "X-Content-Type-Options": "nosniff",
}
_FOR_EVER = {"Cache-Control": "public, max-age=31536000, immutable", "Vary": "Accept-Encoding"}
#: While a new release is rolled out, a process may be asked for files of another release.
_FOR_NOW = {"Cache-Control": "no-store"}


@dataclass(frozen=True, slots=True)
class _StaticFile:
    type: str
    plain: bytes
    packed: bytes


class StaticFiles:
    """Some files of one folder of this package, and the addresses that they are served at.

    `prefix` is what an address begins with: `/c/static` for `/c/static/{mark}/{name}`.
    """

    def __init__(self, folder: str, prefix: str, names: Sequence[str]) -> None:
        self._folder = folder
        self._prefix = prefix
        self._names = names

    def url(self, name: str) -> str:
        """Return the present address of a file."""
        return f"{self._prefix}/{self._mark}/{name}"

    async def get(self, request: Request) -> Response:
        """Answer with the file of a route's `{mark}/{name}`; any mark gets the present file."""
        found = self._files.get(request.path_params["name"])
        if found is None:
            raise RefusedError(ErrorCode.NOT_FOUND, "no such file")
        keep = _FOR_EVER if request.path_params["mark"] == self._mark else _FOR_NOW
        headers = {**HEADERS, **keep}
        if not accepts_gzip(request):
            return Response(found.plain, 200, headers, found.type)
        return Response(found.packed, 200, headers | {"Content-Encoding": "gzip"}, found.type)

    @cached_property
    def _files(self) -> Mapping[str, _StaticFile]:
        folder = resources.files("payintent").joinpath(*self._folder.split("/"))
        return {name: _pack(name, (folder / name).read_text()) for name in self._names}

    @cached_property
    def _mark(self) -> str:
        content = b"".join(file.plain for file in self._files.values())
        return sha256(content).hexdigest()[:_MARK_CHARS]


def _pack(name: str, text: str) -> _StaticFile:
    is_ours = name.endswith(".js") and not name.endswith(".min.js")
    plain = (minify(text) if is_ours else text).encode()
    return _StaticFile(_TYPES[name.rpartition(".")[2]], plain, gzip.compress(plain, mtime=0))
