"""The runbook and the alerts link to each other, and use existing names."""

import ast
import re
import subprocess
from functools import cache
from typing import Any

import asyncpg
import pytest
import yaml

from payintent.cases.model import CaseKind
from tests.docs.command_line import run_on, take, take_or_name, written
from tests.docs.reading import ROOT, anchors, blocks, page, prose, section, spans
from tests.docs.test_named import _calls, _constants, _events, _trees
from tests.support.tools import tool

_PATHS = ("docs/operate/runbook.md", "docs/operate/runbook-payments.md")
_PAGE = "\n".join(page(path) for path in _PATHS)
_ALERTS = "deploy/prometheus/alerts.yaml"
_HEADINGS = re.findall(r"^### (.+)$", prose(_PAGE), re.MULTILINE)
_PARTS = ["Symptoms", "Impact", "Diagnose", "Fix", "Resolved"]
_OF_OTHERS = {"up", "probe_success"}  # Prometheus's own, and the blackbox exporter's
_TARGETS = {"job", "instance"}  # labels that Prometheus gives to everything
_METRIC = re.compile(r"\bpayintent_\w+")
_SELECTOR = re.compile(r"\b([a-z_]+)\{([^}]*)\}")
#: What an operator must be ready for, alert or not.
_INCIDENTS = {
    "The database is unavailable",
    "The disk is full",
    "A gateway is unavailable",
    "A chain is halted",
    "Webhooks pile up",
    "A merchant's key has leaked",
    "A wrong contract",
    "A backup was restored",
}


@cache
def _rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(page(_ALERTS))["groups"]
    return [rule for group in groups for rule in group["rules"]]


@cache
def _labels() -> dict[str, set[str]]:
    """Return the labels of each of our metrics."""
    return {
        str(call.args[0].value): _labels_of(call)
        for tree in _trees().values()
        for call in _calls(tree)
        if ast.unparse(call.func) in {"Counter", "Gauge", "Histogram"}
        and call.args
        and isinstance(call.args[0], ast.Constant)
    }


def _labels_of(call: ast.Call) -> set[str]:
    return set(_constants(call.args[2])) if len(call.args) > 2 else set()


def _section(heading: str) -> str:
    return section(_PAGE, f"### {heading}")


def _line(heading: str, start: str) -> str:
    """Return a section's text about its alerts or its drill, up to the first subsection."""
    head = " ".join(_section(heading).partition("\n- **")[0].split())
    [said] = re.findall(rf"{start}: (.*?)(?: Tests: |$)", head)
    return said


def _path(heading: str) -> str:
    [path] = [path for path in _PATHS if f"\n### {heading}\n" in page(path)]
    return path


def _anchor(heading: str) -> str:
    [found] = anchors(f"### {heading}\n")
    return found


def test_every_alert_has_one_section_and_every_alert_on_the_page_exists() -> None:
    led_to = [
        (name, f"{_path(heading)}#{_anchor(heading)}")
        for heading in _HEADINGS
        for name in spans(_line(heading, "Alerts"))
        if not _line(heading, "Alerts").startswith("none")
    ]
    leading = [(rule["alert"], rule["annotations"]["runbook_url"]) for rule in _rules()]
    assert sorted(led_to) == sorted(leading)
    assert len(dict(leading)) == len(leading) > 30


def test_every_incident_kind_has_a_section_that_was_tried() -> None:
    assert set(_HEADINGS) >= _INCIDENTS
    for heading in _HEADINGS:
        tried = [ROOT / span for span in spans(_line(heading, "Tests"))]
        assert tried, heading
        assert [str(item) for item in tried if not item.is_file()] == [], heading


@pytest.mark.parametrize("heading", _HEADINGS)
def test_every_section_says_what_is_seen_how_bad_it_is_and_what_to_do(heading: str) -> None:
    parts = re.findall(r"^- \*\*(.+?)\*\*: ", _section(heading), re.MULTILINE)
    assert parts == _PARTS
    [bad] = re.findall(
        r"^- \*\*Impact\*\*: (.+?)(?=^- )", _section(heading), re.MULTILINE | re.DOTALL
    )
    assert len(bad) > 20


@pytest.mark.parametrize("words", run_on(_PAGE), ids=" ".join)
def test_every_command_of_the_runbook_is_taken_as_it_stands(words: list[str]) -> None:
    take(words)


