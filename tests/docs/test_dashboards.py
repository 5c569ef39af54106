"""The queries of the dashboards and of the Prometheus example use existing metrics."""

import json
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.reading import ROOT, page
from tests.docs.test_runbook import _METRIC, _SELECTOR, _TARGETS, _labels
from tests.support.tools import tool
from tools.dashboards.__main__ import DASHBOARDS, dashboard

pytestmark = pytest.mark.full

_OF_OTHERS = re.compile(r"\b(up|process_\w+)\b")  # Prometheus's own, and its library's
_PAGES = page("docs/operate/monitor.md") + page("docs/operate/run-chains.md")


@cache
def _panels(name: str) -> list[dict[str, Any]]:
    return json.loads(page(f"deploy/grafana/{name}.json"))["panels"]


def queries(name: str) -> list[str]:
    """Return a dashboard's queries, with a range for Grafana's variable."""
    return [
        target["expr"].replace("$__rate_interval", "1m")
        for panel in _panels(name)
        for target in panel["targets"]
    ]


def _family(name: str) -> str:
    """Return the metric of a series: a histogram has three series."""
    return name if name in _labels() else re.sub(r"_(bucket|count|sum)$", "", name)


def test_the_files_are_what_the_tool_writes() -> None:
    names = sorted(path.stem for path in (ROOT / "deploy/grafana").iterdir())
    assert names == sorted(DASHBOARDS)
    for name in names:
        assert page(f"deploy/grafana/{name}.json") == dashboard(name), "make docs"


def test_prometheus_reads_every_query(tmp_path: Path) -> None:
    rules = [
        {"record": f"{name}:{number}", "expr": query}
        for name in DASHBOARDS
        for number, query in enumerate(queries(name))
    ]
    file = tmp_path / "queries.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))
    done = subprocess.run(
        [tool("promtool"), "check", "rules", file], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert f"{len(rules)} rules found" in done.stdout
    assert len(rules) > 60


@pytest.mark.parametrize("name", DASHBOARDS)
def test_every_metric_and_label_of_a_query_exists_and_is_told_to_operators(name: str) -> None:
    for query in queries(name):
        plain = re.sub(r'"[^"]*"', '""', query)
        series = set(_METRIC.findall(plain))
        assert {_family(item) for item in series} <= _labels().keys(), query
        for sery in series:
            assert f"`{_family(sery)}`" in _PAGES, sery
        assert series or _OF_OTHERS.search(plain), query
        available = {"le"} | _TARGETS.union(*(_labels()[_family(item)] for item in series))
        for one, selector in _SELECTOR.findall(plain):
            wanted = set(re.findall(r"(\w+)\s*[=!]", selector))
            assert wanted <= _labels().get(_family(one), set()) | _TARGETS, query
        for by in re.findall(r"\bby \(([^)]*)\)", plain):
            assert {item.strip() for item in by.split(",")} <= available, query


@pytest.mark.parametrize("name", DASHBOARDS)
def test_every_label_of_a_legend_is_one_of_its_query(name: str) -> None:
    for panel in _panels(name):
        for target in panel["targets"]:
            named = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            grouped = ",".join(re.findall(r"\bby \(([^)]*)\)", target["expr"]))
            assert named <= {item.strip() for item in grouped.split(",")}, target


def test_every_metric_of_the_service_is_on_a_dashboard() -> None:
    shown = {
        _family(item)
        for name in DASHBOARDS
        for query in queries(name)
        for item in _METRIC.findall(query)
    }
    assert sorted(_labels().keys() - shown) == []


def test_prometheus_takes_the_example_of_its_configuration() -> None:
    done = subprocess.run(
        [tool("promtool"), "check", "config", "prometheus.yaml"],
        cwd=ROOT / "deploy/prometheus",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    jobs = {scrape_config["job_name"] for scrape_config in _configured()["scrape_configs"]}
    assert jobs == set(
        re.findall(r"payintent-(?:api|worker)", page("deploy/prometheus/alerts.yaml"))
    )


def _configured() -> dict[str, Any]:
    return yaml.safe_load(page("deploy/prometheus/prometheus.yaml"))
