"""The SQL statements of payintent/storage, as they are run: literals, constants and their sums."""

import ast
import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
STORAGE = ROOT / "payintent" / "storage"
_CALLS = {"fetch", "row", "fetchrow", "fetchval", "execute"}
#: Where a query is passed on or put together; the parts of `payment_list` are given apart.
_COMPOSED = {
    "gated_database",
    *("database", "driver", "payment_list", "migrations_runner", "replica"),
    "copied_tables",  # the copier is played in test_copied_tables.py
}
#: What moves a cell to another server is run by none of the service's roles.
OF_SUPERUSERS = {"cell_move", "cell_switch"}


@dataclass(frozen=True)
class Statement:
    """One query of the service, and the function of `payintent.storage` that runs it."""

    function: str  # `module.name`
    query: str


def statements() -> Iterator[Statement]:
    """Give every statement that the roles of the service run."""
    for path in sorted(STORAGE.rglob("[a-z]*.py")):
        if path.stem in OF_SUPERUSERS:
            continue
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        names = vars(importlib.import_module(module))
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                for query in _queries(function, names):
                    yield Statement(f"{path.stem}.{function.name}", query)
    listing = vars(importlib.import_module("payintent.storage.payment_list"))
    for query in ("_ALL", "_OF_KINDS"):
        yield Statement("listing.listed", listing[query] + listing["_PAGE"])


def _queries(function: ast.AST, names: dict[str, Any]) -> Iterator[str]:
    """Give the queries of a function: literals, and what is added up of the module's own."""
    for call in ast.walk(function):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
            if call.func.attr not in _CALLS or not call.args:
                continue
            try:
                query = eval(compile(ast.Expression(call.args[0]), "query", "eval"), names)  # noqa: S307
            except NameError:
                if Path(names["__file__"]).stem not in _COMPOSED:
                    raise ValueError(f"not a constant: {ast.unparse(call)}") from None
            else:
                yield query
