"""Find the translated strings in the checkout's templates, scripts and Python code."""

import ast
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path

from jinja2 import Environment, nodes

import payintent

PACKAGE = Path(payintent.__file__).parent
CHECKOUT = PACKAGE / "checkout"
TEMPLATES = sorted((CHECKOUT / "templates").glob("*.html"))
SCRIPTS = sorted((CHECKOUT / "static").glob("*.js"))
MODULES = sorted(CHECKOUT.rglob("*.py"))
MODULES += sorted((PACKAGE / "http").glob("*.py"))

#: The file, the key, and the names of the values (None if they cannot be determined).
Call = tuple[str, str, list[str] | None]

_WORD = re.compile(r'\bt\(\s*"(\w+)"\s*(?:,\s*\{([^}]*)\}\s*,?\s*)?\)')
_JINJA = re.compile(r"\{#.*?#\}|\{%.*?%\}|\{\{.*?\}\}", re.DOTALL)
_TAG = re.compile(r"<[^>]*>")
_TEXT_ATTRIBUTES = re.compile(r'\b(?:alt|title|placeholder|aria-label|content|value)="([^"]*)"')
_SET = re.compile(
    r"(?:\.(?:textContent|innerText|title|alt|placeholder)\s*=|append\()\s*([\"'`].*)"
)
_BROWSER_DIRECTIVES = re.compile(r"width=device-width, initial-scale=1|light dark")


def text_calls() -> list[Call]:
    """List all uses of text keys."""
    return [*_in_templates(), *_in_scripts(), *_in_python()]


def possible_keys() -> set[str]:
    """Return all strings that could be text keys."""
    sources = [path.read_text() for path in (*TEMPLATES, *SCRIPTS, *MODULES)]
    return {key for source in sources for key in re.findall(r"[\"'](\w+)[\"']", source)}


def words_in_templates() -> set[str]:
    """Return the literal words in templates."""
    words: set[str] = set()
    for path in TEMPLATES:
        # Replace code with a digit, because it may occur inside a tag.
        plain = _JINJA.sub("0", path.read_text())
        texts = [*_TEXT_ATTRIBUTES.findall(plain), _TAG.sub(" ", plain)]
        words |= set(
            re.findall(r"[A-Za-z]{2,}", _BROWSER_DIRECTIVES.sub("", unescape(" ".join(texts))))
        )
    return words


def words_in_scripts() -> set[str]:
    """Return the literals that scripts write into the page."""
    literals = {text for path in SCRIPTS for text in _SET.findall(path.read_text())}
    return {text for text in literals if re.search(r"[A-Za-z]{2,}", text)}


def _in_templates() -> Iterator[Call]:
    for path in TEMPLATES:
        for call in Environment(autoescape=True).parse(path.read_text()).find_all(nodes.Call):
            if not (isinstance(call.node, nodes.Name) and call.node.name == "t"):
                continue
            if isinstance(key := call.args[0], nodes.Const):
                yield path.name, key.value, [value.key for value in call.kwargs]


def _in_scripts() -> Iterator[Call]:
    for path in SCRIPTS:
        for key, values in _WORD.findall(path.read_text()):
            names = [part.partition(":")[0].strip() for part in values.split(",")]
            yield path.name, key, [name for name in names if name]


def _in_python() -> Iterator[Call]:
    for path in MODULES:
        for call in ast.walk(ast.parse(path.read_text())):
            if not isinstance(call, ast.Call) or not call.args:
                continue
            key, called = call.args[0], ast.unparse(call.func)
            if re.fullmatch(r"(\w+\.)*t", called) and isinstance(key, ast.Constant):
                yield path.name, str(key.value), [str(value.arg) for value in call.keywords]