def test_every_command_in_its_prose_exists() -> None:
    for words in written(_PAGE):
        take_or_name(words)


async def test_every_query_of_the_runbook_can_be_asked(database_url: str) -> None:
    connection = await asyncpg.connect(database_url)
    queries = blocks(_PAGE, "sql")
    assert len(queries) > 3
    for query in queries:
        await connection.fetch(query)
    await connection.close()


def test_every_event_that_is_to_be_seen_is_one_of_the_code() -> None:
    logged = _events({"info", "warning", "error", "exception", "critical"})
    for heading in _HEADINGS:
        [seen] = re.findall(
            r"^- \*\*Symptoms\*\*: (.+?)(?=^- )", _section(heading), re.MULTILINE | re.DOTALL
        )
        names = {span for span in spans(seen) if re.fullmatch(r"[a-z]+(_[a-z]+)+", span)}
        names -= {name for name in names if name.startswith("payintent_")} | _OTHER_NAMES
        assert sorted(names - logged) == [], heading


#: Outcomes of attempts, reasons of waiting refunds, and a field: no events.
_OTHER_NAMES = {"http_error", "connect_error", "tls_error", "bad_answer", "no_key", "another_chain"}
_OTHER_NAMES |= {"no_contract", "requested_by"}


@pytest.mark.parametrize("rule", _rules(), ids=lambda rule: rule["alert"])
def test_every_alert_asks_for_metrics_and_labels_that_there_are(rule: dict[str, Any]) -> None:
    """An alert with a mistyped name would never fire."""
    expression = re.sub(r'"[^"]*"', '""', rule["expr"])
    names = set(_METRIC.findall(expression))
    assert names - _labels().keys() == set()
    assert names or _OF_OTHERS & set(re.findall(r"\w+", expression))
    for name, selector in _SELECTOR.findall(expression):
        wanted = set(re.findall(r"(\w+)\s*[=!]", selector))
        assert wanted <= _labels().get(name, set()) | _TARGETS, name
    available = set().union(_TARGETS, *(_labels()[name] for name in names))
    for by in re.findall(r"\bby \(([^)]*)\)", expression):
        assert {item.strip() for item in by.split(",")} <= available
    for label in re.findall(r"\$labels\.(\w+)", str(rule["annotations"])):
        assert label in available
    for kind in re.findall(r'kind="(\w+)"', rule["expr"]):
        assert kind in set(CaseKind)


@pytest.mark.parametrize("rule", _rules(), ids=lambda rule: rule["alert"])
def test_every_alert_says_in_words_what_it_is_and_how_urgent(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in {"page", "ticket"}
    assert len(rule["annotations"]["summary"]) > 20
    assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}


def test_what_counts_for_the_first_time_is_heard() -> None:
    """A counter with labels does not exist before its first event, which `increase` then misses.

    An alert with `for` needs several events anyway.
    """
    for rule in _rules():
        for name, window in re.findall(
            r"increase\((payintent_\w+)[^\[]*\[(\w+)\]\)\)+ > 0", rule["expr"]
        ):
            born = rf"{name}\S* unless {name}\S* offset {window}"
            heard = "for" in rule or not _labels()[name] or re.search(born, rule["expr"])
            assert heard, rule["alert"]


def test_the_alerts_were_tried_on_series_that_set_them_off() -> None:
    """The rules are compared with existing alerts, and tested with Prometheus's tool."""
    tests = yaml.safe_load(page("deploy/prometheus/alerts_test.yaml"))["tests"]
    texts = {rule["alert"]: rule["annotations"] for rule in _rules()}
    for case in (item for test in tests for item in test["alert_rule_test"]):
        for expected in case.get("exp_alerts", ()):
            told = texts[case["alertname"]]
            assert expected["exp_annotations"]["runbook_url"] == told["runbook_url"]


@pytest.mark.parametrize(
    "command", [["check", "rules", "alerts.yaml"], ["test", "rules", "alerts_test.yaml"]]
)
def test_prometheus_takes_the_alerts_and_finds_them_loud_and_silent(command: list[str]) -> None:
    done = subprocess.run(
        [tool("promtool"), *command],
        cwd=ROOT / "deploy/prometheus",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SUCCESS" in done.stdout
