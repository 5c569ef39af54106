"""The queries in the dashboards and in the Prometheus example use existing metrics."""

import json
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.parse_pages import ROOT, page
from tests.docs.test_runbook import _METRIC, _SELECTOR, _TARGET_LABELS, _labels
from tests.support.tools import tool
from tools.dashboards.__main__ import DASHBOARDS, dashboard

pytestmark = pytest.mark.full

_OTHER_METRICS = re.compile(
    r"\b(up|process_\w+)\b"
)  # metrics from Prometheus and its client library
_PAGES = page("docs/operate/monitor.md") + page("docs/operate/run-chains.md")


@cache
def _panels(name: str) -> list[dict[str, Any]]:
    return json.loads(page(f"deploy/grafana/{name}.json"))["panels"]


def queries(name: str) -> list[str]:
    """Return a dashboard's queries, with a fixed range instead of Grafana's variable."""
    return [
        target["expr"].replace("$__rate_interval", "1m")
        for panel in _panels(name)
        for target in panel["targets"]
    ]


def _family(name: str) -> str:
    """Return the metric to which a series belongs; a histogram has three series."""
    return name if name in _labels() else re.sub(r"_(bucket|count|sum)$", "", name)


def test_the_files_match_the_output_of_the_tool() -> None:
    names = sorted(path.stem for path in (ROOT / "deploy/grafana").iterdir())
    assert names == sorted(DASHBOARDS)
    for name in names:
        assert page(f"deploy/grafana/{name}.json") == dashboard(name), "make docs"


def test_prometheus_accepts_every_query(tmp_path: Path) -> None:
    rules = [
        {"record": f"{name}:{number}", "expr": query}
        for name in DASHBOARDS
        for number, query in enumerate(queries(name))
    ]
    file = tmp_path / "queries.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))
    result = subprocess.run(
        [tool("promtool"), "check", "rules", file], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert f"{len(rules)} rules found" in result.stdout
    assert len(rules) > 60


@pytest.mark.parametrize("name", DASHBOARDS)
def test_every_metric_and_label_in_a_query_exists_and_is_documented(name: str) -> None:
    for query in queries(name):
        plain = re.sub(r'"[^"]*"', '""', query)
        series = set(_METRIC.findall(plain))
        assert {_family(item) for item in series} <= _labels().keys(), query
        for series_name in series:
            assert f"`{_family(series_name)}`" in _PAGES, series_name
        assert series or _OTHER_METRICS.search(plain), query
        available = {"le"} | _TARGET_LABELS.union(*(_labels()[_family(item)] for item in series))
        for metric, selector in _SELECTOR.findall(plain):
            labels = set(re.findall(r"(\w+)\s*[=!]", selector))
            assert labels <= _labels().get(_family(metric), set()) | _TARGET_LABELS, query
        for grouping in re.findall(r"\bby \(([^)]*)\)", plain):
            assert {item.strip() for item in grouping.split(",")} <= available, query


@pytest.mark.parametrize("name", DASHBOARDS)
def test_every_label_in_a_legend_is_a_label_of_its_query(name: str) -> None:
    for panel in _panels(name):
        for target in panel["targets"]:
            labels = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            grouping = ",".join(re.findall(r"\bby \(([^)]*)\)", target["expr"]))
            assert labels <= {item.strip() for item in grouping.split(",")}, target


def test_every_metric_of_the_service_is_on_a_dashboard() -> None:
    metrics = {
        _family(item)
        for name in DASHBOARDS
        for query in queries(name)
        for item in _METRIC.findall(query)
    }
    assert sorted(_labels().keys() - metrics) == []


def test_prometheus_accepts_the_example_configuration() -> None:
    result = subprocess.run(
        [tool("promtool"), "check", "config", "prometheus.yaml"],
        cwd=ROOT / "deploy/prometheus",
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    jobs = {scrape_config["job_name"] for scrape_config in _prometheus_config()["scrape_configs"]}
    assert jobs == set(
        re.findall(r"payintent-(?:api|worker)", page("deploy/prometheus/alerts.yaml"))
    )


def _prometheus_config() -> dict[str, Any]:
    return yaml.safe_load(page("deploy/prometheus/prometheus.yaml"))
