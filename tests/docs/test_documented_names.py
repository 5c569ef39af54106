"""Names on the pages exist in the code, and names for operators are on the pages.

This covers log events, metrics, settings, tables, and the index of decisions.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from payintent.gateways.twoc2p.response_codes import DISPUTES
from payintent.runtime.settings import Settings
from tests.conformance.adapters import HARNESSES
from tests.docs.parse_pages import PAGES, ROOT, name, page, prose, rows, section, spans

_SOURCES = list(ROOT.glob("payintent/**/*.py"))
_OPERATORS_PAGES = [item for item in PAGES if "decisions" not in item.parts]
_LEVELS = {"info", "warning", "error", "exception", "critical"}
_ALARMING = _LEVELS - {"info"}
_METRICS = {"Counter", "Gauge", "Histogram", "Summary"}
_METRICS |= {"GaugeMetricFamily", "CounterMetricFamily"}
_METRIC = re.compile(r"payintent_(?!sandbox\b)[a-z_]*[a-z]")
_SETTING = re.compile(r"PAYINTENT_[A-Z_]*[A-Z]")
_EVENTS = re.compile(r"^\| Event\b.*\n(?:\|.*\n)+", re.MULTILINE)
_DECISIONS = sorted(ROOT.glob("docs/contribute/decisions/*.md"))
_NAMING = ("id", "attr", "arg", "name")  # attributes of a syntax tree node that can contain a name
_BLOCK = re.compile(r"(?:^|_)blocks?(?:_|$)", re.IGNORECASE)
_MARKDOWN = MarkdownIt("commonmark").enable("table")


@cache
def _trees() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text()) for path in _SOURCES}


def _events(levels: set[str]) -> set[str]:
    """Return the names of events that the code logs at these levels."""
    return {
        event
        for tree in _trees().values()
        for call in _calls(tree)
        if isinstance(call.func, ast.Attribute)
        and call.func.attr in levels
        and ast.unparse(call.func.value).endswith("_log")
        for event in _texts(call.args[0], tree)
    }


def _calls(tree: ast.AST) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def _texts(value: ast.expr, tree: ast.Module) -> Iterator[str]:
    """Return the possible values of an argument, which is a literal, a variable or a parameter."""
    if not isinstance(value, ast.Name):
        yield from _constants(value)
        return
    [function] = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and value in ast.walk(node)
    ]
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == value.id:
            yield from _constants(node.value)
    names = [arg.arg for arg in function.args.args]
    for call in _calls(tree) if value.id in names else ():
        if ast.unparse(call.func) == function.name:
            yield from _constants(call.args[names.index(value.id)])


def _constants(value: ast.AST) -> Iterator[str]:
    for node in ast.walk(value):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _metrics() -> set[str]:
    return {
        text
        for tree in _trees().values()
        for call in _calls(tree)
        if ast.unparse(call.func).rpartition(".")[2] in _METRICS and call.args
        for text in _constants(call.args[0])
        if _METRIC.fullmatch(text)
    }


def _settings() -> set[str]:
    return {f"PAYINTENT_{field.upper()}" for field in Settings.model_fields}


def _read_spans(pages: list[Path]) -> set[str]:
    return {span for path in pages for span in spans(path.read_text())}


def _read_other_settings() -> set[str]:
    """Return the variables that the sandbox, the tools and other files read directly."""
    places = [*ROOT.glob("payintent_sandbox/**/*.py"), *ROOT.glob("payintent/cli/*.py")]
    places += [*ROOT.glob("tools/**/*.py"), *ROOT.glob("tests/**/*.py"), ROOT / "Makefile"]
    return {item for path in places for item in _SETTING.findall(path.read_text())}


def test_every_event_that_is_logged_as_a_warning_or_above_is_explained() -> None:
    explained = _read_spans(_OPERATORS_PAGES)
    assert sorted(_events(_ALARMING) - explained) == []
    assert len(_events(_ALARMING)) > 30


def test_every_event_that_a_page_explains_is_logged() -> None:
    names = {
        span
        for path in _OPERATORS_PAGES
        for table in _EVENTS.findall(path.read_text())
        for cells in rows(table)
        for span in spans(cells[0])
    }
    assert len(names) > 40
    assert sorted(names - _events(_LEVELS)) == []


def test_every_metric_is_on_a_page_and_every_metric_on_a_page_exists() -> None:
    text = "\n".join(path.read_text() for path in PAGES)
    roles = set(re.findall(r"CREATE ROLE (\w+)", page("deploy/database/roles.sql")))
    names = set(_METRIC.findall(prose(text))) - roles
    metrics = _metrics()
    assert len(metrics) > 20
    assert sorted(metrics - _read_spans(_OPERATORS_PAGES)) == []
    assert sorted(item for item in names if not _is_metric_or_prefix(item, metrics)) == []


def _is_metric_or_prefix(name: str, metrics: set[str]) -> bool:
    """Return whether a name is a metric or a prefix of metrics, such as `payintent_chain`."""
    return any(item == name or item.startswith(f"{name}_") for item in metrics)


def test_every_setting_is_on_the_settings_page_and_every_named_setting_exists() -> None:
    names = {item for path in PAGES for item in _SETTING.findall(path.read_text())}
    settings = section(page("docs/operate/settings.md"), "## Reference")
    on_page = {cells[0].strip("`") for cells in rows(settings)}
    bare = {f"PAYINTENT_DATABASE_{name}URL" for name in ("", "DIRECT_", "READ_")}
    assert sorted(_settings() - on_page - bare) == []
    existing = _settings() | _read_other_settings()
    assert sorted(names - existing) == []


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_every_line_that_starts_with_a_pipe_is_a_complete_table_row(path: Path) -> None:
    text = path.read_text()
    assert _broken(text) == []


def test_a_row_outside_a_table_or_with_a_missing_cell_is_found() -> None:
    head = "| a | b |\n|---|---|\n"
    assert _broken(f"{head}| `x|y` | 2 |\n") == ["| `x|y` | 2 |"]
    assert _broken(f"{head}| 1 2 |\n") == ["| 1 2 |"]
    assert _broken(f"{head}\n| 1 | 2 |\n") == ["| 1 | 2 |"]
    assert _broken("| a | b |\n|---|\n| 1 | 2 |\n") != []
    assert _broken(f"{head}| 1 | `2 \\| 3` |\n\n```text\n| 1\n```\n") == []


def _broken(text: str) -> list[str]:
    """Return malformed table rows, and rows whose number of cells differs from the header."""
    lines = text.splitlines()
    rows_at: dict[int, bool] = {}
    fenced: set[int] = set()
    columns = 0
    for token in _MARKDOWN.parse(text):
        if token.map is None:
            continue
        if token.type in {"fence", "code_block"}:
            fenced.update(range(*token.map))
        elif token.type == "table_open":
            start, end = token.map
            columns = _cells(lines[start])
            rows_at |= {at: _cells(lines[at]) == columns for at in range(start, end)}
    return [
        line
        for at, line in enumerate(lines)
        if line.lstrip().startswith("|") and at not in fenced and not rows_at.get(at)
    ]


def _cells(line: str) -> int:
    return len(re.findall(r"(?<!\\)\|", line.strip())) - 1


def test_the_index_lists_every_decision() -> None:
    index = page("docs/contribute/decisions/README.md")
    in_index = re.findall(r"\(([a-z-]+)\.md#([a-z0-9-]+)\)", index)
    pages = {path.stem: path.read_text() for path in _DECISIONS if path.stem != "README"}
    on_pages = [
        (stem, anchor) for stem, text in pages.items() for anchor in _decision_anchors(text)
    ]
    assert len(on_pages) > 45
    assert sorted(in_index) == sorted(on_pages)


def _decision_anchors(text: str) -> Iterator[str]:
    """Yield the anchors of a page's decisions. Fail if a section does not start with a decision."""
    for part in text.split("\n## ")[1:]:
        title, _, body = part.partition("\n")
        assert body.startswith("\n**Decision.** "), title
        yield re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-")


