"""Parse the documentation: its pages, links, tables, code spans and examples."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_SPAN = re.compile(r"`([^`\n]+)`")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def page(path: str) -> str:
    return (ROOT / path).read_text()


def prose(text: str) -> str:
    """Return a page without its fenced blocks."""
    return _FENCE.sub("", text)


def links(text: str) -> list[str]:
    return _LINK.findall(prose(text))


def spans(text: str) -> list[str]:
    return _SPAN.findall(prose(text))


def blocks(text: str, language: str) -> list[str]:
    return [body for kind, body in _FENCE.findall(text) if kind == language]


def examples(text: str, language: str, title: str) -> list[str]:
    """Return the fenced blocks that start with the comment `# example:` and the title."""
    return [block for block in blocks(text, language) if block.startswith(f"# example: {title}\n")]


def section(text: str, heading: str) -> str:
    """Return the text below a heading, up to the next heading of its level or above."""
    level, _, _ = heading.partition(" ")
    _, separator, rest = text.partition(f"\n{heading}\n")
    assert separator, f"there is no heading {heading!r}"
    return re.split(rf"^#{{1,{len(level)}}} ", rest, maxsplit=1, flags=re.MULTILINE)[0]


def rows(text: str) -> Iterator[list[str]]:
    """Return the table rows that start with a code span."""
    for line in prose(text).splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if line.startswith("| `"):
            yield cells


def anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings. For the API contract, return its members."""
    if text.startswith("openapi:") or "\nopenapi:" in text:
        return set(re.findall(r"^([\w-]+):", text, re.MULTILINE))
    plain = [re.sub(r"[^\w\- ]", "", heading.lower()) for heading in _HEADING.findall(prose(text))]
    return {heading.replace(" ", "-") for heading in plain}
