"""Render Markdown documents, and split them into sections for the search index."""

import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING

from payintent.http.docs.documents import GUIDES, OPENAPI

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

#: URLs of published documents, by path in the repository.
_DOCUMENT_URLS = {OPENAPI: "/docs/reference", **{guide.path: guide.url for guide in GUIDES}}


@dataclass(frozen=True, slots=True)
class Section:
    """The text between two headings. The text before the first heading has no anchor."""

    heading: str
    anchor: str
    text: str


@cache
def markdown_parser() -> "MarkdownIt":
    from markdown_it import MarkdownIt  # imported here because few processes need it

    return MarkdownIt("commonmark", {"html": False}).enable("table")


def render_markdown(markdown: str, path: str = "") -> tuple[list[tuple[str, str]], str]:
    """Return the anchors and the text of the second-level headings, and the HTML.

    Links are relative to `path`. Links to unpublished documents become plain text.
    """
    parser = markdown_parser()
    tokens = parser.parse(markdown)
    contents = _add_anchors(tokens)
    _label_columns(tokens)
    for token in tokens:
        if token.children:
            token.children = _resolve_links(token.children, path)
    return contents, parser.renderer.render(tokens, parser.options, {})


def split_sections(markdown: str) -> Iterator[Section]:
    heading, anchor, texts = "", "", list[str]()
    is_heading = False
    for token in markdown_parser().parse(markdown):
        if token.type == "heading_open":
            yield Section(heading, anchor, " ".join(texts))
            is_heading, texts = True, []
        elif token.type == "inline" and is_heading:
            heading, anchor, is_heading = _plain_text(token), _make_anchor(token.content), False
        elif token.type == "inline":
            texts.append(_plain_text(token))
        elif token.type == "fence":
            texts.append(" ".join(token.content.split()))
    yield Section(heading, anchor, " ".join(texts))


def _plain_text(token: "Token") -> str:
    return " ".join("".join(child.content or " " for child in token.children or ()).split())


def _add_anchors(tokens: "Sequence[Token]") -> list[tuple[str, str]]:
    """Add an anchor to each heading. Returns the anchors and the text of second-level headings."""
    contents: list[tuple[str, str]] = []
    for token, next_token in pairwise(tokens):
        if token.type == "heading_open":
            anchor = _make_anchor(next_token.content)
            token.attrSet("id", anchor)
            if token.tag == "h2":
                contents.append((anchor, _plain_text(next_token)))
    return contents


def _label_columns(tokens: "Sequence[Token]") -> None:
    """Add the column name to each cell. Narrow screens show rows as lists."""
    names: list[str] = []
    column = 0
    for token, next_token in pairwise(tokens):
        if token.type == "thead_open":
            names = []
        elif token.type == "tr_open":
            column = 0
        elif token.type == "th_open":
            names.append(next_token.content)
        elif token.type == "td_open":
            token.attrSet("data-column", names[column])
            column += 1


def _make_anchor(heading: str) -> str:
    chars = [char for char in heading.lower() if char.isalnum() or char in "_- "]
    return "".join(chars).replace(" ", "-")


def _resolve_links(children: "Sequence[Token]", path: str) -> "list[Token]":
    tokens: list[Token] = []
    is_unpublished = False
    for child in children:
        if child.type == "link_open":
            url = _published_url(str(child.attrs.get("href", "")), path)
            is_unpublished = url is None
            child.attrSet("href", url or "")
        if not (is_unpublished and child.type in {"link_open", "link_close"}):
            tokens.append(child)
    return tokens


def _published_url(href: str, path: str) -> str | None:
    if href.startswith(("http://", "https://", "#")):
        return href
    target, separator, anchor = href.partition("#")
    url = _DOCUMENT_URLS.get(posixpath.normpath(posixpath.join(posixpath.dirname(path), target)))
    return None if url is None else url + separator + anchor
