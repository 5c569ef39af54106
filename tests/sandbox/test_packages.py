"""The sandbox of a source checkout builds the SDKs' wheels, but starts even if that fails."""

import sys
from pathlib import Path

import pytest

from payintent.runtime.version import VERSION
from payintent_sandbox.packages import build_packages

pytestmark = pytest.mark.slow


def test_the_wheels_are_built_once_and_replace_wheels_of_another_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    folder = tmp_path / "packages"
    folder.mkdir()
    (folder / "payintent_sdk-0.1.0-py3-none-any.whl").write_bytes(b"")
    assert build_packages() == str(folder)
    wheels = {wheel.name: wheel.stat().st_mtime_ns for wheel in folder.glob("*.whl")}
    names = ("payintent_cli", "payintent_mcp", "payintent_sdk")
    assert sorted(wheels) == [f"{name}-{VERSION}-py3-none-any.whl" for name in names]
    build_packages()
    assert {wheel.name: wheel.stat().st_mtime_ns for wheel in folder.glob("*.whl")} == wheels


def test_without_a_writable_environment_the_sandbox_has_no_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    (tmp_path / "packages").write_text("not a folder")
    assert build_packages() == ""
    assert "cannot build the SDK packages" in capsys.readouterr().out
