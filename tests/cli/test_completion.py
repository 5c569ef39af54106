"""Completion in a real bash, and the version option."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from payintent.runtime.version import API_VERSION, VERSION, read_commit

pytestmark = pytest.mark.full

_BIN = Path(sys.executable).parent
#: The steps that bash takes when TAB is pressed: set the words, call the function, read the reply.
_TAB = """
eval "$(payintent --show-completion)"
complete -p payintent | grep -q -- "-F _payintent_completion" || exit 9
COMP_WORDS=({words}) COMP_CWORD={at}
_payintent_completion payintent
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def _bash(script: str, home: Path) -> str:
    result = subprocess.run(
        ["bash", "-c", script],
        env={"PATH": f"{_BIN}:{os.environ['PATH']}", "HOME": str(home), "PYTHONWARNINGS": "error"},
        cwd=home,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, ""), result
    return result.stdout


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("payintent mer", ["merchant"]),
        ("payintent merchant res", ["resume"]),  # the group is built on demand
        ("payintent merchant list --js", ["--json"]),
    ],
)
def test_bash_completes_commands_and_options(
    tmp_path: Path, words: str, offered: list[str]
) -> None:
    script = _TAB.format(words=words, at=len(words.split()) - 1)
    assert _bash(script, tmp_path).split() == offered


def test_completion_is_installed_for_the_current_shell(tmp_path: Path) -> None:
    assert "bash completion installed in" in _bash("payintent --install-completion; :", tmp_path)
    assert "payintent.sh" in (tmp_path / ".bashrc").read_text()


def test_the_version_option_prints_the_product_version_api_version_and_commit(
    tmp_path: Path,
) -> None:
    printed = _bash("payintent --version", tmp_path)
    commit = read_commit()[:12]
    assert printed == f"payintent {VERSION} (API {API_VERSION}, commit {commit})\n"
