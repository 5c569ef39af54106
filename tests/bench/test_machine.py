"""Every benchmark reports the Python version and the speed of a core."""

import ast
import re
import sysconfig
from pathlib import Path

import pytest

from bench import machine

#: Programs that benchmarks start, and a calculation.
_NO_FIGURES = {"empty_app", "load", "paper_chain", "scale"}
_BENCHES = {
    path.stem: path.read_text()
    for path in (Path(__file__).parents[2] / "bench").glob("[a-z]*.py")
    if "__name__" in path.read_text()
}


@pytest.mark.parametrize("name", sorted({*_BENCHES} - _NO_FIGURES))
def test_a_benchmark_prints_the_machine_below_its_figures(name: str) -> None:
    last = [
        node.func.id
        for node in ast.walk(ast.parse(_BENCHES[name]))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    ]
    assert "print_machine" in last


@pytest.mark.parametrize(
    ("configured", "build"),
    [
        ("'--prefix=/usr'", "no PGO, no LTO"),
        ("'--enable-optimizations' '--with-lto'", "PGO, LTO"),
        ("'--enable-optimizations'", "PGO, no LTO"),
        (None, "no PGO, no LTO"),
    ],
)
def test_the_build_of_python_is_read_from_its_configuration(
    monkeypatch: pytest.MonkeyPatch, configured: str | None, build: str
) -> None:
    monkeypatch.setattr(sysconfig, "get_config_var", lambda _: configured)
    assert f"({build}, " in machine.describe_python()


def test_the_speed_of_a_core_is_measured() -> None:
    figures = re.findall(r"([\d,]+) (?:million|MB/s)", machine.describe_speed())
    assert len(figures) == 2
    assert all(int(figure.replace(",", "")) > 0 for figure in figures)