def test_no_decision_mentions_unfinished_work() -> None:
    late = re.compile(r"\bis to come\b|\byet to be (written|built)\b")
    assert [name(path) for path in _DECISIONS if late.search(path.read_text())] == []


def test_unconfirmed_chargeback_codes_are_marked_in_the_disputes_section() -> None:
    text = prose(section(page("docs/operate/refunds.md"), "## Disputed money"))
    [sentence] = [line for line in text.split(". ") if "account manager" in line]
    assert set(re.findall(r"\b41\d\d\b", text)) == set(DISPUTES)
    assert set(re.findall(r"\b41\d\d\b", sentence)) == {"4131", "4132"}


def test_the_run_page_names_the_adapter_of_every_real_gateway() -> None:
    """The page used to claim that no adapter existed."""
    opening = page("docs/operate/run.md").partition("\n## ")[0]
    [names] = re.findall(r"adapters for ([\w, ]+) implement published protocols", opening)
    real = set(HARNESSES) - {"simulator", "gateway_contract", "test"}
    assert {item.lower() for item in re.split(", | and ", names)} == real


def test_only_modules_that_read_chains_have_names_for_blocks() -> None:
    """The core treats a chain as a gateway: see docs/contribute/decisions/chains.md."""
    readers = {
        ROOT / "payintent" / "onchain",
        ROOT / "payintent" / "evm",
        ROOT / "payintent" / "chains",
    }
    modules = {
        path
        for path, tree in _trees().items()
        for folder in ("payments", "gateways", "onchain", "evm", "webhooks")
        if path.is_relative_to(ROOT / "payintent" / folder) and _names_blocks(tree)
    }
    assert modules
    assert [item for item in modules if readers.isdisjoint(item.parents)] == []


def _names_blocks(tree: ast.Module) -> bool:
    """Return whether a module has a name for a block of a chain, such as `latest_block`."""
    words = (getattr(node, part, None) for node in ast.walk(tree) for part in _NAMING)
    return any(isinstance(word, str) and _BLOCK.search(word) for word in words)
