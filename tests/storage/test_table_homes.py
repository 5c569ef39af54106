"""Every table has a home, and no statement or reference needs two databases at once."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from payintent.storage.table_homes import _NAMES, TABLE_HOMES, TableHome

_PACKAGE = Path(__file__).parents[2] / "payintent"
_STORAGE = _PACKAGE / "storage"
_SCHEMA = (_STORAGE / "schema.sql").read_text()
_TABLE = re.compile(r"CREATE (?:UNLOGGED )?TABLE public\.(\w+)")
_REFERENCE = re.compile(
    r"ALTER TABLE ONLY public\.(\w+)\s+ADD CONSTRAINT \w+ FOREIGN KEY .+ REFERENCES public\.(\w+)"
)
_NAMED = re.compile(r"\b(?:FROM|JOIN|INTO|UPDATE|USING|TABLE)\s+(?:ONLY\s+)?(\w+)")
_LISTED = re.compile(r"\bFROM\s+((?:\w+(?:\s+\w+)?\s*,\s*)+\w+)")  # FROM payment p, capture c
_WRITTEN = re.compile(r"\b(?:INSERT INTO|UPDATE|DELETE FROM)\s+(\w+)")
#: What compares control with cells: of these each has to be asked by itself, and the sums added.
_COMPARE_BOTH = {"gateway_payouts.sum_standing", "ledger_check.find_differences"}
#: The first contract of a chain begins the chain's cursor; every cell has one of its own.
_BEGIN_A_CURSOR = {"chains.add_contract"}

Place = tuple[Path, str]


def test_every_table_has_a_home_and_every_home_a_table() -> None:
    assert sorted(_TABLE.findall(_SCHEMA)) == sorted(" ".join(_NAMES.values()).split())


def test_a_row_refers_only_to_what_its_database_has() -> None:
    has = {
        TableHome.CONTROL: {TableHome.CONTROL, TableHome.COPIED},
        TableHome.COPIED: {TableHome.COPIED},
        TableHome.CELL: {TableHome.CELL, TableHome.COPIED},
        TableHome.EACH: {TableHome.EACH},
    }
    references = _REFERENCE.findall(_SCHEMA)
    assert len(references) > 50
    across = [
        (table, other)
        for table, other in references
        if TABLE_HOMES[other] not in has[TABLE_HOMES[table]]
    ]
    assert across == []


def test_a_function_of_storage_reads_either_control_or_a_cell() -> None:
    across = {
        f"{path.stem}.{name}"
        for path, name, sql in _functions()
        if {TableHome.CONTROL, TableHome.CELL} <= _homes(_tables(sql))
    }
    assert across == _COMPARE_BOTH


def test_what_is_copied_is_not_written_by_what_a_cell_says() -> None:
    mixed = {
        f"{path.stem}.{name}"
        for path, name, sql in _functions()
        if TableHome.COPIED in _homes(set(_WRITTEN.findall(sql)))
        and TableHome.CELL in _homes(_tables(sql))
    }
    assert mixed == _BEGIN_A_CURSOR


def test_statements_are_looked_at_with_their_fragments() -> None:
    found = {f"{path.stem}.{name}": _tables(sql) for path, name, sql in _functions()}
    assert {"capture", "provider_account", "payment"} <= found["captures.find"]
    assert found["configuration.get_version"] == {"configuration_version", "chain_cursor"}
    assert sum(1 for tables in found.values() if tables) > 400


def _homes(tables: set[str]) -> set[TableHome]:
    return {TABLE_HOMES[table] for table in tables if table in TABLE_HOMES}


def _tables(sql: str) -> set[str]:
    listed = (part.split()[0] for names in _LISTED.findall(sql) for part in names.split(","))
    return {*_NAMED.findall(sql), *listed} & TABLE_HOMES.keys()


def _functions() -> Iterator[tuple[Path, str, str]]:
    """Give each function and method of storage with all its SQL, that of its fragments too."""
    for path in sorted(_STORAGE.rglob("*.py")):
        for node in ast.walk(_tree(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield path, node.name, _sql(path, node, ())


def _sql(path: Path, node: ast.AST, within: tuple[Place, ...]) -> str:
    """Join the texts of a node, and of the constants that it names, without docstrings."""
    is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    said = ast.get_docstring(node, clean=False) if is_function else None
    parts: list[str] = []
    for child in ast.walk(node):
        if isinstance(child, ast.Constant) and isinstance(child.value, str) and child.value != said:
            parts.append(child.value)
        elif isinstance(child, ast.Name):
            place = _constant(path, child.id)
            if place is not None and place not in within:
                value = _constants(place[0])[place[1]]
                parts.append(_sql(place[0], value, (*within, place)))
    return "\n".join(parts)


def _constant(path: Path, name: str) -> Place | None:
    """Find the module in which a name is set, here or where it is imported from."""
    if name in _constants(path):
        return path, name
    source = _imports(path).get(name)
    return (source, name) if source and name in _constants(source) else None


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def _constants(path: Path) -> dict[str, ast.expr]:
    found: dict[str, ast.expr] = {}
    for node in _tree(path).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            found[node.targets[0].id] = node.value
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
            found[node.target.id] = node.value
    return found


@cache
def _imports(path: Path) -> dict[str, Path]:
    return {
        alias.name: source
        for node in _tree(path).body
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
        if (source := _PACKAGE.parent / f"{node.module.replace('.', '/')}.py").exists()
    }
