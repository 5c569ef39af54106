"""Every regular expression of the service runs in linear time."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import payintent
from tests.support.patterns import ways_to_backtrack

pytestmark = pytest.mark.full

_ROOT = Path(payintent.__file__).parents[1]
_ANCHORED = {"match", "fullmatch"}
_CALLS = {"compile", "search", "sub", "subn", "split", "findall", "finditer"} | _ANCHORED

#: Expressions that the automaton cannot check, with the reason why they are harmless.
_EXCUSED = {
    "payintent/http/pages/static_files.py": "reads the SDK's own source, once",
    "payintent_sandbox/chains/anvil_binary.py": "reads the version that a sandbox program prints",
}


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def _patterns() -> Iterator[tuple[str, str | bytes, int, bool]]:
    """Return each expression: its location, text and flags, and whether it is used in a search."""
    for path in sorted(_ROOT.glob("payintent*/**/*.py")):
        calls = [node for node in ast.walk(_tree(path)) if isinstance(node, ast.Call)]
        for call in calls:
            expression = _expression(call)
            if expression is None:
                continue
            place = f"{path.relative_to(_ROOT)}:{ast.unparse(expression)[:60]}"
            values = _evaluated(path, call, expression)
            for pattern, flags in values:
                yield place, pattern, flags, _is_searched(path, call)


def _expression(call: ast.Call) -> ast.expr | None:
    function = call.func
    if isinstance(function, ast.Attribute) and ast.unparse(function.value) == "re":
        return call.args[0] if function.attr in _CALLS else None
    if isinstance(function, ast.Name) and function.id == "Meta":
        return next((keyword.value for keyword in call.keywords if keyword.arg == "pattern"), None)
    return None


def _evaluated(path: Path, call: ast.Call, expression: ast.expr) -> list[tuple[str | bytes, int]]:
    name = ".".join(path.relative_to(_ROOT).with_suffix("").parts)
    names = vars(import_module(name))
    if isinstance(expression, ast.Subscript):  # a table of patterns
        return [(item, 0) for item in _value(expression.value, names).values()]
    if ast.unparse(call.func) != "re.compile":
        return [(_value(expression, names), 0)]
    value = _value(call, names)
    return [(value.pattern, value.flags & ~re.UNICODE)]


def _value(node: ast.expr, names: dict[str, Any]) -> Any:
    return eval(compile(ast.Expression(node), "pattern", "eval"), names)  # noqa: S307 - our code


def _is_searched(path: Path, call: ast.Call) -> bool:
    used = ast.unparse(call.func).rpartition(".")[2]
    if used != "compile":
        return used not in _ANCHORED
    names = [
        target.id
        for node in _tree(path).body
        if isinstance(node, ast.Assign) and node.value is call
        for target in node.targets
        if isinstance(target, ast.Name)
    ]
    uses = re.findall(rf"\b{names[0]}\.(\w+)\(", path.read_text()) if names else []
    return not uses or not set(uses) <= _ANCHORED


def test_no_regular_expression_of_the_service_can_backtrack() -> None:
    patterns = list(_patterns())
    assert len(patterns) > 60
    bad = {
        place: way
        for place, pattern, flags, searched in patterns
        if (way := ways_to_backtrack(pattern, flags, search=searched))
    }
    files = {place.partition(":")[0] for place in bad}
    assert files == set(_EXCUSED), bad


@pytest.mark.parametrize(
    "pattern",
    [r"(a+)+b", r"(a*)*b", r"(aa?)*b", r"(a|ab|b)*c", r"a*a*b", r"(?:\\.|[^\"])*\"", r"(\w+\s?)+;"],
)
def test_a_backtracking_expression_is_detected(pattern: str) -> None:
    assert ways_to_backtrack(pattern)


@pytest.mark.parametrize("pattern", [r"a+b", r"\s*x", r"a.*b", r'"(?:[^"\\]|\\.)*"'])
def test_an_expression_that_restarts_at_every_character_is_detected(pattern: str) -> None:
    """The last expression once blocked the service on an unterminated string."""
    assert ways_to_backtrack(pattern, search=True)
    assert not ways_to_backtrack(pattern)


@pytest.mark.parametrize(
    "pattern", [r"[a-z]+_[0-9]{22}", r"a(?:-[a-z]{2,8}){0,3}", r"(?:\\.|[^\"\\])*\"", r"a?a?b"]
)
def test_a_linear_expression_is_accepted(pattern: str) -> None:
    assert not ways_to_backtrack(pattern)
