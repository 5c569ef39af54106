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
from tests.docs.command_line import (
    check_command,
    check_command_or_name,
    find_commands,
    find_runnable_commands,
)
from tests.docs.parse_pages import ROOT, anchors, blocks, page, prose, section, spans
from tests.docs.test_documented_names import _calls, _constants, _events, _trees
from tests.support.tools import tool

_PATHS = ("docs/operate/runbook.md", "docs/operate/runbook-payments.md")
_PAGE = "\n".join(page(path) for path in _PATHS)
_ALERTS = "deploy/prometheus/alerts.yaml"
_HEADINGS = re.findall(r"^### (.+)$", prose(_PAGE), re.MULTILINE)
_PARTS = ["Symptoms", "Impact", "Diagnose", "Fix", "Resolved"]
_OTHER_METRICS = {"up", "probe_success"}  # metrics of Prometheus and the blackbox exporter
_TARGET_LABELS = {"job", "instance"}  # labels that Prometheus adds to every series
_METRIC = re.compile(r"\bpayintent_\w+")
_SELECTOR = re.compile(r"\b([a-z_]+)\{([^}]*)\}")
#: Incidents that need a section even if they have no alert.
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
    """Return a section's text after `Alerts:` or `Tests:`."""
    head = " ".join(_section(heading).partition("\n- **")[0].split())
    [text] = re.findall(rf"{start}: (.*?)(?: Tests: |$)", head)
    return text


def _path(heading: str) -> str:
    [path] = [path for path in _PATHS if f"\n### {heading}\n" in page(path)]
    return path


def _anchor(heading: str) -> str:
    [anchor] = anchors(f"### {heading}\n")
    return anchor


def test_every_alert_has_a_section_and_every_alert_on_the_page_exists() -> None:
    on_page = [
        (name, f"{_path(heading)}#{_anchor(heading)}")
        for heading in _HEADINGS
        for name in spans(_line(heading, "Alerts"))
        if not _line(heading, "Alerts").startswith("none")
    ]
    in_rules = [(rule["alert"], rule["annotations"]["runbook_url"]) for rule in _rules()]
    assert sorted(on_page) == sorted(in_rules)
    assert len(dict(in_rules)) == len(in_rules) > 30


def test_every_incident_has_a_section_and_every_section_names_existing_tests() -> None:
    assert set(_HEADINGS) >= _INCIDENTS
    for heading in _HEADINGS:
        tests = [ROOT / span for span in spans(_line(heading, "Tests"))]
        assert tests, heading
        assert [str(item) for item in tests if not item.is_file()] == [], heading


@pytest.mark.parametrize("heading", _HEADINGS)
def test_every_section_has_all_parts(heading: str) -> None:
    parts = re.findall(r"^- \*\*(.+?)\*\*: ", _section(heading), re.MULTILINE)
    assert parts == _PARTS
    [impact] = re.findall(
        r"^- \*\*Impact\*\*: (.+?)(?=^- )", _section(heading), re.MULTILINE | re.DOTALL
    )
    assert len(impact) > 20


@pytest.mark.parametrize("words", find_runnable_commands(_PAGE), ids=" ".join)
def test_every_command_in_a_code_block_is_valid(words: list[str]) -> None:
    check_command(words)


def test_every_command_in_the_prose_exists() -> None:
    for words in find_commands(_PAGE):
        check_command_or_name(words)


async def test_every_query_in_the_runbook_runs(database_url: str) -> None:
    connection = await asyncpg.connect(database_url)
    queries = blocks(_PAGE, "sql")
    assert len(queries) > 3
    for query in queries:
        await connection.fetch(query)
    await connection.close()


def test_every_event_among_the_symptoms_is_logged_by_the_code() -> None:
    logged = _events({"info", "warning", "error", "exception", "critical"})
    for heading in _HEADINGS:
        [symptoms] = re.findall(
            r"^- \*\*Symptoms\*\*: (.+?)(?=^- )", _section(heading), re.MULTILINE | re.DOTALL
        )
        names = {span for span in spans(symptoms) if re.fullmatch(r"[a-z]+(_[a-z]+)+", span)}
        names -= {name for name in names if name.startswith("payintent_")} | _NO_EVENTS
        assert sorted(names - logged) == [], heading


#: Attempt outcomes, refund reasons and a field. They look like events.
_NO_EVENTS = {"http_error", "connect_error", "tls_error", "bad_answer", "no_key", "another_chain"}
_NO_EVENTS |= {"no_contract", "requested_by"}


@pytest.mark.parametrize("rule", _rules(), ids=lambda rule: rule["alert"])
def test_every_alert_uses_existing_metrics_and_labels(rule: dict[str, Any]) -> None:
    """If a name is mistyped, the alert never fires."""
    expression = re.sub(r'"[^"]*"', '""', rule["expr"])
    names = set(_METRIC.findall(expression))
    assert names - _labels().keys() == set()
    assert names or _OTHER_METRICS & set(re.findall(r"\w+", expression))
    for name, selector in _SELECTOR.findall(expression):
        labels = set(re.findall(r"(\w+)\s*[=!]", selector))
        assert labels <= _labels().get(name, set()) | _TARGET_LABELS, name
    available = set().union(_TARGET_LABELS, *(_labels()[name] for name in names))
    for grouping in re.findall(r"\bby \(([^)]*)\)", expression):
        assert {item.strip() for item in grouping.split(",")} <= available
    for label in re.findall(r"\$labels\.(\w+)", str(rule["annotations"])):
        assert label in available
    for kind in re.findall(r'kind="(\w+)"', rule["expr"]):
        assert kind in set(CaseKind)


@pytest.mark.parametrize("rule", _rules(), ids=lambda rule: rule["alert"])
def test_every_alert_has_a_summary_and_a_severity(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in {"page", "ticket"}
    assert len(rule["annotations"]["summary"]) > 20
    assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}


def test_an_alert_on_a_counter_fires_at_its_first_event() -> None:
    """A counter with labels does not exist before its first event, which `increase` then misses.

    If an alert has `for`, it needs several events anyway.
    """
    for rule in _rules():
        for name, window in re.findall(
            r"increase\((payintent_\w+)[^\[]*\[(\w+)\]\)\)+ > 0", rule["expr"]
        ):
            first_event = rf"{name}\S* unless {name}\S* offset {window}"
            fires = "for" in rule or not _labels()[name] or re.search(first_event, rule["expr"])
            assert fires, rule["alert"]


def test_the_runbook_urls_in_the_alert_tests_match_the_alerts() -> None:
    """`promtool` also compares them, in the next test."""
    tests = yaml.safe_load(page("deploy/prometheus/alerts_test.yaml"))["tests"]
    texts = {rule["alert"]: rule["annotations"] for rule in _rules()}
    for case in (item for test in tests for item in test["alert_rule_test"]):
        for expected in case.get("exp_alerts", ()):
            annotations = texts[case["alertname"]]
            assert expected["exp_annotations"]["runbook_url"] == annotations["runbook_url"]


@pytest.mark.parametrize(
    "command", [["check", "rules", "alerts.yaml"], ["test", "rules", "alerts_test.yaml"]]
)
def test_prometheus_accepts_the_alerts_and_their_tests_pass(command: list[str]) -> None:
    result = subprocess.run(
        [tool("promtool"), *command],
        cwd=ROOT / "deploy/prometheus",
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "SUCCESS" in result.stdout
