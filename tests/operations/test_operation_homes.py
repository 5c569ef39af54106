"""Every operation says where it is done, and writes nothing that its database lacks or copies."""

import dis
import inspect
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from payintent.operations.base import ChangeOperation, OperationHome
from payintent.operations.registry import OPERATIONS
from payintent.payments.create_refund import RefundCreator
from payintent.storage.table_homes import TABLE_HOMES, TableHome
from tests.storage.test_table_homes import _WRITTEN, _functions

_MAY_WRITE = {
    OperationHome.CONTROL: {TableHome.CONTROL, TableHome.COPIED, TableHome.EACH},
    OperationHome.CELL: {TableHome.CELL, TableHome.EACH},
    OperationHome.CELLS: {TableHome.CELL, TableHome.EACH},
}
#: What those of control write of cell 0's own: it is a cell too.
_OF_CELL_0 = {
    "merchant.invite": {"mail"},  # with its member
    "keyring.rotate": {"mail"},  # and of each other cell by itself
    "gateway-payout.record": {"ledger_entry"},  # in control's ledger, for all cells
    "gateway-payout.reverse": {"ledger_entry"},
    "chain.add-contract": {"chain_cursor"},  # other cells begin theirs with the copy
    "chain.set": {"chain_refund"},  # other cells keep logs of a new refunder that came before it
    "limit.set": {"rate_state"},  # in other cells what was left counts on, at the new rate
    "limit.clear": {"rate_state"},
}
_GATEWAYS = {"gateway-payout.reverse"}  # its `payout_id` is a gateway's payout, which is control's
#: What is called on an object of the context.
_METHODS: dict[str, tuple[type, Callable[..., Any]]] = {
    "create_within": (RefundCreator, RefundCreator.create_within)
}
#: Fields that name a cell, with the type that `find_cell` reads.
_CELL_FIELDS = {
    *("payment_id", "refund_id", "case_id", "event_id", "payout_id", "statement_id"),
    *("approval_id", "merchant_id"),
}
#: In the cell of a file's merchants, of an account's merchant, of a payer's payments.
_FIND_IT_THEMSELVES = {"payout.import", "ledger.adjust", "payer.erase"}


def test_an_operation_of_a_cell_says_by_which_field_it_is_found() -> None:
    for action, kind in OPERATIONS.items():
        is_of_cell = kind.home is OperationHome.CELL
        assert (kind.cell_field is not None) <= is_of_cell, action
        if is_of_cell and action not in _FIND_IT_THEMSELVES:
            assert kind.cell_field in _CELL_FIELDS & set(kind.__struct_fields__), action
    named = {action for action, kind in OPERATIONS.items() if "cell_of" in vars(kind)}
    assert named == _FIND_IT_THEMSELVES


def test_what_names_a_row_of_a_cell_is_done_in_that_cell() -> None:
    rows = _CELL_FIELDS - {"merchant_id"}
    for action, kind in OPERATIONS.items():
        if kind.home is OperationHome.CONTROL and action not in _GATEWAYS:
            assert not rows & set(kind.__struct_fields__), action


def test_a_change_writes_only_what_its_database_has_of_its_own() -> None:
    strange = {
        action: tables
        for action, kind in OPERATIONS.items()
        if issubclass(kind, ChangeOperation)
        and (tables := {t for t in _written(kind) if TABLE_HOMES[t] not in _MAY_WRITE[kind.home]})
    }
    assert strange == _OF_CELL_0


def test_the_statements_of_changes_are_found() -> None:
    written = {
        action: _written(kind)
        for action, kind in OPERATIONS.items()
        if issubclass(kind, ChangeOperation)
    }
    assert {"payment", "event", "delivery"} <= written["payment.cancel"]
    assert {"refund", "capture"} <= written["payment.refund"]
    assert {"payout", "ledger_entry"} <= written["payout.import"]
    assert written["tax.set"] == {"tax_rate"}
    # What is taken back is written by a function of the server, whichever table it is.
    assert [action for action, tables in written.items() if not tables] == ["cell.take-back"]


def _written(kind: type[ChangeOperation[Any]]) -> set[str]:
    """Name the tables that `apply` writes, by what it calls."""
    found, seen = set[str](), set[Any]()
    left: list[tuple[type | None, Callable[..., Any]]] = [(kind, kind.apply)]
    while left:
        owner, function = left.pop()
        function = inspect.unwrap(function)
        if function in seen or not isinstance(function, FunctionType):
            continue
        seen.add(function)
        sql = _statements().get((function.__code__.co_filename, function.__name__), "")
        found |= set(_WRITTEN.findall(sql)) & TABLE_HOMES.keys()
        left += _called(owner, function)
    return found


def _called(
    owner: type | None, function: FunctionType
) -> Iterator[tuple[type | None, Callable[..., Any]]]:
    for code in _codes(function.__code__):
        before: Any = None
        for step in dis.get_instructions(code):
            name = step.argval
            value: Any = None
            if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                value = function.__globals__.get(name)
            elif step.opname in ("LOAD_FAST", "LOAD_DEREF"):
                value = owner if name == "self" else None
            elif step.opname in ("LOAD_ATTR", "LOAD_METHOD"):
                if name in _METHODS:
                    yield _METHODS[name]
                if isinstance(before, ModuleType) or (before is not None and before is owner):
                    value = getattr(before, name, None)
            if inspect.isfunction(value) and value.__module__.startswith("payintent."):
                yield (owner if before is owner else None), value
            before = value


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Give the code of a function, and that of what is defined in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


@cache
def _statements() -> dict[tuple[str, str], str]:
    """Give the SQL of each function of storage, by its file and name."""
    return {(str(Path(path)), name): sql for path, name, sql in _functions()}
