"""The links of the pages work, and the files that they name exist."""

import re
from pathlib import Path

import pytest

from payintent.console.routes import CONSOLE_ROUTES
from payintent.operations import OPERATIONS
from payintent.operators.operation import ReadOperation
from tests.docs.parse_pages import PAGES, ROOT, anchors, blocks, links, name, page, prose, spans
from tests.support.routes import OPERATOR_ROUTES, ROUTES

_MACHINE_PATHS = re.compile(r"(?<![\w.:/-])/(?:home|root|Users|work|tmp)/|\bshared[/]")
_ROUTE = re.compile(r"(GET|POST|PATCH|PUT|DELETE) (/[^\s`]+)")
_TARGET = re.compile(r"\bmake ([a-z0-9-]+)")
_PLACE = re.compile(r"(?!(?:var|dist)/)[\w.]+(?:/[\w.]*)+|\w+\.py")
_DEFINITION = re.compile(r"`((?:\w+/)+\w+\.py)` `(\w+)`")
_MODULES = [item.name for item in ROOT.glob("payintent*/**/*.py")]

#: A single route with two segments serves all operations. Pages use the path of an operation.
_OPERATIONS = {
    ("GET" if issubclass(kind, ReadOperation) else "POST", f"/operator/{action.replace('.', '/')}")
    for action, kind in OPERATIONS.items()
}

every_page = pytest.mark.parametrize("path", PAGES, ids=name)
#: Decisions are not updated when names change.
_CURRENT_PAGES = [path for path in PAGES if "decisions" not in path.parts]


@every_page
def test_every_relative_link_leads_to_an_existing_file_and_heading(path: Path) -> None:
    for link in links(path.read_text()):
        if link.startswith(("http://", "https://")):
            continue
        file_path, _, anchor = link.partition("#")
        target = (path.parent / file_path).resolve() if file_path else path
        assert target.is_relative_to(ROOT), link
        assert target.exists(), link
        assert not anchor or anchor in anchors(target.read_text()), link


def test_the_readme_has_at_most_120_lines() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120


@every_page
def test_pages_do_not_contain_paths_from_a_developers_machine(path: Path) -> None:
    assert not _MACHINE_PATHS.search(path.read_text())


@pytest.mark.parametrize("path", [path for path in PAGES if path.name != "CHANGELOG.md"], ids=name)
def test_every_make_target_on_a_page_exists(path: Path) -> None:
    text = path.read_text()
    code = "\n".join([*spans(text), *blocks(text, "sh")])
    makefile = page("Makefile")
    for target in _TARGET.findall(code):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_every_make_target_is_in_the_list_of_commands() -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):.*##", page("Makefile"), re.MULTILINE))
    on_page = set(_TARGET.findall("\n".join(spans(page("CONTRIBUTING.md")))))
    assert sorted(targets - on_page) == []


@pytest.mark.parametrize("path", _CURRENT_PAGES, ids=name)
def test_every_folder_and_module_on_a_page_exists(path: Path) -> None:
    for span in spans(path.read_text()):
        if not _PLACE.fullmatch(span):
            continue
        places = [ROOT / span, ROOT / "payintent" / span, ROOT / "payintent_sandbox" / span]
        assert any(place.exists() for place in places) or span in _MODULES, span


@every_page
def test_every_definition_on_a_page_exists_in_its_module(path: Path) -> None:
    for module, definition in _DEFINITION.findall(path.read_text()):
        text = (ROOT / "payintent" / module).read_text()
        assert re.search(rf"\b(?:def|class) {definition}\b", text), (module, definition)


@every_page
def test_every_route_on_a_page_exists(path: Path) -> None:
    routes = _list_routes()
    for method, route in _ROUTE.findall(prose(path.read_text())):
        assert (method, route) in routes, (method, route)


def test_every_route_of_the_api_is_documented() -> None:
    documented = {
        pair for item in PAGES for pair in _ROUTE.findall("\n".join(spans(item.read_text())))
    }
    pages = {route.path for route in CONSOLE_ROUTES}
    expected = {
        (method, route)
        for method, route in _list_routes() - _OPERATIONS
        if not route.startswith("/c/") and route not in pages
    }
    assert expected <= documented


def _list_routes() -> set[tuple[str, str]]:
    routes = {
        (method, re.sub(r"\{(\w+):\w+\}", r"{\1}", route.path))
        for route in [*ROUTES, *OPERATOR_ROUTES]
        for method in route.methods
        if method != "HEAD"
    }
    return routes | _OPERATIONS
