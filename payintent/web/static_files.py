"""Static files of pages; their URLs contain a hash, so that browsers can cache them for ever."""

import gzip
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from importlib import resources

from starlette.requests import Request
from starlette.responses import Response

from payintent.domain.errors import ErrorCode, RefusedError
from payintent.web.compression import accepts_gzip
from payintent.web.minify import minify, minify_style

_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_MINIFIERS = {"css": minify_style, "js": minify}
_MARK_CHARS = 12
HEADERS = {
    "Content-Security-Policy": "default-src 'none'",  # an SVG image may be opened as a document
    "X-Content-Type-Options": "nosniff",
}
_CACHED = {"Cache-Control": "public, max-age=31536000, immutable", "Vary": "Accept-Encoding"}
#: During a rolling update, a request may ask for the files of a different release.
_NOT_CACHED = {"Cache-Control": "no-store"}


@dataclass(frozen=True, slots=True)
class StaticFile:
    type: str
    plain: bytes
    compressed: bytes


class StaticFiles:
    """Files of a folder of this package, and their URLs.

    `prefix` is the start of a URL: `/c/static` for `/c/static/{mark}/{name}`. `prepare` completes
    the text of a file before it is minified; `suffix` distinguishes the marks of such files.
    """

    def __init__(
        self,
        folder: str,
        prefix: str,
        names: Sequence[str],
        *,
        prepare: Callable[[str], str] = str,
        suffix: str = "",
    ) -> None:
        self._folder = folder
        self._prefix = prefix
        self._names = names
        self._prepare = prepare
        self._suffix = suffix

    def url(self, name: str) -> str:
        return f"{self._prefix}/{self._mark}/{name}"

    async def get(self, request: Request) -> Response:
        """Respond with a file, to be cached for ever if the URL has the current mark."""
        file = self._files.get(request.path_params["name"])
        if file is None:
            raise RefusedError(ErrorCode.NOT_FOUND, "no such file")
        caching = _CACHED if request.path_params["mark"] == self._mark else _NOT_CACHED
        headers = {**HEADERS, **caching}
        if not accepts_gzip(request):
            return Response(file.plain, 200, headers, file.type)
        return Response(file.compressed, 200, headers | {"Content-Encoding": "gzip"}, file.type)

    def text(self, name: str) -> str:
        return self._files[name].plain.decode()

    @cached_property
    def _files(self) -> Mapping[str, StaticFile]:
        folder = resources.files("payintent").joinpath(*self._folder.split("/"))
        return {
            name: _make_file(name, self._prepare((folder / name).read_text()))
            for name in self._names
        }

    @cached_property
    def _mark(self) -> str:
        content = b"".join(file.plain for file in self._files.values())
        return sha256(content).hexdigest()[:_MARK_CHARS] + self._suffix


def _make_file(name: str, text: str) -> StaticFile:
    stem, _, kind = name.rpartition(".")
    if kind in _MINIFIERS and not stem.endswith(".min"):
        text = _MINIFIERS[kind](text)
    plain = text.encode()
    return StaticFile(_TYPES[kind], plain, gzip.compress(plain, mtime=0))
