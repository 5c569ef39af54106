"""Whatever is given a database or a transaction takes new ids of it, and is given no others.

An id names the cell of its row. Two parameters that have to agree on that cell are a way to write
a row of one cell with an id of another; a database and a transaction have their own generator.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

_ROOT = Path(__file__).parent.parent
_FOLDERS = ("payintent", "payintent_sandbox", "bench", "drills", "tools", "tests", "plugins")
_GENERATOR = "IdGenerator"
_NAME = "id_generator"
#: What has a generator of its own, or leads to one.
_DATABASES = frozenset(
    {"Database", "GatedDatabase", "GuardedDatabase", "ReadDatabase", "Executor", "Tx", "Cells"}
    | {"Service", "AppContext", "OperationContext", "ReconciliationContext", "World"}
)
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def _types(annotation: ast.expr | None) -> set[str]:
    """List the names in an annotation, also in one that is written as text."""
    if annotation is None:
        return set()
    names = set[str]()
    for node in ast.walk(annotation):
        if isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.Attribute):
            names.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names |= set(re.findall(r"\w+", node.value))
    return names


def _parameters(function: _Function | ast.Lambda) -> Iterator[tuple[str, set[str]]]:
    given = function.args
    for each in (*given.posonlyargs, *given.args, *given.kwonlyargs):
        yield each.arg, _types(each.annotation)


def _fields(of: ast.ClassDef) -> Iterator[tuple[str, set[str]]]:
    """Give a class's fields, what it is made of, and what its methods keep in `self`."""
    for statement in of.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            yield statement.target.id, _types(statement.annotation)
        elif isinstance(statement, ast.FunctionDef) and statement.name == "__init__":
            yield from _parameters(statement)
    for node in ast.walk(of):
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Store)
            and isinstance(node.value, ast.Name)
            and node.value.id == "self"
        ):
            yield node.attr.lstrip("_"), set()


def _has_both(given: list[tuple[str, set[str]]]) -> bool:
    has_generator = any(name == _NAME or _GENERATOR in types for name, types in given)
    return has_generator and any(types & _DATABASES for _, types in given)


def _find(tree: ast.Module) -> list[str]:
    """Find what is given both; a lambda goes by its line."""
    found: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            given = list(_fields(node))
        elif isinstance(node, _Function | ast.Lambda):
            given = list(_parameters(node))
        else:
            continue
        if _has_both(given):
            found.append(getattr(node, "name", f"line {node.lineno}"))
    return found


_REFUSED = {
    "f": "def f(tx: Tx, id_generator: IdGenerator): ...",
    "g": "async def g(database: Database | None, *, ids: IdGenerator): ...",
    "h": "def h(id_generator, tx: 'Tx'): ...",
    "nested": "def outer(tx: Tx):\n    def nested(tx: Tx, new: IdGenerator): ...",
    "__init__": "class A:\n    def __init__(self, of: Database, ids: IdGenerator): ...",
    "method": "class A:\n    def method(self, cells: Cells, ids: ids.IdGenerator | None): ...",
    "Fields": "class Fields:\n    database: Database\n    new_ids: IdGenerator",
    "Kept": "class Kept:\n    tx: Tx\n    def set(self, ids): self._id_generator = ids",
}


@pytest.mark.parametrize("name", _REFUSED)
def test_what_is_given_a_database_and_a_generator_is_found(name: str) -> None:
    assert name in _find(ast.parse(_REFUSED[name]))


_FREE = (
    "class Database:\n    def __init__(self, settings: Settings, ids: IdGenerator): ...",
    "class A:\n    tx: Tx\n    @property\n    def id_generator(self) -> IdGenerator: ...",
    "def make_cases(id_generator: IdGenerator, different: Iterable[str]): ...",
    "def open_case(tx: Tx, case_id: UUID): ...",
)


@pytest.mark.parametrize("text", _FREE)
def test_what_is_given_a_generator_alone_or_has_that_of_its_database_is_not(text: str) -> None:
    assert _find(ast.parse(text)) == []


def test_nothing_is_given_a_database_and_a_generator_that_has_to_agree_with_it() -> None:
    paths = [path for folder in _FOLDERS for path in sorted((_ROOT / folder).rglob("*.py"))]
    texts = {path: path.read_text() for path in paths}
    texts = {path: text for path, text in texts.items() if _GENERATOR in text or _NAME in text}
    assert len(texts) > 50
    found = {
        str(path.relative_to(_ROOT)): names
        for path, text in texts.items()
        if (names := _find(ast.parse(text)))
    }
    assert found == {}
