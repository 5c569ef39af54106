"""Reject migrations that lock a table while PostgreSQL reads or rewrites its rows.

`python -m tools.migrations` checks the migrations after `0001_initial`; `make check` runs it.
A migration may freely change tables that it creates itself. A statement may break a rule if a
comment in it or above it says `-- lint: allow <rule>: <reason>`.

docs/contribute/add-a-migration.md explains the rules.
"""

import argparse
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "payintent" / "db" / "migrations"
INITIAL = "0001_initial"
CONCURRENTLY = "-- concurrently"  # the first line of a file that runs outside a transaction
RULES = {
    "check": (
        "PostgreSQL would read every row while the table is locked; "
        "use ADD CONSTRAINT … NOT VALID, and VALIDATE CONSTRAINT in the next migration"
    ),
    "index": (
        "PostgreSQL would block writes until the index is built; "
        "use CREATE INDEX CONCURRENTLY IF NOT EXISTS in a file that starts with `-- concurrently`"
    ),
    "concurrently": (
        "CONCURRENTLY needs a file that starts with `-- concurrently`, and such a file may contain "
        "only CREATE INDEX CONCURRENTLY IF NOT EXISTS and DROP INDEX CONCURRENTLY IF EXISTS, "
        "because it has no transaction and no lock timeout, and is repeated after an interruption"
    ),
    "type": (
        "PostgreSQL would rewrite the locked table; "
        "add a column, write both, copy old rows in batches, and drop the old column later"
    ),
    "not-null": (
        "PostgreSQL would read every row while the table is locked; "
        "add and validate CHECK (column IS NOT NULL) first, or add the column with a DEFAULT"
    ),
    "rewrite": (
        "PostgreSQL would rewrite the locked table; "
        "add the column without a volatile default, and fill it in batches"
    ),
    "held-lock": (
        "an ALTER TABLE above locks its table until the migration commits; "
        "move this slow statement to the next migration"
    ),
    "lock": "the statement blocks reads or writes of the whole table until the migration commits",
    "opaque": "statements inside DO are not checked; write them out",
    "allow": "the comment must be `-- lint: allow <rule>: <reason>`, for a rule that applies",
}

