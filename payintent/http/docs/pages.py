"""Documentation pages, read from the installed wheel or from a checkout of the repository."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from hashlib import sha256
from importlib import resources
from importlib.resources.abc import Traversable
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment
from starlette.requests import Request
from starlette.responses import Response

from payintent.core.errors import ErrorCode, RefusedError
from payintent.http.docs.reference import ApiReference
from payintent.http.pages.static_files import make_environment
from payintent.http.responses import etag_response

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token


#: Paths of documents in a checkout, by name.
CHECKOUT_PATHS = {
    "openapi.yaml": "docs/openapi.yaml",
    "openapi-pages.yaml": "docs/openapi-pages.yaml",
    "integrate.md": "docs/integrate/guide.md",
    "glossary.md": "docs/integrate/glossary.md",
    "runbook.md": "docs/operate/runbook.md",
}


def read_document(name: str) -> str:
    file: Traversable = resources.files("payintent") / "http" / "docs" / "templates" / name
    if not file.is_file():
        file = Path(__file__).parents[3] / CHECKOUT_PATHS[name]
    return file.read_text(encoding="utf-8")


@cache
def openapi_document() -> dict[str, Any]:
    """Return the OpenAPI document, including page routes. The result is shared: do not modify it.

    `/openapi.yaml` omits page routes, because generated API clients do not need them.
    """
    import yaml  # imported here because few processes need it

    document, pages = (
        yaml.load(read_document(name), Loader=yaml.CSafeLoader)
        for name in ("openapi.yaml", "openapi-pages.yaml")
    )
    document["tags"] += pages["tags"]
    document["paths"] |= pages["paths"]
    for kind, components in pages["components"].items():
        document["components"][kind] |= components
    return document


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
#: URLs of the documents that are served; links to other documents become plain text.
_DOCUMENT_URLS = {
    "": "",
    "guide.md": "/docs/integrate",
    "glossary.md": "/docs/glossary",
    "../openapi.yaml": "/docs/reference",
}


async def openapi_yaml(request: Request) -> Response:
    """`GET /openapi.yaml`: the OpenAPI document, with CORS for browser-based tools."""
    return _respond(request, _openapi_bytes(), "application/yaml", _ANY_ORIGIN)


async def get_docs_index(request: Request) -> Response:
    return _respond(request, await asyncio.to_thread(_index), "text/html")


async def get_docs_page(request: Request) -> Response:
    """`GET /docs/{name}`: a documentation page or the style sheet."""
    name: str = request.path_params["name"]
    if name not in _PAGES:
        raise RefusedError(ErrorCode.NOT_FOUND, "no such page")
    render, media_type = _PAGES[name]
    return _respond(request, await asyncio.to_thread(render), media_type)


def render_markdown(markdown: str) -> tuple[list[tuple[str, str]], str]:
    """Return the second-level headings, as anchors and texts, and the HTML."""
    parser = _markdown()
    tokens = parser.parse(markdown)
    contents = _add_anchors(tokens)
    _label_columns(tokens)
    for token in tokens:
        if token.children:
            token.children = _resolve_links(token.children)
    return contents, parser.renderer.render(tokens, parser.options, {})


def _respond(
    request: Request, body: bytes, media_type: str, headers: Mapping[str, str] | None = None
) -> Response:
    etag = f'"{sha256(body).hexdigest()}"'
    return etag_response(request, body, etag, {**_HEADERS, **(headers or {})}, media_type)


@cache
def _markdown() -> "MarkdownIt":
    from markdown_it import MarkdownIt  # imported here because few processes need it

    return MarkdownIt("commonmark", {"html": False}).enable("table")


@cache
def _openapi_bytes() -> bytes:
    return read_document("openapi.yaml").encode()


@cache
def _style() -> bytes:
    return (resources.files("payintent") / "http" / "docs" / "templates" / "docs.css").read_bytes()


@cache
def _index() -> bytes:
    groups = ApiReference(openapi_document()).groups()
    return _render("index.html", contents=[], groups=groups)


@cache
def _markdown_page(document: str, template: str) -> bytes:
    contents, body = render_markdown(read_document(document))
    return _render(template, contents=contents, body=body)


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
    return _render(
        "reference.html",
        contents=contents,
        groups=groups,
        events=events,
        shapes=shapes,
        errors=openapi_document()["x-error-codes"],
    )


_PAGES: dict[str, tuple[Callable[[], bytes], str]] = {
    "integrate": (partial(_markdown_page, "integrate.md", "guide.html"), "text/html"),
    "glossary": (partial(_markdown_page, "glossary.md", "glossary.html"), "text/html"),
    "reference": (_reference, "text/html"),
    "docs.css": (_style, "text/css"),
}


def _render(template: str, **values: Any) -> bytes:
    info = openapi_document()["info"]
    return _templates().get_template(template).render(info=info, **values).encode()


@cache
def _templates() -> Environment:
    environment = make_environment("http/docs/templates")
    environment.filters["prose"] = _markdown().render
    environment.filters["line"] = _markdown().renderInline
    return environment


def _add_anchors(tokens: "Sequence[Token]") -> list[tuple[str, str]]:
    """Add an anchor to each heading, and return the second-level anchors and texts."""
    contents: list[tuple[str, str]] = []
    for opening, inline in pairwise(tokens):
        if opening.type == "heading_open":
            anchor = _anchor(inline.content)
            opening.attrSet("id", anchor)
            if opening.tag == "h2":
                contents.append((anchor, inline.content))
    return contents


def _label_columns(tokens: "Sequence[Token]") -> None:
    """Add the column name to each cell, for narrow screens, which show rows as lists."""
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
    chars = [char for char in heading.lower() if char.isalnum() or char in "_- "]
    return "".join(chars).replace(" ", "-")


def _resolve_links(children: "Sequence[Token]") -> "list[Token]":
    """Point links to served pages, and replace all other links with their text."""
    tokens: list[Token] = []
    is_dead = False
    for child in children:
        if child.type == "link_open":
            url = _served_url(str(child.attrs.get("href", "")))
            is_dead = url is None
            child.attrSet("href", url or "")
        if not (is_dead and child.type in {"link_open", "link_close"}):
            tokens.append(child)
    return tokens


def _served_url(href: str) -> str | None:
    if href.startswith(("http://", "https://")):
        return href
    document, separator, anchor = href.partition("#")
    if document not in _DOCUMENT_URLS:
        return None
    return _DOCUMENT_URLS[document] + separator + anchor
