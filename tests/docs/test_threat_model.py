"""The threat model: the file and the test of each control exist."""

import re

import pytest

from tests.docs.parse_pages import ROOT, links, page

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
def test_every_control_names_existing_code_and_tests(row: list[str]) -> None:
    assert len(row) == _ROW_CELLS
    _, _, code, tests = row
    paths = _SPAN.findall(code)
    assert paths
    for code_path in paths:
        assert (ROOT / code_path).exists() or (ROOT / "payintent" / code_path).exists(), code_path
    references = _TEST.findall(tests)
    assert len(references) == len(_SPAN.findall(tests)) > 0
    for path, name in references:
        text = (ROOT / path).read_text()
        assert re.search(rf"^(?:async )?def {name}\(", text, re.MULTILINE), (path, name)


def test_there_are_several_trust_boundaries_and_many_controls() -> None:
    headings = [title for text in _PAGES for title in re.findall(r"^## (.+)$", text, re.MULTILINE)]
    assert len(headings) > 5
    assert len(CONTROLS) > 50


@pytest.mark.parametrize("path", ["SECURITY.md", "README.md", "docs/contribute/architecture.md"])
def test_the_threat_model_is_linked_from_the_main_pages(path: str) -> None:
    assert any(link.endswith("threat-model.md") for link in links(page(path)))
