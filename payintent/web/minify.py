"""Minification of scripts and styles: removes comments and unnecessary whitespace."""

import re

# Strings, templates and regular expressions are not changed.
_PARTS = re.compile(
    r"""(?P<string>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|`(?:\\.|[^`\\])*`)"""
    r"""|(?P<gap>(?:\s|//[^\n]*|/\*.*?\*/)+)"""
    r"""|(?P<regex>/(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n\[])+/)""",
    re.DOTALL,
)
# Whitespace before a colon is significant in a style.
_BLANK = r"(?:\s|/\*.*?\*/)"
_STYLE_PARTS = re.compile(
    r"""(?P<string>"[^"]*"|'[^']*')"""
    rf"""|{_BLANK}*(?P<mark>[{{}};,>]){_BLANK}*|(?P<colon>:){_BLANK}+|(?P<gap>{_BLANK}+)""",
    re.DOTALL,
)
_AROUND_SPACE = frozenset("{}()[],;:=<>?&|!")
_BEFORE_LINE = frozenset("{(,;")
_AFTER_LINE = frozenset("})")


def minify(source: str) -> str:
    return _PARTS.sub(_minify_part, source).strip()


def minify_style(source: str) -> str:
    return _STYLE_PARTS.sub(_minify_style_part, source).replace(";}", "}").strip()


def _minify_style_part(part: re.Match[str]) -> str:
    return part["string"] or part["mark"] or part["colon"] or (" " if part["gap"] else "")


def _minify_part(part: re.Match[str]) -> str:
    if part["gap"] is None:
        return part[0]
    before = part.string[part.start() - 1 : part.start()]
    after = part.string[part.end() : part.end() + 1]
    if "\n" in part[0]:  # a newline may replace a semicolon
        return "" if before in _BEFORE_LINE or after in _AFTER_LINE else "\n"
    return "" if before in _AROUND_SPACE or after in _AROUND_SPACE else " "
