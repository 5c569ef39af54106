"""The documentation pages at `/docs`, their search index, and `/openapi.yaml`."""

import asyncio
from collections.abc import Callable, Mapping
from functools import cache, partial
from hashlib import sha256
from typing import Any

from jinja2 import Environment
from starlette.requests import Request
from starlette.responses import Response

from payintent.core.errors import NotFoundError
from payintent.http.docs.documents import (
    GUIDES,
    TEMPLATES,
    Guide,
    read_document,
    read_openapi_document,
    read_openapi_yaml,
)
from payintent.http.docs.markdown import markdown_parser, render_markdown, split_sections
from payintent.http.docs.reference import ApiReference
from payintent.http.pages.static_files import make_environment
from payintent.http.responses import etag_response
from payintent.runtime.json_format import encode_json
from payintent.runtime.version import VERSION

_MAX_AGE_S = 300
_HEADERS = {
    "Cache-Control": f"public, max-age={_MAX_AGE_S}",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
        "img-src data:; base-uri 'none'; frame-ancestors 'none'; form-action 'self'"
    ),
}
_CORS_HEADERS = {"Access-Control-Allow-Origin": "*"}


async def get_openapi_yaml(request: Request) -> Response:
    """`GET /openapi.yaml`: the OpenAPI document, with CORS for browser-based tools."""
    return _respond(request, read_openapi_yaml(), "application/yaml", _CORS_HEADERS)


async def get_docs_index(request: Request) -> Response:
    return _respond(request, await asyncio.to_thread(_render_index), "text/html")


async def get_docs_page(request: Request) -> Response:
    """`GET /docs/{name}`: a documentation page, the search index, the script or the style sheet."""
    name: str = request.path_params["name"]
    if name not in _PAGES:
        raise NotFoundError("no such page")
    render, media_type = _PAGES[name]
    return _respond(request, await asyncio.to_thread(render), media_type)


def _respond(
    request: Request, body: bytes, media_type: str, headers: Mapping[str, str] | None = None
) -> Response:
    etag = f'"{sha256(body).hexdigest()}"'
    return etag_response(request, body, etag, {**_HEADERS, **(headers or {})}, media_type)


@cache
def _read_file(name: str) -> bytes:
    return (TEMPLATES / name).read_bytes()


@cache
def _render_index() -> bytes:
    groups = ApiReference(read_openapi_document()).list_groups()
    return _render_template("index.html", "/docs", contents=[], groups=groups)


@cache
def _render_guide(guide: Guide) -> bytes:
    contents, body = render_markdown(read_document(guide.path), guide.path)
    return _render_template(
        "guide.html", guide.url, contents=contents, body=body, title=guide.title
    )


@cache
def _render_reference() -> bytes:
    reference = ApiReference(read_openapi_document())
    groups = reference.list_groups()
    contents = [
        *((group.id, group.name) for group in groups),
        ("webhooks", "Webhooks"),
        ("x-error-codes", "Error codes"),
        ("components", "Schemas"),
    ]
    return _render_template(
        "reference.html",
        "/docs/reference",
        contents=contents,
        groups=groups,
        events=reference.list_events(),
        schemas=reference.list_schemas(),
        errors=read_openapi_document()["x-error-codes"],
    )


@cache
def _build_search_index() -> bytes:
    """List the sections of all guides, and the reference's operations and error codes."""
    sections = [
        {
            "page": guide.title,
            "heading": section.heading,
            "url": f"{guide.url}#{section.anchor}" if section.anchor else guide.url,
            "text": section.text,
        }
        for guide in GUIDES
        for section in split_sections(read_document(guide.path))
        if section.text
    ]
    for group in ApiReference(read_openapi_document()).list_groups():
        sections += (
            {
                "page": "API reference",
                "heading": f"{operation.method} {operation.path}",
                "url": f"/docs/reference#{operation.id}",
                "text": f"{operation.summary} {operation.description}",
            }
            for operation in group.operations
        )
    sections += (
        {
            "page": "API reference",
            "heading": error["code"],
            "url": f"/docs/reference#error-{error['code']}",
            "text": error["condition"],
        }
        for error in read_openapi_document()["x-error-codes"]
    )
    return encode_json({"sections": sections})


_PAGES: dict[str, tuple[Callable[[], bytes], str]] = {
    **{guide.name: (partial(_render_guide, guide), "text/html") for guide in GUIDES},
    "reference": (_render_reference, "text/html"),
    "search.json": (_build_search_index, "application/json"),
    "search.js": (partial(_read_file, "search.js"), "text/javascript"),
    "docs.css": (partial(_read_file, "docs.css"), "text/css"),
}


def _render_template(template: str, url: str, **values: Any) -> bytes:
    info = read_openapi_document()["info"]
    page = _templates().get_template(template)
    return page.render(
        info=info, guides=GUIDES, version=VERSION, current_url=url, **values
    ).encode()


@cache
def _templates() -> Environment:
    environment = make_environment("http/docs/templates")
    environment.filters["prose"] = markdown_parser().render
    environment.filters["line"] = markdown_parser().renderInline
    return environment
