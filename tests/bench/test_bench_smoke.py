"""The benchmark runs from start to finish and prints every figure."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.long

REQUESTS = ("per_s", "cpu_us", "empty_per_s", "empty_cpu_us", "empty_ratio")
FIGURES = {
    "create": (*REQUESTS, "pgbench_per_s", "pgbench_ratio"),
    "get": (*REQUESTS, "pgbench_per_s", "pgbench_ratio"),
    "quotes": REQUESTS,
    "catalog": REQUESTS,
    "callbacks": ("answered_p50_ms", "answered_p99_ms", "webhook_p50_ms", "webhook_p99_ms"),
}
LISTS = ["no filter", "status", "currency and status", "payer", "deep page by cursor"]


@pytest.fixture
def quick(tmp_path: Path) -> tuple[str, dict[str, Any]]:
    result = subprocess.run(
        [sys.executable, "-m", "bench", "--quick"],
        cwd=Path(__file__).parents[2],
        env=os.environ | {"VAR_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout, json.loads((tmp_path / "bench.json").read_text())


@pytest.mark.e2e
def test_a_quick_run_prints_and_stores_every_figure(quick: tuple[str, dict[str, Any]]) -> None:
    printed, stored = quick
    for part, names in FIGURES.items():
        for name in names:
            assert stored[part][name] > 0, (part, name)
    assert f"{stored['create']['per_s']:,.0f}/s" in printed
    assert f"{stored['get']['pgbench_per_s']:,.0f}/s" in printed
    assert f"{stored['quotes']['per_s']:,.0f}/s" in printed
    assert f"{stored['catalog']['empty_per_s']:,.0f}/s" in printed
    assert f"{stored['callbacks']['webhook_p99_ms']:.1f} ms" in printed
    assert [entry["name"] for entry in stored["lists"]] == LISTS
    for item in stored["lists"]:
        assert item["name"] in printed
        for figure in (*item["p50_ms"], *item["p99_ms"], item["ratio"]):
            assert f"{figure:.2f}" in printed, item
    assert "proven, matched, PAID and stored" in printed
    for work in ("callbacks to PAID", "deliveries", "payments expired", "while 50% of"):
        assert work in printed
    assert stored["machine"]["postgres"] in printed
    assert "PGO" in stored["machine"]["python"]
    assert stored["machine"]["speed"].split(",")[0] in " ".join(printed.split())
    goals = printed[printed.index("goals") :]
    assert goals.count(" met ") + goals.count(" missed ") == 9
