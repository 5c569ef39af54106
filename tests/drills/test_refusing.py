"""`python -m drills.ha` reports missing requirements before it creates anything."""

import subprocess
import sys

import pytest

from drills.ha import __main__ as drill
from drills.ha import programs
from drills.ha.faults import FAULTS
from tests.docs.parse_pages import ROOT


def test_missing_packages_are_reported_with_their_debian_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(programs, "_ALSO_IN", ())
    monkeypatch.setattr(programs, "PACKAGES", {"etcd": "etcd-server", sys.executable: "python3"})
    assert programs.missing_packages() == ["etcd-server"]
    monkeypatch.setattr(drill, "missing_packages", programs.missing_packages)
    monkeypatch.setattr(drill.os, "geteuid", lambda: 0)
    with pytest.raises(SystemExit, match="apt-get install etcd-server"):
        drill._refuse_what_cannot_work()


def test_a_user_other_than_root_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drill.os, "geteuid", lambda: 1000)
    with pytest.raises(SystemExit, match="run it as root"):
        drill._refuse_what_cannot_work()


def test_an_unknown_fault_is_refused_with_the_names_of_all_faults() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "drills.ha", "--only", "freeze,earthquake"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert result.returncode == 2
    assert "unknown faults: earthquake" in result.stderr
    assert all(fault.name in result.stderr for fault in FAULTS)
