"""The SQL statements of payintent/storage, as they run: literals, constants and their sums."""

import ast
import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from payintent.storage import gateway_payouts, payouts
from payintent.storage.lists import KeysetList

ROOT = Path(__file__).resolve().parent.parent
STORAGE = ROOT / "payintent" / "storage"
_CALLS = {"fetch", "row", "fetchrow", "fetchval", "execute"}
#: Modules that pass on or compose queries; those of payments are composed below.
_COMPOSED = {
    *("database", "driver", "lists", "payment_list", "payment_search", "migrations_runner"),
    "replica",
}


@dataclass(frozen=True)
class Statement:
    """One query of the service, and the function of `payintent.storage` that runs it."""

    function: str  # `module.name`
    query: str


def statements() -> Iterator[Statement]:
    """Yield every statement that the roles of the service run."""
    for path in sorted(STORAGE.rglob("[a-z]*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        names = vars(importlib.import_module(module))
        for name, value in names.items():
            if isinstance(value, KeysetList):
                yield Statement(f"{path.stem}.{name}", value.text)
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                for query in _queries(function, names):
                    yield Statement(f"{path.stem}.{function.name}", query)
    for table in (payouts.TABLE, gateway_payouts.TABLE):
        yield Statement("payouts.list_page", table.keyset.text)
    listing = vars(importlib.import_module("payintent.storage.payment_list"))
    for query in vars(listing["NEWEST"]).values():
        yield Statement("listing.listed", "WITH page AS (" + query + ")" + listing["_PAGE"])
    search = vars(importlib.import_module("payintent.storage.payment_search"))
    for query in vars(search["_NEWEST"]).values():
        yield Statement("payment_search.list_positions", query)


def _queries(function: ast.AST, names: dict[str, Any]) -> Iterator[str]:
    """Yield the queries of a function: literals, and sums of constants of its module or table."""
    for call in ast.walk(function):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
            if call.func.attr not in _CALLS or not call.args:
                continue
            query = compile(ast.Expression(call.args[0]), "query", "eval")
            try:
                if "self" in query.co_names and "PayoutTable" in names:
                    for table in (payouts.TABLE, gateway_payouts.TABLE):
                        yield eval(query, names, {"self": table})  # noqa: S307
                else:
                    yield eval(query, names)  # noqa: S307
            except NameError:
                if Path(names["__file__"]).stem not in _COMPOSED:
                    raise ValueError(f"not a constant: {ast.unparse(call)}") from None
