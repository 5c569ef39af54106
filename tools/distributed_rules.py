"""What Citus refuses of a statement on the tables of a cell, each with what to write instead.

Seen on Citus 14 and in its planner (`multi_router_planner.c`): it computes what is not immutable
once, on the coordinator, so a statement whose value could differ by row, or by node, is refused.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sqlglot import exp


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: Functions whose value depends on their arguments alone. What is not here is not taken for one.
_IMMUTABLE = _words("""
    abs array_agg array_length bool_and bool_or cardinality ceil coalesce count encode floor
    greatest if isfinite jsonb_object_agg least left length lower
    ltrim max md5 min mod num_nonnulls nullif pow power replace right round row_number sha256
    string_agg strpos substr substring sum trim unnest upper
""")
#: Functions that give another value each time, or do something.
_VOLATILE = _words("""
    clock_timestamp gen_random_uuid nextval pg_advisory_lock pg_advisory_xact_lock pg_notify
    pg_try_advisory_xact_lock pg_try_advisory_xact_lock_shared rand random set_config setval
    takes_creates uuid uuidv7
""")
#: Nodes of sqlglot that are functions only in name.
_NO_CALLS = (exp.And, exp.Or, exp.Cast, exp.Case, exp.If, exp.Exists, exp.Coalesce, exp.Array)


@dataclass(frozen=True)
class Finding:
    """A rule that a statement breaks, and where."""

    rule: str
    text: str


@dataclass(frozen=True)
class Schema:
    """What the rules have to know of the tables."""

    of_cells: frozenset[str]  # the tables that are written in a cell
    in_cells: frozenset[str]  # with what is copied there
    computed: dict[str, frozenset[str]]  # by table: the columns whose default is a function's


def find(statement: exp.Expression, schema: Schema) -> Iterator[Finding]:
    """Find what Citus refuses in a parsed statement."""
    for change in statement.find_all(exp.Insert, exp.Update, exp.Delete):
        if _target(change) not in schema.of_cells:
            continue
        for rule, check in _RULES.items():
            if (place := check(change, schema)) is not None:
                yield Finding(rule, _shortened(place))
    for case in statement.find_all(exp.Case):
        if isinstance(case.this, exp.Parameter) or _is_cast_parameter(case.this):
            yield Finding(_CASE_OF_PARAMETER, _shortened(case))


def _on_conflict(change: exp.Expression, _: Schema) -> exp.Expression | None:
    conflict = change.args.get("conflict")
    return _changing(conflict) if conflict is not None else None


def _insert_subquery(change: exp.Expression, _: Schema) -> exp.Expression | None:
    """Find a subquery in an INSERT that has none to read from."""
    if not isinstance(change, exp.Insert) or isinstance(change.expression, exp.Query):
        return None
    parts = (change.expression, change.args.get("conflict"), change.args.get("returning"))
    found = (part.find(exp.Select) for part in parts if part is not None)
    return next((query for query in found if query is not None), None)


def _insert_select(change: exp.Expression, schema: Schema) -> exp.Expression | None:
    """Find an INSERT that computes a value beside rows that it reads: it is deparsed wrongly."""
    if not isinstance(change, exp.Insert) or not isinstance(change.expression, exp.Query):
        return None
    if not _read(change) & schema.in_cells:
        return None
    if (call := _changing(change.expression)) is not None:
        return call
    named = {column.name for column in _columns(change)}
    left_out = schema.computed.get(_target(change), frozenset()) - named
    return exp.column(min(left_out)) if left_out else None


def _volatile(change: exp.Expression, _: Schema) -> exp.Expression | None:
    for part in _parts_of_change(change):
        for call, name in _calls(part):
            if name in _VOLATILE:
                return call
    return None


def _stable_of_column(change: exp.Expression, _: Schema) -> exp.Expression | None:
    """Find a function that is not immutable of a column, and sums of a time and an interval."""
    for part in _parts_of_change(change):
        for call, name in _calls(part):
            if name not in _IMMUTABLE and call.find(exp.Column) is not None:
                return call
        for total in _own(part, exp.Add, exp.Sub):
            if _has_interval(total) and total.find(exp.Column) is not None:
                return total
    return None


def _in_case(change: exp.Expression, _: Schema) -> exp.Expression | None:
    for part in _parts_of_change(change):
        for case in _own(part, exp.Case, exp.Coalesce):
            if _changing(case) is not None:
                return case
    return None


def _returning(change: exp.Expression, _: Schema) -> exp.Expression | None:
    returning = change.args.get("returning")
    return _changing(returning) if returning is not None else None


def _row_in(change: exp.Expression, _: Schema) -> exp.Expression | None:
    where = change.args.get("where")
    if where is not None and isinstance(change, exp.Delete):
        return next((item for item in where.find_all(exp.In) if _is_row(item.this)), None)
    return None


_CASE_OF_PARAMETER = "CASE of a parameter: write CASE WHEN $1 = …"
_RULES: dict[str, Callable[[exp.Expression, Schema], exp.Expression | None]] = {
    "ON CONFLICT with what is not immutable: use `excluded`": _on_conflict,
    "a subquery in INSERT … VALUES: write INSERT … SELECT, or read it before": _insert_subquery,
    "INSERT … SELECT with clock() from a table: read it AS MATERIALIZED": _insert_select,
    "a volatile function: compute it before": _volatile,
    "a function that is not immutable, of a column": _stable_of_column,
    "CASE or COALESCE of clock(): write FROM (SELECT clock() AS now) t": _in_case,
    "RETURNING what is not immutable: return a column, or compute it outside": _returning,
    "DELETE of rows IN: write USING": _row_in,
}
RULES = (*_RULES, _CASE_OF_PARAMETER)


def _parts_of_change(change: exp.Expression) -> Iterator[exp.Expression]:
    """Give what an UPDATE sets, and by what an UPDATE or DELETE chooses."""
    if isinstance(change, exp.Update):
        yield from change.expressions
    if not isinstance(change, exp.Insert) and (where := change.args.get("where")) is not None:
        yield where


def _changing(part: exp.Expression) -> exp.Expression | None:
    """Find a function that is not immutable, or a time moved by an interval."""
    for call, name in _calls(part, within_queries=True):
        if name not in _IMMUTABLE:
            return call
    sums = part.find_all(exp.Add, exp.Sub)
    return next((total for total in sums if _has_interval(total) and not _is_span(total)), None)


def _calls(
    part: exp.Expression, *, within_queries: bool = False
) -> Iterator[tuple[exp.Expression, str]]:
    found = part.find_all(exp.Func) if within_queries else _own(part, exp.Func)
    for call in found:
        if not isinstance(call, _NO_CALLS):
            name = call.name if isinstance(call, exp.Anonymous) else call.sql_name()
            yield call, name.lower()


def _own(part: exp.Expression, *kinds: type[exp.Expression]) -> Iterator[exp.Expression]:
    """Find nodes of some kinds that are in no subquery."""
    for node in part.walk(prune=lambda item: isinstance(item, exp.Query)):
        if isinstance(node, kinds):
            yield node


def _has_interval(total: exp.Expression) -> bool:
    sides = (total.this, total.expression)
    return any(_is_interval(side.unnest()) for side in sides)


def _is_interval(side: exp.Expression) -> bool:
    if isinstance(side, exp.Interval):
        return True
    if isinstance(side, exp.Mul):
        return _is_interval(side.this.unnest()) or _is_interval(side.expression.unnest())
    return isinstance(side, exp.Cast) and side.is_type("interval")


def _is_span(total: exp.Expression) -> bool:
    """Tell whether both sides are intervals."""
    return _is_interval(total.this.unnest()) and _is_interval(total.expression.unnest())


def _is_row(value: exp.Expression) -> bool:
    return isinstance(value, exp.Tuple)


def _is_cast_parameter(value: exp.Expression | None) -> bool:
    return isinstance(value, exp.Cast) and isinstance(value.this, exp.Parameter)


def _read(change: exp.Expression) -> set[str]:
    """Name what an INSERT … SELECT reads in one step with it, not from a step before."""
    inlined = {step.alias: step.this for step in change.root().find_all(exp.CTE) if _inlines(step)}
    read = {table.name for table in change.expression.find_all(exp.Table)}
    while names := read & inlined.keys():
        read -= names
        read |= {table.name for name in names for table in inlined[name].find_all(exp.Table)}
    return read


def _inlines(step: exp.CTE) -> bool:
    return not step.args.get("materialized") and not isinstance(
        step.this, exp.Insert | exp.Update | exp.Delete
    )


def _target(change: exp.Expression) -> str:
    table = change.this.find(exp.Table) if change.this is not None else None
    return table.name if table is not None else ""


def _columns(change: exp.Expression) -> list[exp.Expression]:
    return change.this.expressions if isinstance(change.this, exp.Schema) else []


def _shortened(place: exp.Expression) -> str:
    return re.sub(r"\s+", " ", place.sql(dialect="postgres"))[:100]
