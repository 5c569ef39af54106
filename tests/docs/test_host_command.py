"""`deploy/payintent.sh`: shell variables take precedence over the files."""

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.docs.run_pages import Machine

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
_PREFIXES = ("DATABASE_", "PAYINTENT_")
_SHELLS = [path for name in ("dash", "bash") if (path := shutil.which(name))]


@dataclass(frozen=True)
class _Result:
    arguments: str
    settings: dict[str, str]
    remaining: dict[str, str]
    errors: str


class _Host:
    """A folder that represents a host. Its program prints its environment."""

    def __init__(self, folder: Path) -> None:
        self._machine = Machine(folder)
        self._machine.check_out({})
        self._machine.install(
            "payintent", 'exec env -0 ARGUMENTS="$*"', subfolder="opt/payintent/bin"
        )
        settings = self._machine.folder / "etc/payintent"
        settings.mkdir()
        for name, text in _FILES.items():
            (settings / name).write_text(text)

    def close(self) -> None:
        self._machine.systemd.close()

    def run(self, words: str, environment: dict[str, str], shell: str = "/bin/sh") -> _Result:
        """Run a command in a shell with this environment."""
        script = self._machine.checkout / "deploy/payintent.sh"
        result = subprocess.run(
            [shell, str(script), *words.split()],
            env={"PATH": "/usr/bin:/bin", **environment},
            capture_output=True,
            text=True,
            check=True,
        )
        variables = dict(line.split("=", 1) for line in result.stdout.split("\0") if line)
        settings = {
            name: variables.pop(name) for name in sorted(variables) if name.startswith(_PREFIXES)
        }
        return _Result(variables.pop("ARGUMENTS"), settings, variables, result.stderr)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[_Host]:
    machine = _Host(tmp_path / "machine")
    yield machine
    machine.close()


def test_a_command_uses_the_settings_from_the_files_and_the_role_of_its_unit(host: _Host) -> None:
    doctor = host.run("doctor --json", {})
    assert doctor.arguments == "doctor --json"
    assert doctor.errors == ""
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
def test_a_database_url_in_the_shell_replaces_all_database_settings_in_the_files(
    host: _Host, shell: str, name: str
) -> None:
    result = host.run("doctor", {name: _RESTORED}, shell)
    assert result.settings == {
        name: _RESTORED,
        "PAYINTENT_OIDC_ROLES": _ROLES,
        "PAYINTENT_PEPPER": "of-the-files",
    }
    assert "using the database from this shell" in result.errors
    assert "restored" not in result.errors


@pytest.mark.parametrize("shell", _SHELLS)
def test_shell_variables_take_precedence_even_if_empty_or_multiline(
    host: _Host, shell: str
) -> None:
    empty = host.run("migrate", {"PAYINTENT_OIDC_ROLES": ""}, shell)
    assert empty.settings["PAYINTENT_OIDC_ROLES"] == ""
    lines = '{"admin":\n  ["it\'s"]}\n'
    callers = {"PAYINTENT_OIDC_ROLES": lines, "own": "a", "database": "b", "exported": "c"}
    result = host.run("doctor", callers, shell)
    assert result.settings["PAYINTENT_OIDC_ROLES"] == lines
    assert result.settings["DATABASE_URL"].startswith("postgresql://payintent_api@db0/")
    assert {name: result.remaining.get(name) for name in ("own", "database", "exported")} == {
        "own": "a",
        "database": "b",
        "exported": "c",
    }
    assert result.errors == ""


def test_internal_variables_of_the_script_are_not_exported(host: _Host) -> None:
    assert not {"own", "database", "exported"} & host.run("doctor", {}).remaining.keys()
