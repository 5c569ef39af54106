"""The served documentation: the API document itself, and HTML pages made from Markdown."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from hashlib import sha256
from importlib import resources
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import Response

from payintent.api.docs.files import openapi_document, read_document
from payintent.api.docs.reference import ApiReference
from payintent.api.etag import etag_response
from payintent.domain.errors import ErrorCode, RefusedError

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

_MAX_AGE_S = 300
_HEADERS = {
    "Cache-Control": f"public, max-age={_MAX_AGE_S}",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; img-src data:; base-uri 'none'; "
        "frame-ancestors 'none'; form-action 'none'"
    ),
}
_ANY_ORIGIN = {"Access-Control-Allow-Origin": "*"}
#: Where a page's links lead when it is served; links to other files become plain text.
_SERVED = {
    "": "",
    "integrate.md": "/docs/integrate",
    "glossary.md": "/docs/glossary",
    "openapi.yaml": "/docs/reference",
}


async def openapi_yaml(request: Request) -> Response:
    """`GET /openapi.yaml`: the API document, with CORS open for any browser's tools."""
    return _answer(request, _contract_bytes(), "application/yaml", _ANY_ORIGIN)


async def get_docs_index(request: Request) -> Response:
    return _answer(request, await asyncio.to_thread(_index), "text/html")


async def get_docs_page(request: Request) -> Response:
    """`GET /docs/{name}`: the guide, the reference, or their style sheet."""
    name: str = request.path_params["name"]
    if name not in _PAGES:
        raise RefusedError(ErrorCode.NOT_FOUND, "no such page")
    render, media_type = _PAGES[name]
    return _answer(request, await asyncio.to_thread(render), media_type)


def render_markdown(markdown: str) -> tuple[list[tuple[str, str]], str]:
    """Render Markdown; returns anchors and texts of second-level headings, then the HTML."""
    parser = _markdown()
    tokens = parser.parse(markdown)
    contents = _name_headings(tokens)
    _label_columns(tokens)
    return contents, parser.renderer.render(_led(tokens), parser.options, {})


def _answer(
    request: Request, body: bytes, media_type: str, more: Mapping[str, str] | None = None
) -> Response:
    etag = f'"{sha256(body).hexdigest()}"'
    return etag_response(request, body, etag, {**_HEADERS, **(more or {})}, media_type)


@cache
def _markdown() -> "MarkdownIt":
    from markdown_it import MarkdownIt  # where pages are read: few processes ever need it

    return MarkdownIt("commonmark", {"html": False}).enable("table")


@cache
def _contract_bytes() -> bytes:
    return read_document("openapi.yaml").encode()


@cache
def _style() -> bytes:
    return (resources.files("payintent") / "api" / "docs" / "templates" / "docs.css").read_bytes()


@cache
def _index() -> bytes:
    groups = ApiReference(openapi_document()).groups()
    return _rendered("index.html", contents=[], groups=groups)


@cache
def _guide() -> bytes:
    contents, body = render_markdown(read_document("integrate.md"))
    return _rendered("guide.html", contents=contents, body=body)


@cache
def _glossary() -> bytes:
    contents, body = render_markdown(read_document("glossary.md"))
    return _rendered("glossary.html", contents=contents, body=body)


@cache
def _reference() -> bytes:
    reference = ApiReference(openapi_document())
    groups, events, shapes = reference.groups(), reference.events(), reference.shapes()
    contents = [
        *((group.id, group.name) for group in groups),
        ("webhooks", "Webhooks"),
        ("x-error-codes", "Error codes"),
        ("components", "Shapes"),
    ]
    return _rendered(
        "reference.html",
        contents=contents,
        groups=groups,
        events=events,
        shapes=shapes,
        errors=openapi_document()["x-error-codes"],
    )


_PAGES: dict[str, tuple[Callable[[], bytes], str]] = {
    "integrate": (_guide, "text/html"),
    "glossary": (_glossary, "text/html"),
    "reference": (_reference, "text/html"),
    "docs.css": (_style, "text/css"),
}


def _rendered(template: str, **shown: Any) -> bytes:
    return (
        _templates()
        .get_template(template)
        .render(info=openapi_document()["info"], **shown)
        .encode()
    )


@cache
def _templates() -> Environment:
    environment = Environment(
        loader=PackageLoader("payintent", "api/docs/templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["prose"] = _markdown().render
    environment.filters["line"] = _markdown().renderInline
    return environment


def _name_headings(tokens: "Sequence[Token]") -> list[tuple[str, str]]:
    """Give each heading the anchor that links use, and list those of the second level."""
    contents: list[tuple[str, str]] = []
    for opening, inline in pairwise(tokens):
        if opening.type == "heading_open":
            anchor = _anchor(inline.content)
            opening.attrSet("id", anchor)
            if opening.tag == "h2":
                contents.append((anchor, inline.content))
    return contents


def _label_columns(tokens: "Sequence[Token]") -> None:
    """Label values with their column: narrow screens show a row as a list."""
    names: list[str] = []
    column = 0
    for opening, inline in pairwise(tokens):
        if opening.type == "thead_open":
            names = []
        elif opening.type == "tr_open":
            column = 0
        elif opening.type == "th_open":
            names.append(inline.content)
        elif opening.type == "td_open":
            opening.attrSet("data-column", names[column])
            column += 1


def _anchor(heading: str) -> str:
    kept = [char for char in heading.lower() if char.isalnum() or char in "_- "]
    return "".join(kept).replace(" ", "-")


def _led(tokens: "list[Token]") -> "list[Token]":
    """Point links to served pages, and reduce the others to their text."""
    for token in tokens:
        if token.children:
            token.children = list(_links(token.children))
    return tokens


def _links(children: "Sequence[Token]") -> "list[Token]":
    kept: list[Token] = []
    dead = False
    for child in children:
        if child.type == "link_open":
            href = _served(str(child.attrs.get("href", "")))
            dead = href is None
            child.attrSet("href", href or "")
        if not (dead and child.type in {"link_open", "link_close"}):
            kept.append(child)
    return kept


def _served(href: str) -> str | None:
    if href.startswith(("http://", "https://")):
        return href
    where, separator, anchor = href.partition("#")
    return _SERVED[where] + separator + anchor if where in _SERVED else None
