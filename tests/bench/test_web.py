"""The figures for each page are printed with its budgets, and exceeding one is an error."""

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench import web

pytestmark = pytest.mark.long

ROWS = [
    "HTML",
    "CSS",
    "JavaScript",
    "requests until usable",
    "usable",
    "usable with an empty cache",
    "largest paint (LCP)",
    "layout shift (CLS)",
    "SDK, /sdk/v1.js",
]
COLUMNS = ["choose a way to pay", "pay from a wallet", "paid", "console: today", "portal: payments"]


@pytest.mark.e2e
def test_a_quick_run_prints_and_stores_every_figure(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "bench.web", "--quick"],
        cwd=Path(__file__).parents[2],
        env=os.environ | {"VAR_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert (tmp_path / "bench-web.json").exists(), result.stdout + result.stderr
    assert [row for row in (*ROWS, *COLUMNS) if row not in result.stdout] == []
    # The result must match the printed figures, whatever the speed of this machine.
    assert result.returncode == int("(!) " in result.stdout.replace("(!) is beyond", ""))


@pytest.mark.parametrize(
    ("budget", "value", "met"),
    [
        (web.USABLE, 0.5, True),
        (web.USABLE, 0.51, False),
        (web.PERFORMANCE, 1.0, True),
        (web.PERFORMANCE, 0.99, False),
        (web.SDK, math.inf, False),
    ],
)
def test_a_budget_is_met_or_not(budget: web.Budget, value: float, met: bool) -> None:
    assert web.Figure(budget, {web.CHOOSE: value}).met is met
    assert ("(!)" in budget.text(value)) is not met


def test_a_page_behind_a_sign_in_has_a_larger_budget() -> None:
    assert web.Figure(web.CSS, {web.TODAY: 5_000, web.CHOOSE: 4_000}).met
    assert not web.Figure(web.CSS, {web.CHOOSE: 4_001}).met
    assert not web.Figure(web.CSS, {web.TODAY: 6_001}).met
    assert "(!)" in web.CSS.text(5_000, web.CHOOSE)
    assert "(!)" not in web.CSS.text(5_000, web.TODAY)
