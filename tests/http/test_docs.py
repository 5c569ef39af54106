"""The documentation published by the service: its pages, search index and links."""

import re
import tomllib
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

import pytest

from payintent.http.docs.documents import (
    GUIDES,
    OPENAPI,
    OPENAPI_PAGES,
    RUNBOOK,
    read_openapi_document,
)
from payintent.http.docs.markdown import render_markdown
from payintent.runtime.version import read_commit
from tests.docs.parse_pages import ROOT
from tests.support.world import Api

PAGES = ("/docs", "/docs/reference", *(guide.url for guide in GUIDES))
POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; frame-ancestors 'none'; form-action 'self'"
)


@dataclass
class Page(HTMLParser):
    """The tags, anchors and links of a page."""

    tags: set[str] = field(default_factory=set)
    anchors: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            assert not name.startswith("on"), name
            if name == "id":
                self.anchors.append(value or "")
            elif name == "href":
                (self.loaded if tag == "link" else self.links).append(value or "")
            elif name in {"src", "style"}:
                self.loaded.append(value or "")


async def _fetch_page(api: Api, path: str) -> Page:
    answer = await api.send("GET", path)
    assert (answer.status, answer.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert answer.headers["Content-Security-Policy"] == POLICY
    page = Page()
    page.feed(answer.body.decode())
    return page


async def test_the_openapi_document_is_served_with_the_commit_of_the_installation(
    api: Api,
) -> None:
    answer = await api.send("GET", "/openapi.yaml")
    text = (ROOT / OPENAPI).read_text()
    assert answer.body.decode() == text.replace("x-commit: unknown", f"x-commit: {read_commit()}")
    assert read_openapi_document()["info"]["x-commit"] == read_commit()
    assert answer.headers["Content-Type"] == "application/yaml"
    assert answer.headers["Access-Control-Allow-Origin"] == "*"


@pytest.mark.parametrize("path", PAGES)
async def test_a_page_loads_only_its_stylesheet_and_the_search_script(api: Api, path: str) -> None:
    page = await _fetch_page(api, path)
    assert page.tags.isdisjoint({"img", "iframe", "style", "object"})
    assert page.loaded == ["data:,", "/docs/docs.css", "/docs/search.js"]
    assert {"h1", "main", "nav"} <= page.tags
    style = await api.send("GET", "/docs/docs.css")
    assert (style.status, style.headers["Content-Type"]) == (200, "text/css; charset=utf-8")
    assert b"url(" not in style.body
    assert b"@import" not in style.body


async def test_every_link_leads_to_a_published_page_and_an_existing_anchor(api: Api) -> None:
    pages = {path: await _fetch_page(api, path) for path in PAGES}
    for path, page in pages.items():
        assert len(set(page.anchors)) == len(page.anchors), path
        for link in page.links:
            if link.startswith("https://"):
                continue
            linked_path, _, anchor = link.partition("#")
            if linked_path in {"/openapi.yaml", "/packages/"}:
                continue
            target = pages[linked_path or path]
            assert not anchor or anchor in target.anchors, (path, link)


async def test_the_reference_has_all_operations_webhooks_error_codes_and_main_schemas(
    api: Api,
) -> None:
    body = (await api.send("GET", "/docs/reference")).body.decode()
    anchors = set((await _fetch_page(api, "/docs/reference")).anchors)
    for item in (
        *read_openapi_document()["paths"].values(),
        *read_openapi_document()["webhooks"].values(),
    ):
        for operation in item.values():
            if isinstance(operation, dict):
                assert operation["operationId"] in anchors
    for entry in read_openapi_document()["x-error-codes"]:
        assert f"error-{entry['code']}" in anchors
        assert entry["condition"].split("`")[0].replace("'", "&#39;")[:20] in body.replace(
            "'", "&#39;"
        )
    for name in ("Payment", "Checkout", "Quote", "Catalog", "Denial", "ApiError"):
        assert f"schema-{name}" in anchors


async def test_the_guide_is_rendered_from_the_repository(api: Api) -> None:
    body = (await api.send("GET", "/docs/integrate")).body.decode()
    assert "<h1" in body
    assert "Redirect the buyer" in body
    assert 'href="/docs/reference#x-error-codes"' in body
    assert "](" not in body


def test_links_to_unpublished_pages_and_html_are_rendered_as_text() -> None:
    contents, body = render_markdown(
        "# A\n\n## B, and C\n\n[one](operate.md#x) [two](#b-and-c) [three](https://a.example/) "
        "[four](javascript:alert(1)) [five](glossary.md#x) <script>alert(1)</script>",
        "docs/integrate/start.md",
    )
    assert contents == [("b-and-c", "B, and C")]
    assert '<h2 id="b-and-c">' in body
    assert '<p>one <a href="#b-and-c">two</a> <a href="https://a.example/">three</a> ' in body
    assert '<a href="/docs/glossary#x">five</a>' in body
    assert body.count("<a ") == 3
    assert "<script" not in body


async def test_an_unknown_page_is_not_found(api: Api) -> None:
    for name in ("nothing", "frame.html", "..%2fcheckout.html", "integrate.md", "openapi.yaml"):
        answer = await api.send("GET", f"/docs/{name}")
        assert (answer.status, answer.json["code"]) == (404, "NOT_FOUND"), name


async def test_the_search_index_covers_every_page_and_has_only_existing_anchors(
    api: Api,
) -> None:
    answer = await api.send("GET", "/docs/search.json")
    sections = answer.json["sections"]
    anchors = {path: (await _fetch_page(api, path)).anchors for path in PAGES}
    for section in sections:
        path, _, anchor = section["url"].partition("#")
        assert not anchor or anchor in anchors[path], section
    assert {section["page"] for section in sections} == {
        "API reference",
        *(guide.title for guide in GUIDES),
    }
    assert any(section["heading"] == "POST /v1/payments" for section in sections)
    assert any(section["heading"] == "IDEMPOTENCY_CONFLICT" for section in sections)


def test_every_page_for_merchants_is_published() -> None:
    published = {guide.path for guide in GUIDES}
    pages = [*ROOT.glob("docs/integrate/*.md"), *ROOT.glob("sdks/*/README.md")]
    assert {str(page.relative_to(ROOT)) for page in pages} == published


def test_the_wheel_contains_the_documents_that_the_service_publishes() -> None:
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
    included = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    for path in (OPENAPI, OPENAPI_PAGES, RUNBOOK, *(guide.path for guide in GUIDES)):
        [source] = [source for source in included if re.match(rf"{source}(/|$)", path)]
        assert included[source] == f"payintent/http/docs/templates/{source}"
        assert (ROOT / path).is_file()
