"""The documentation as it is served: whole, without scripts, and no link leads nowhere."""

import tomllib
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

import pytest

from payintent.http.docs import pages as shipped
from payintent.http.docs.pages import openapi_document, render_markdown
from tests.docs.reading import ROOT
from tests.support.world import Api

PAGES = ("/docs", "/docs/integrate", "/docs/reference", "/docs/glossary")
POLICY = (
    "default-src 'none'; style-src 'self'; img-src data:; base-uri 'none'; "
    "frame-ancestors 'none'; form-action 'none'"
)


@dataclass
class Page(HTMLParser):
    """What a page has: tags, anchors and links."""

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


async def _read(api: Api, path: str) -> Page:
    answer = await api.send("GET", path)
    assert (answer.status, answer.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert answer.headers["Content-Security-Policy"] == POLICY
    page = Page()
    page.feed(answer.body.decode())
    return page


async def test_the_contract_is_served_as_it_is_written(api: Api) -> None:
    answer = await api.send("GET", "/openapi.yaml")
    assert answer.body == (ROOT / "docs" / "openapi.yaml").read_bytes()
    assert answer.headers["Content-Type"] == "application/yaml"
    assert answer.headers["Access-Control-Allow-Origin"] == "*"


@pytest.mark.parametrize("path", PAGES)
async def test_a_page_has_no_script_and_loads_nothing_but_its_style(api: Api, path: str) -> None:
    page = await _read(api, path)
    assert page.tags.isdisjoint({"script", "img", "iframe", "form", "style", "object"})
    assert page.loaded == ["data:,", "/docs/docs.css"]
    assert {"h1", "main", "nav"} <= page.tags
    style = await api.send("GET", "/docs/docs.css")
    assert (style.status, style.headers["Content-Type"]) == (200, "text/css; charset=utf-8")
    assert b"url(" not in style.body
    assert b"@import" not in style.body


async def test_every_link_leads_to_a_page_that_is_served_and_to_an_anchor_there(api: Api) -> None:
    pages = {path: await _read(api, path) for path in PAGES}
    for path, page in pages.items():
        assert len(set(page.anchors)) == len(page.anchors), path
        for link in page.links:
            if link.startswith("https://"):
                continue
            where, _, anchor = link.partition("#")
            if where == "/openapi.yaml":
                continue
            target = pages[where or path]
            assert not anchor or anchor in target.anchors, (path, link)


async def test_the_reference_has_every_operation_event_code_and_shape(api: Api) -> None:
    body = (await api.send("GET", "/docs/reference")).body.decode()
    anchors = set((await _read(api, "/docs/reference")).anchors)
    for item in (*openapi_document()["paths"].values(), *openapi_document()["webhooks"].values()):
        for said in item.values():
            if isinstance(said, dict):
                assert said["operationId"] in anchors
    for one in openapi_document()["x-error-codes"]:
        assert f"error-{one['code']}" in anchors
        assert one["condition"].split("`")[0].replace("'", "&#39;")[:20] in body.replace(
            "'", "&#39;"
        )
    for name in ("Payment", "Checkout", "Quote", "Catalog", "Denial", "ApiError"):
        assert f"shape-{name}" in anchors


async def test_the_guide_is_the_page_of_the_repository(api: Api) -> None:
    body = (await api.send("GET", "/docs/integrate")).body.decode()
    assert "<h1" in body
    assert "The checkout" in body
    assert 'href="/docs/reference#x-error-codes"' in body
    assert "](" not in body


def test_a_link_to_what_is_not_served_is_plain_text_and_markup_stays_text() -> None:
    contents, body = render_markdown(
        "# A\n\n## B, and C\n\n[one](operate.md#x) [two](#b-and-c) [three](https://a.example/) "
        "[four](javascript:alert(1)) <script>alert(1)</script>"
    )
    assert contents == [("b-and-c", "B, and C")]
    assert '<h2 id="b-and-c">' in body
    assert '<p>one <a href="#b-and-c">two</a> <a href="https://a.example/">three</a> ' in body
    assert body.count("<a ") == 2
    assert "<script" not in body


async def test_a_page_that_is_not_there_is_404(api: Api) -> None:
    for name in ("nothing", "frame.html", "..%2fcheckout.html", "integrate.md", "openapi.yaml"):
        answer = await api.send("GET", f"/docs/{name}")
        assert (answer.status, answer.json["code"]) == (404, "NOT_FOUND"), name


def test_the_wheel_carries_the_documents_where_the_service_looks_for_them() -> None:
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
    carried = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    for name, place in shipped.CHECKOUT_PATHS.items():
        assert carried[place] == f"payintent/http/docs/templates/{name}"
        assert (ROOT / place).is_file()
