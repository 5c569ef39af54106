"""The threat model: the file and the test of each control exist."""

import re

import pytest

from tests.docs.reading import ROOT, links, page

_PAGES = [
    page(f"docs/contribute/threat-model-{part}.md")
    for part in ("clients", "payments", "operations")
]
_TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
_SPAN = re.compile(r"`([^`]+)`")
_ROW_CELLS = 4


def _controls() -> list[list[str]]:
    """Return the rows of all tables: threat, control, code, test."""
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for text in _PAGES
        for line in text.splitlines()
        if line[:1] == "|"
    ]
    return [row for row in cells if row[0] != "Threat" and not set(row[0]) <= {"-"}]


CONTROLS = _controls()


@pytest.mark.parametrize("row", CONTROLS, ids=lambda row: row[0])
def test_every_control_names_its_code_and_its_test(row: list[str]) -> None:
    assert len(row) == _ROW_CELLS
    _, _, code, tests = row
    places = _SPAN.findall(code)
    assert places
    for place in places:
        assert (ROOT / place).exists() or (ROOT / "payintent" / place).exists(), place
    named = _TEST.findall(tests)
    assert len(named) == len(_SPAN.findall(tests)) > 0
    for path, name in named:
        text = (ROOT / path).read_text()
        assert re.search(rf"^(?:async )?def {name}\(", text, re.MULTILINE), (path, name)


def test_there_are_borders_with_controls() -> None:
    borders = [title for text in _PAGES for title in re.findall(r"^## (.+)$", text, re.MULTILINE)]
    assert len(borders) > 5
    assert len(CONTROLS) > 50


@pytest.mark.parametrize("path", ["SECURITY.md", "README.md", "docs/contribute/architecture.md"])
def test_it_is_found_from_where_people_look(path: str) -> None:
    assert any(link.endswith("threat-model.md") for link in links(page(path)))
