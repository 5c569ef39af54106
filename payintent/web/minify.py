"""Makes a page's scripts and styles smaller: removes comments and needless blanks."""

import re

# Strings, templates and regular expressions stay as they are; only spaces and comments go.
_PARTS = re.compile(
    r"""(?P<kept>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|`(?:\\.|[^`\\])*`)"""
    r"""|(?P<gap>(?:\s|//[^\n]*|/\*.*?\*/)+)"""
    r"""|(?P<regex>/(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n\[])+/)""",
    re.DOTALL,
)


# Quoted strings stay; blanks go where a style needs none, which is not before a colon.
_BLANK = r"(?:\s|/\*.*?\*/)"
_STYLE_PARTS = re.compile(
    r"""(?P<kept>"[^"]*"|'[^']*')"""
    rf"""|{_BLANK}*(?P<mark>[{{}};,>]){_BLANK}*|(?P<colon>:){_BLANK}+|(?P<gap>{_BLANK}+)""",
    re.DOTALL,
)
_AROUND_SPACE = frozenset("{}()[],;:=<>?&|!")
_BEFORE_LINE = frozenset("{(,;")
_AFTER_LINE = frozenset("})")


def minify(source: str) -> str:
    return _PARTS.sub(_shortened, source).strip()


def minify_style(source: str) -> str:
    return _STYLE_PARTS.sub(_shortened_style, source).replace(";}", "}").strip()


def _shortened_style(part: re.Match[str]) -> str:
    return part["kept"] or part["mark"] or part["colon"] or (" " if part["gap"] else "")


def _shortened(part: re.Match[str]) -> str:
    if part["gap"] is None:
        return part[0]
    before = part.string[part.start() - 1 : part.start()]
    after = part.string[part.end() : part.end() + 1]
    if "\n" in part[0]:  # a line end may stand for a semicolon
        return "" if before in _BEFORE_LINE or after in _AFTER_LINE else "\n"
    return "" if before in _AROUND_SPACE or after in _AROUND_SPACE else " "
