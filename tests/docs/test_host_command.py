"""`deploy/payintent.sh`: variables of the shell take precedence over the files."""

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.docs.playing import Machine

pytestmark = pytest.mark.full

_FILES = {
    "payintent.env": """
PAYINTENT_PEPPER=of-the-files
PAYINTENT_OIDC_ROLES='{"admin": ["payments"]}'
PAYINTENT_DATABASE_POOLED=true
DATABASE_READ_URL=postgresql://replica/payintent
""",
    "payintent-api.env": """
DATABASE_URL='postgresql://payintent_api@db0/payintent?a=1&b=2'
DATABASE_DIRECT_URL=postgresql://payintent_api@db0:5433/payintent
""",
    "payintent-migrate.env": "DATABASE_URL=postgresql://payintent_migrate@db0/payintent\n",
}
_ROLES = '{"admin": ["payments"]}'
_RESTORED = "postgresql://payintent_api@db0/restored?a='1'&b=$HOME"
_OURS = ("DATABASE_", "PAYINTENT_")
_SHELLS = [path for name in ("dash", "bash") if (path := shutil.which(name))]


@dataclass(frozen=True)
class _Ran:
    arguments: str
    settings: dict[str, str]
    others: dict[str, str]
    said: str


class _Host:
    """A folder like a host in deploy.md, whose program prints its environment."""

    def __init__(self, folder: Path) -> None:
        self._machine = Machine(folder)
        self._machine.check_out({})
        self._machine.install("payintent", 'exec env -0 ARGUMENTS="$*"', where="opt/payintent/bin")
        settings = self._machine.folder / "etc/payintent"
        settings.mkdir()
        for name, text in _FILES.items():
            (settings / name).write_text(text)

    def close(self) -> None:
        self._machine.systemd.close()

    def run(self, words: str, environment: dict[str, str], shell: str = "/bin/sh") -> _Ran:
        """Run a command for a caller with this shell environment."""
        script = self._machine.checkout / "deploy/payintent.sh"
        done = subprocess.run(
            [shell, str(script), *words.split()],
            env={"PATH": "/usr/bin:/bin", **environment},
            capture_output=True,
            text=True,
            check=True,
        )
        found = dict(line.split("=", 1) for line in done.stdout.split("\0") if line)
        settings = {name: found.pop(name) for name in sorted(found) if name.startswith(_OURS)}
        return _Ran(found.pop("ARGUMENTS"), settings, found, done.stderr)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[_Host]:
    made = _Host(tmp_path / "machine")
    yield made
    made.close()


def test_a_command_has_the_settings_of_the_files_and_the_role_of_its_unit(host: _Host) -> None:
    doctor = host.run("doctor --json", {})
    assert doctor.arguments == "doctor --json"
    assert doctor.said == ""
    assert doctor.settings == {
        "DATABASE_DIRECT_URL": "postgresql://payintent_api@db0:5433/payintent",
        "DATABASE_READ_URL": "postgresql://replica/payintent",
        "DATABASE_URL": "postgresql://payintent_api@db0/payintent?a=1&b=2",
        "PAYINTENT_OIDC_ROLES": _ROLES,
        "PAYINTENT_DATABASE_POOLED": "true",
        "PAYINTENT_PEPPER": "of-the-files",
    }
    migrate = host.run("migrate", {}).settings
    assert migrate["DATABASE_URL"] == "postgresql://payintent_migrate@db0/payintent"


@pytest.mark.parametrize("shell", _SHELLS)
@pytest.mark.parametrize("name", ["DATABASE_URL", "PAYINTENT_DATABASE_URL"])
def test_no_way_to_the_files_database_is_left_where_the_shell_names_another(
    host: _Host, shell: str, name: str
) -> None:
    ran = host.run("doctor", {name: _RESTORED}, shell)
    assert ran.settings == {
        name: _RESTORED,
        "PAYINTENT_OIDC_ROLES": _ROLES,
        "PAYINTENT_PEPPER": "of-the-files",
    }
    assert "using the database from this shell" in ran.said
    assert "restored" not in ran.said


@pytest.mark.parametrize("shell", _SHELLS)
def test_what_else_the_shell_has_counts_too_also_where_it_is_empty_or_has_lines(
    host: _Host, shell: str
) -> None:
    empty = host.run("migrate", {"PAYINTENT_OIDC_ROLES": ""}, shell)
    assert empty.settings["PAYINTENT_OIDC_ROLES"] == ""
    lines = '{"admin":\n  ["it\'s"]}\n'
    callers = {"PAYINTENT_OIDC_ROLES": lines, "own": "a", "database": "b", "exported": "c"}
    ran = host.run("doctor", callers, shell)
    assert ran.settings["PAYINTENT_OIDC_ROLES"] == lines
    assert ran.settings["DATABASE_URL"].startswith("postgresql://payintent_api@db0/")
    assert {name: ran.others.get(name) for name in ("own", "database", "exported")} == {
        "own": "a",
        "database": "b",
        "exported": "c",
    }
    assert ran.said == ""


def test_nothing_is_left_in_the_environment_but_settings(host: _Host) -> None:
    assert not {"own", "database", "exported"} & host.run("doctor", {}).others.keys()
