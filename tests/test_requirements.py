"""A test folder that runs alone reports the command that installs its requirements."""

import os
import re
import subprocess
import sysconfig
import venv
from pathlib import Path

import pytest

from tests.support.requirements import COMMAND, NEEDS

pytestmark = pytest.mark.full

_TESTS = Path(__file__).parent
_ROOT = _TESTS.parent
_TOOLS = re.compile(
    r"^from (tools\.(openapi|web)\.(check|install)|tests\.support\.node) ", re.MULTILINE
)
#: These tests only read the list of tools.
_NOT_RUN = {"test_requirements.py", "tools/test_supply.py"}


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with only the development packages."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, symlinks=True)
    [packages] = folder.glob("lib/python3*/site-packages")
    (packages / "real.pth").write_text(f"{sysconfig.get_path('purelib')}\n{_ROOT}\n")
    return folder / "bin" / "python"


def run(python: Path, *words: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if "PYTEST" not in name}
    return subprocess.run(
        [python, "-m", "pytest", "-n", "0", "-p", "no:randomly", *words],
        cwd=_ROOT, env=inherited, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def test_a_folder_without_its_tools_names_the_command_that_installs_them(bare: Path) -> None:
    # Without a database, because starting it is slow.
    ended = run(bare, "--collect-only", *(f"tests/{path}" for path in NEEDS))
    output = ended.stdout + ended.stderr
    assert ended.returncode == pytest.ExitCode.USAGE_ERROR, output
    needs_by_path = {
        frozenset(need for prefix, need in NEEDS.items() if f"{path}/".startswith(f"{prefix}/"))
        for path in NEEDS
    }
    assert output.count(f"Run `{COMMAND}` first.") == len(needs_by_path)
    assert "Traceback" not in output


def test_a_single_test_without_its_tools_fails_with_one_line(bare: Path) -> None:
    ended = run(bare, "tests/runtime/test_caches.py", "tests/tools/test_browser_check.py")
    assert ended.returncode == pytest.ExitCode.TESTS_FAILED, ended.stdout
    assert f"Run `{COMMAND}` first." in ended.stdout
    assert "Error" not in ended.stdout
    assert "passed" in ended.stdout


def test_every_test_that_needs_these_tools_is_in_the_table() -> None:
    using = {
        file.relative_to(_TESTS).as_posix()
        for file in _TESTS.rglob("test_*.py")
        if _TOOLS.search(file.read_text())
    }
    files = {name for name in using if name in NEEDS or name.split("/")[0] in NEEDS}
    assert using - files == _NOT_RUN & using


def test_the_command_exists_in_the_makefile_and_the_guide() -> None:
    target = COMMAND.removeprefix("make ")
    assert re.search(rf"^{target}:.* ## ", (_ROOT / "Makefile").read_text(), re.MULTILINE)
    assert f"`{COMMAND}`" in (_ROOT / "CONTRIBUTING.md").read_text()