_TOKEN = re.compile(
    r"""
      (?P<comment>--[^\n]*|/\*.*?\*/)
    | (?P<dollar>\$(?P<tag>\w*)\$.*?\$(?P=tag)\$)
    | (?P<string>\b[eE]'(?:\\.|''|[^'\\])*'|'(?:''|[^'])*')
    | (?P<quoted>"(?:""|[^"])*")
    | (?P<end>;)
    | (?P<space>\s+)
    | (?P<word>\w+)
    | (?P<mark>::|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_ALLOW = re.compile(r"--\s*lint:\s*(.*)")
_ALLOWANCE = re.compile(r"allow\s+([\w-]+):\s*\S.*")
_NAME = r"(?:\w+ \. )?(\w+)"
_CREATE_TABLE = re.compile(rf"create (?:unlogged )?table {_NAME}")
_CREATE_INDEX = re.compile(
    rf"create (?:unique )?index (?:(?:if not exists )?\w+ )?on (?:only )?{_NAME}"
)
_CONCURRENT = re.compile(
    r"create (unique )?index concurrently if not exists |drop index concurrently if exists "
)
_ALTER_TABLE = re.compile(rf"alter table (?:if exists )?(?:only )?{_NAME} (?:\* )?(.*)")
_CONSTRAINT = re.compile(
    r"add (?:constraint (\w+) )?(check|foreign key|unique|primary key|exclude)\b"
)
_COLUMN = re.compile(r"add (?:column )?(?:if not exists )?(?!constraint )\w+ (.*)")
_ALTER_COLUMN = re.compile(r"alter (?:column )?(\w+) (.*)")
_NOT_NULL_CHECK = re.compile(r"check \( (\w+) is not null \)")
_VALIDATE = re.compile(r"validate constraint (\w+)")
_DEFAULT = re.compile(r"\bdefault (.*)")
_CAST = re.compile(r":: \w+( varying)?( \( [\d ,]* \))?")
_CALL = re.compile(r"(\w+) \(")
_WRITING = ("update ", "delete ", "merge ", "with ")
_WRITE = re.compile(rf"(?:update|delete from|merge into) (?:only )?{_NAME}")
_LOCK_TABLE = re.compile(rf"lock (?:table )?(?:only )?{_NAME}(?: in (.*?) mode)?(?: nowait)?$")
_WEAK_LOCKS = frozenset(
    {"access share", "row share", "row exclusive", "share update exclusive"},
)
#: Functions that a default may call, because PostgreSQL evaluates them once for all existing rows.
_STABLE = frozenset({"clock", "now", "statement_timestamp", "transaction_timestamp", "date_trunc"})
_GENERATED = re.compile(r"^((small|big)?serial\b)|\bgenerated ")
_BUILDS_INDEX = re.compile(r"\b(unique|primary key)\b(?! using index)")
_REWRITES_TABLE = re.compile(r"vacuum (\(.*)?full\b|cluster\b")
_REWRITES = re.compile(r"set (tablespace|logged|unlogged|access method)\b")


@dataclass(frozen=True, slots=True)
class Statement:
    """An SQL statement in lower case, with its tokens separated by single spaces.

    Comments are removed, and strings and function bodies are replaced with `''`.
    """

    line: int
    text: str
    allowances: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Problem:
    file: str
    line: int
    rule: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.rule}: {RULES[self.rule]}"


@dataclass(slots=True)
class _Constraints:
    """CHECK constraints of the form `column IS NOT NULL` that earlier statements added."""

    columns: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])
    not_null: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])

    def validate(self, table: str, constraint: str) -> None:
        if column := self.columns.get((table, constraint)):
            self.not_null.add((table, column))


def split_statements(sql: str) -> Iterator[Statement]:
    """Split a file at the semicolons outside strings, comments and function bodies."""
    tokens: list[str] = []
    allowances: list[str] = []
    line = 0
    for match in _TOKEN.finditer(sql + "\n;"):
        kind, text = match.lastgroup, match[0]
        if kind == "comment" and (allow := _ALLOW.match(text)):
            allowances.append(allow[1].strip())
        elif kind == "end":
            if tokens or allowances:
                yield Statement(line, " ".join(tokens), tuple(allowances))
                allowances = []
            tokens = []
        elif kind not in {"comment", "space"}:
            line = line if tokens else sql.count("\n", 0, match.start()) + 1
            tokens.append(_normalize(str(kind), text))


def _normalize(kind: str, text: str) -> str:
    if kind in {"string", "dollar"}:
        return "''"
    return text.strip('"').lower()


def check(files: Iterable[Path]) -> Iterator[Problem]:
    """Yield the problems of the migrations, which must be sorted by number."""
    constraints = _Constraints()
    for path in files:
        yield from _File(path, constraints).problems()


class _File:
    def __init__(self, path: Path, constraints: _Constraints) -> None:
        sql = path.read_text()
        self._name = path.name
        self._is_concurrent = sql.startswith(CONCURRENTLY)
        self._statements = list(split_statements(sql))
        self._constraints = constraints
        self._created: set[str] = set()
        self._has_altered = False  # whether a table that already existed was altered

    def problems(self) -> Iterator[Problem]:
        for statement in self._statements:
            rules = set(self._rules(statement.text))
            allowed = {
                match[1]
                for text in statement.allowances
                if (match := _ALLOWANCE.fullmatch(text)) and match[1] in rules
            }
            if len(allowed) < len(statement.allowances):
                yield Problem(self._name, statement.line, "allow")
            for rule in sorted(rules - allowed):
                yield Problem(self._name, statement.line, rule)

    def _rules(self, text: str) -> Iterator[str]:
        """Yield the rules that a statement breaks, and record its effects."""
        if self._is_concurrent or " concurrently " in text:
            if not (self._is_concurrent and _CONCURRENT.match(text)):
                yield "concurrently"
            return
        if match := _CREATE_TABLE.match(text):
            self._created.add(match[1])
        elif match := _ALTER_TABLE.match(text):
            if match[1] not in self._created:
                for action in _split_actions(match[2]):
                    yield from self._action_rules(match[1], action)
        elif text.startswith(_WRITING):
            for table in _WRITE.findall(text):
                yield from self._held_lock_rules(table)
        else:
            yield from self._lock_rules(text)

    def _lock_rules(self, text: str) -> Iterator[str]:
        if match := _CREATE_INDEX.match(text):
            if match[1] not in self._created:
                yield "index"
        elif match := _LOCK_TABLE.match(text):
            if match[1] not in self._created and match[2] not in _WEAK_LOCKS:
                yield "lock"
        elif _REWRITES_TABLE.match(text):
            yield "lock"
        elif text.startswith("reindex "):
            yield "index"
        elif re.match(r"do\b", text):
            yield "opaque"

    def _held_lock_rules(self, table: str) -> Iterator[str]:
        if self._has_altered and table not in self._created:
            yield "held-lock"

    def _action_rules(self, table: str, action: str) -> Iterator[str]:
        if match := _VALIDATE.match(action):
            yield from self._held_lock_rules(table)
            self._constraints.validate(table, match[1])
            return
        self._has_altered = True
        if match := _CONSTRAINT.match(action):
            yield from self._constraint_rules(table, match[1], match[2], action)
        elif action.startswith("add constraint "):  # NOT NULL as a constraint, or newer syntax
            if "not null" in action:
                yield "not-null"
        elif match := _COLUMN.match(action):
            yield from _column_rules(match[1])
        elif match := _ALTER_COLUMN.match(action):
            yield from self._alter_column_rules(table, match[1], match[2])
        elif _REWRITES.match(action):
            yield "rewrite"

    def _constraint_rules(
        self, table: str, constraint: str | None, kind: str, action: str
    ) -> Iterator[str]:
        if kind in {"check", "foreign key"}:
            if not action.endswith(" not valid"):
                yield "check"
            if constraint and (match := _NOT_NULL_CHECK.search(action)):
                self._constraints.columns[table, constraint] = match[1]
        elif kind == "exclude" or _BUILDS_INDEX.search(action):
            yield "index"

    def _alter_column_rules(self, table: str, column: str, change: str) -> Iterator[str]:
        if re.match(r"(set data )?type\b", change):
            yield "type"
        elif change.startswith("set not null"):
            if (table, column) not in self._constraints.not_null:
                yield "not-null"
        elif change.startswith("set expression"):
            yield "rewrite"


def _column_rules(definition: str) -> Iterator[str]:
    default = _DEFAULT.search(definition)
    if re.search(r"\bcheck \(", definition) or (default and " references " in f" {definition} "):
        yield "check"
    if _BUILDS_INDEX.search(definition):
        yield "index"
    if "not null" in definition and not default and "generated" not in definition:
        yield "not-null"
    if _GENERATED.search(definition) or (default and _calls_volatile(default[1])):
        yield "rewrite"


def _calls_volatile(default: str) -> bool:
    """Return whether a default may call a function that PostgreSQL evaluates for each row."""
    return bool(set(_CALL.findall(_CAST.sub("", _expression(default)))) - _STABLE)


def _expression(text: str) -> str:
    """Remove the constraints after a default."""
    return re.split(r" (?:not null|null|check|constraint|references|unique|primary key)\b", text)[0]


def _split_actions(text: str) -> Iterator[str]:
    """Split the actions of an ALTER TABLE at the commas outside parentheses."""
    depth = 0
    action: list[str] = []
    for part in text.split(" "):
        depth += (part == "(") - (part == ")")
        if part == "," and depth == 0:
            yield " ".join(action)
            action = []
        else:
            action.append(part)
    yield " ".join(action)


def migrations(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("[0-9]*.sql") if path.stem != INITIAL)


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Reject migrations that lock tables for a long time."
    )
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER)
    problems = list(check(migrations(parser.parse_args().folder)))
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
