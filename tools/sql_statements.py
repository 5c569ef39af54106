"""The service's complete SQL statements: literals, constants and concatenations of both."""

import ast
import importlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any, cast

from payintent.accounting import gateway_payouts_store as gateway_payout_store
from payintent.accounting import payouts_store as payout_store
from payintent.db.lists import KeysetList

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "payintent"
_CALLS = {"fetch", "row", "value", "fetchrow", "fetchval", "execute"}
_SQL = re.compile(
    r"\s*(?:SELECT|INSERT|UPDATE|DELETE|WITH|CREATE|LOCK|SET|NOTIFY|LISTEN|TRUNCATE|ANALYZE)\b"
)
#: Modules that pass on or compose queries. `statements` composes the queries of payment lists.
_COMPOSED = {
    *("db.database", "db.driver", "db.lists", "db.migrations_runner", "db.replica"),
    *("payments.list_store", "payments.search_store"),
}


@dataclass(frozen=True)
class Statement:
    """A query of the service and the function that runs it."""

    function: str  # such as `refunds.store.get`
    query: str


def statements() -> Iterator[Statement]:
    """Yield every statement that the service runs with its database roles."""
    for label, tree, names in _modules():
        for name, value in names.items():
            for keyset in _list_keysets(value):
                yield Statement(f"{label}.{name}", keyset.text)
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                for query in _queries(function, names, label):
                    yield Statement(f"{label}.{function.name}", query)
    for table in (payout_store.TABLE, gateway_payout_store.TABLE):
        yield Statement("accounting.payouts_store.list_page", table.keyset.text)
    listing = vars(importlib.import_module("payintent.payments.list_store"))
    for query in vars(listing["NEWEST"]).values():
        yield Statement(
            "payments.list_store.listed", "WITH page AS (" + query + ")" + listing["_PAGE"]
        )
    search = vars(importlib.import_module("payintent.payments.search_store"))
    for query in vars(search["_NEWEST"]).values():
        yield Statement("payments.search_store.list_positions", query)


def _list_keysets(value: object) -> list[KeysetList]:
    """Return a `KeysetList`, or every `KeysetList` in a dictionary, as a list."""
    values = cast("dict[object, object]", value).values() if isinstance(value, dict) else [value]
    return [item for item in values if isinstance(item, KeysetList)]


def _modules() -> Iterator[tuple[str, ast.Module, dict[str, Any]]]:
    """Yield the modules that may run a statement: label, syntax tree and namespace."""
    for path in sorted(PACKAGE.rglob("[a-z]*.py")):
        text = path.read_text()
        if any(f".{call}(" in text for call in _CALLS) or "KeysetList(" in text:
            label = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
            yield label, ast.parse(text), vars(importlib.import_module(f"payintent.{label}"))


def _queries(function: ast.AST, names: dict[str, Any], label: str) -> Iterator[str]:
    """Yield a function's queries: literals, and concatenated constants of its module or table."""
    for call in ast.walk(function):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
            if call.func.attr not in _CALLS or not call.args:
                continue
            code = compile(ast.Expression(call.args[0]), "query", "eval")
            try:
                queries = list(_evaluate(code, names))
            except (NameError, AttributeError, TypeError):
                if label.endswith("store") and label not in _COMPOSED:
                    raise ValueError(f"not a constant: {ast.unparse(call)}") from None
                continue
            yield from (query for query in queries if isinstance(query, str) and _SQL.match(query))


def _evaluate(code: CodeType, names: dict[str, Any]) -> Iterator[Any]:
    """Yield the value of a query for each table that it is composed for."""
    if "self" in code.co_names and "PayoutTable" in names:
        for table in (payout_store.TABLE, gateway_payout_store.TABLE):
            yield eval(code, names, {"self": table})  # noqa: S307
    else:
        yield eval(code, names)  # noqa: S307
