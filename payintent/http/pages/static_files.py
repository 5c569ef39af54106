"""Static files for pages. Their URLs contain a hash, so that browsers can cache them forever."""

import gzip
import re
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from importlib import resources

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import Response

from payintent.core.errors import NotFoundError

# Strings, template literals and regular expressions are left unchanged.
_SCRIPT_TOKENS = re.compile(
    r"""(?P<string>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|`(?:\\.|[^`\\])*`)"""
    r"""|(?P<gap>(?:\s|//[^\n]*|/\*.*?\*/)+)"""
    r"""|(?P<regex>/(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n\[])+/)""",
    re.DOTALL,
)
# In CSS, whitespace before a colon is significant.
_CSS_SPACE = r"(?:\s|/\*.*?\*/)"
_STYLE_TOKENS = re.compile(
    r"""(?P<string>"[^"]*"|'[^']*')"""
    rf"""|{_CSS_SPACE}*(?P<mark>[{{}};,>]){_CSS_SPACE}*|(?P<colon>:){_CSS_SPACE}+|(?P<gap>{_CSS_SPACE}+)""",
    re.DOTALL,
)
_SPACE_NEIGHBOURS = frozenset("{}()[],;:=<>?&|!")
_BEFORE_NEWLINE = frozenset("{(,;")
_AFTER_NEWLINE = frozenset("})")


def minify_script(source: str) -> str:
    return _SCRIPT_TOKENS.sub(_minify_script_token, source).strip()


def minify_style(source: str) -> str:
    return _STYLE_TOKENS.sub(_minify_style_token, source).replace(";}", "}").strip()


def _minify_style_token(token: re.Match[str]) -> str:
    return token["string"] or token["mark"] or token["colon"] or (" " if token["gap"] else "")


def _minify_script_token(token: re.Match[str]) -> str:
    if token["gap"] is None:
        return token[0]
    previous_char = token.string[token.start() - 1 : token.start()]
    next_char = token.string[token.end() : token.end() + 1]
    if "\n" in token[0]:  # a newline can act as a semicolon
        is_optional = previous_char in _BEFORE_NEWLINE or next_char in _AFTER_NEWLINE
        return "" if is_optional else "\n"
    return "" if {previous_char, next_char} & _SPACE_NEIGHBOURS else " "


@dataclass(frozen=True, slots=True)
class InlineBlock:
    text: str
    csp_source: str  # 'sha256-…' of the exact text (CSP Level 3, section 6.7.2.4)


def make_inline_block(text: str) -> InlineBlock:
    """Return an inline style or script with its CSP hash. `text` must not contain an end tag."""
    digest = b64encode(sha256(text.encode()).digest()).decode()
    return InlineBlock(text, f"'sha256-{digest}'")


_GZIP_LEVEL = 5
_SURROGATE = re.compile("[\ud800-\udfff]")


def accepts_gzip(request: Request) -> bool:
    """Return whether the client accepts gzip; `gzip;q=0` rejects it."""
    for entry in request.headers.get("accept-encoding", "").lower().split(","):
        coding, _, weight = entry.partition(";")
        if coding.strip() == "gzip":
            return weight.strip().removeprefix("q=").strip("0.") != "" or not weight
    return False


def html_response(
    request: Request, html: str, headers: Mapping[str, str], status: int = 200
) -> Response:
    """Build an HTML response, compressed if possible. Unpaired surrogates are replaced."""
    content = _SURROGATE.sub("\ufffd", html).encode()
    if accepts_gzip(request):
        content = gzip.compress(content, _GZIP_LEVEL, mtime=0)
        headers = {**headers, "Content-Encoding": "gzip"}
    return Response(content, status, headers, "text/html")


_MEDIA_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_MINIFIERS = {"css": minify_style, "js": minify_script}
_HASH_CHARS = 12
HEADERS = {
    "Content-Security-Policy": "default-src 'none'",  # an SVG image can be opened as a document
    "X-Content-Type-Options": "nosniff",
}
_CACHE_FOREVER = {
    "Cache-Control": "public, max-age=31536000, immutable",
    "Vary": "Accept-Encoding",
}
#: Used if the hash differs, because the page may come from a different release during an update.
_NO_STORE = {"Cache-Control": "no-store"}


@dataclass(frozen=True, slots=True)
class StaticFile:
    media_type: str
    content: bytes
    compressed_content: bytes


class StaticFiles:
    """Serves files from a folder of this package under URLs that contain a hash, the `mark`.

    `prefix` is the start of each URL, for example `/c/static` for `/c/static/{mark}/{name}`.
    `prepare` transforms each file's text before it is minified. `suffix` is appended to the hash.
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
        return f"{self._prefix}/{self._content_hash}/{name}"

    async def get(self, request: Request) -> Response:
        """Respond with a file. It can be cached forever if the URL contains the current hash."""
        file = self._files.get(request.path_params["name"])
        if file is None:
            raise NotFoundError("no such file")
        is_current = request.path_params["mark"] == self._content_hash
        headers = {**HEADERS, **(_CACHE_FOREVER if is_current else _NO_STORE)}
        if not accepts_gzip(request):
            return Response(file.content, 200, headers, file.media_type)
        return Response(
            file.compressed_content, 200, headers | {"Content-Encoding": "gzip"}, file.media_type
        )

    def text(self, name: str) -> str:
        return self._files[name].content.decode()

    @cached_property
    def _files(self) -> Mapping[str, StaticFile]:
        folder = resources.files("payintent").joinpath(*self._folder.split("/"))
        return {
            name: _make_file(name, self._prepare((folder / name).read_text()))
            for name in self._names
        }

    @cached_property
    def _content_hash(self) -> str:
        content = b"".join(file.content for file in self._files.values())
        return sha256(content).hexdigest()[:_HASH_CHARS] + self._suffix


def _make_file(name: str, text: str) -> StaticFile:
    stem, _, extension = name.rpartition(".")
    if extension in _MINIFIERS and not stem.endswith(".min"):
        text = _MINIFIERS[extension](text)
    content = text.encode()
    return StaticFile(_MEDIA_TYPES[extension], content, gzip.compress(content, mtime=0))


def make_environment(folder: str) -> Environment:
    environment = Environment(
        loader=PackageLoader("payintent", folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,  # templates do not change at run time
    )
    environment.policies["json.dumps_kwargs"] = {
        "ensure_ascii": False
    }  # makes Thai text a third smaller
    return environment
