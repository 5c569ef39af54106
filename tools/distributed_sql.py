"""Look for what the distributed tables of Citus refuse: anything found ends with 1.

`python -m tools.distributed_sql` reads the statements of `payintent/storage` on tables of a cell,
and the schema. A cell may be a schema of a Citus cluster (docs/scale.md), and none is in CI.
"""

import logging
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import sqlglot
from sqlglot import exp

from payintent.storage.table_homes import TABLE_HOMES, TableHome
from tools.distributed_rules import RULES, Finding, Schema, find
from tools.sql_statements import ROOT, Statement, statements

_SCHEMA = ROOT / "payintent" / "storage" / "schema.sql"
_DISTRIBUTE = ROOT / "deploy" / "citus" / "distribute.sql"
_TABLE = re.compile(r"CREATE (UNLOGGED )?TABLE public\.(\w+) \((.*?)\n\)", re.DOTALL)
_COMPUTED = re.compile(r"^\s+(\w+) .*DEFAULT (?:public\.)?\w+\(", re.MULTILINE)
_TRIGGER = re.compile(r"CREATE TRIGGER (\w+) .* ON public\.(\w+) ")
_SETS_LOGGED = re.compile(r"relpersistence = 'u'.*SET LOGGED", re.DOTALL)
_SETS_IDENTITY = re.compile(r"NOT EXISTS .*indisprimary.*REPLICA IDENTITY FULL", re.DOTALL)
_KEY = re.compile(r"ALTER TABLE ONLY public\.(\w+)\n +ADD CONSTRAINT \w+ PRIMARY KEY")
_SETS_PATHS = re.compile(r"'trigger'::regtype.*SET search_path", re.DOTALL)
#: What is said of a cell's own database is written there, too.
_OF_CELLS = {TableHome.CELL, TableHome.EACH}
__all__ = ["RULES", "Statement", "find_in", "find_in_schema", "is_of_cells", "main", "read_schema"]


def main() -> int:
    """Print what is refused, with the function that runs it; gives the process's result."""
    tables = _SCHEMA.read_text()
    schema = read_schema(tables)
    found = [
        *(
            f"{statement.function}: {finding.rule}\n    {finding.text}"
            for statement in statements()
            for finding in find_in(statement.query, schema)
        ),
        *find_in_schema(tables, _DISTRIBUTE.read_text()),
    ]
    print("\n".join(found) or "distributed_sql: nothing that Citus refuses of a cell")
    return 1 if found else 0


def find_in(query: str, schema: Schema) -> list[Finding]:
    """Find what is refused in a statement, if it is on a table of a cell."""
    return list(find(_parsed(query), schema)) if is_of_cells(query, schema) else []


def is_of_cells(query: str, schema: Schema) -> bool:
    """Tell whether a statement is on a table of a cell."""
    return bool({table.name for table in _parsed(query).find_all(exp.Table)} & schema.of_cells)


@cache
def _parsed(query: str) -> exp.Expression:
    with _quiet():
        return sqlglot.parse_one(query, dialect="postgres")


def read_schema(tables: str) -> Schema:
    """Read from the schema's file what the rules have to know."""
    return Schema(
        of_cells=frozenset(name for name, home in TABLE_HOMES.items() if home in _OF_CELLS),
        in_cells=frozenset(
            name for name, home in TABLE_HOMES.items() if home is not TableHome.CONTROL
        ),
        computed={
            name: frozenset(_COMPUTED.findall(columns))
            for _, name, columns in _TABLE.findall(tables)
        },
    )


def find_in_schema(tables: str, distribute: str) -> Iterator[str]:
    """Find tables and triggers of a cell that `deploy/citus/distribute.sql` does not make fit."""
    unlogged = [name for how, name, _ in _TABLE.findall(tables) if how and _is_of_cells(name)]
    if unlogged and not _SETS_LOGGED.search(distribute):
        yield f"schema.sql: UNLOGGED, so citus_schema_move refuses it: {', '.join(unlogged)}"
    keys = {*_KEY.findall(tables)}
    nameless = [name for _, name, _ in _TABLE.findall(tables) if _is_of_cells(name)]
    nameless = [name for name in nameless if name not in keys]
    if nameless and not _SETS_IDENTITY.search(distribute):
        yield f"schema.sql: no PRIMARY KEY, so citus_schema_move refuses it: {', '.join(nameless)}"
    triggers = [name for name, table in _TRIGGER.findall(tables) if _is_of_cells(table)]
    if triggers and not _SETS_PATHS.search(distribute):
        yield f"schema.sql: triggers without a search_path of their own: {', '.join(triggers)}"


def _is_of_cells(table: str) -> bool:
    return TABLE_HOMES.get(table) in _OF_CELLS


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep back what the parser says of commands that it does not take apart, such as LOCK."""
    logger = logging.getLogger("sqlglot")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


if __name__ == "__main__":
    sys.exit(main())
