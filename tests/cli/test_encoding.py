"""Commands do not fail if the terminal's encoding lacks a character."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from payintent.runtime.settings import Settings
from tests.cli.conftest import Run, RunResult
from tests.sdks.python_sdk import CLI_PROJECT, PYTHON, unpack_package
from tests.support.timeouts import PATIENCE_S

pytestmark = pytest.mark.full

_NAME = "ร้านหนังสือ é 😀 “Buch”"
_ROOT = Path(__file__).parents[2]
#: Environments in which most characters cannot be encoded.
_TERMINALS = [
    {"PYTHONIOENCODING": "ascii"},
    {"PYTHONIOENCODING": "ascii:strict"},
    {"PYTHONIOENCODING": "latin-1"},
    {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
]


def ids(terminal: dict[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in terminal.items())


@pytest.fixture(params=_TERMINALS, ids=ids)
def terminal(request: pytest.FixtureRequest) -> dict[str, str]:
    return request.param


@pytest.fixture
def run(settings: Settings, tmp_path: Path) -> Run:
    """Run `payintent` in a new process, because a prepared process has open streams."""
    environment = {
        "PATH": os.environ["PATH"],
        "DATABASE_URL": settings.database_url,
        "PAYINTENT_PEPPER": settings.pepper.get_secret_value(),
        "PAYINTENT_KEYRING": settings.keyring.get_secret_value(),
        "PAYINTENT_SANDBOX": "true",
    }

    def run_command(*arguments: str, **terminal: str) -> RunResult:
        result = subprocess.run(
            [sys.executable, "-m", "payintent", *arguments],
            env=environment | terminal,
            cwd=tmp_path,
            capture_output=True,
            timeout=PATIENCE_S,
            check=False,
        )
        return RunResult(
            result.returncode, result.stdout.decode("latin-1"), result.stderr.decode("latin-1")
        )

    return run_command


def test_text_output_is_escaped_and_json_output_is_unchanged(
    run: Run, terminal: dict[str, str]
) -> None:
    created = run("merchant", "create", "--name", _NAME, "--json").json
    merchants = run("merchant", "list", "--json", **terminal).json
    [name] = [merchant["name"] for merchant in merchants if merchant["id"] == created["id"]]
    assert name == _NAME
    result = run("merchant", "list", **terminal)
    assert (result.status, "Traceback" in result.err) == (0, False), result.err
    failed = run("payment", "show", "é😀", **terminal)
    assert (failed.status, "Traceback" in failed.err) == (1, False), failed.err
    mistyped = run("ünknown", **terminal)
    assert (mistyped.status, "Traceback" in mistyped.err) == (2, False), mistyped.err


@pytest.mark.parametrize("words", [["--help"], ["key", "issue", "--help"], ["payment", "--help"]])
def test_help_can_be_printed_in_any_encoding(
    run: Run, terminal: dict[str, str], words: list[str]
) -> None:
    result = run(*words, **terminal)
    assert (result.status, result.err) == (0, ""), result.err


@pytest.mark.parametrize(
    "words",
    [
        ["-m", "payintent_cli", "grade", "--help"],
        ["-m", "payintent_cli", "login"],
        ["-m", "payintent_cli", "listen", "--forward-to", "http://é:x/"],
        ["-m", "payintent_mcp", "--help"],
        ["-m", "payintent_sandbox.emulators.stripe", "--help"],
        ["-m", "payintent_sandbox.emulators.twoc2p", "--port", "é"],
        ["-m", "payintent_sandbox.demo"],
        ["-c", r"import drills; print('\u2713 \xe9 \U0001f600 \udcff')"],
        ["-c", r"import bench; print('\u2713 \xe9 \U0001f600 \udcff')"],
    ],
)
def test_other_programs_end_without_a_traceback(
    terminal: dict[str, str], words: list[str], tmp_path: Path
) -> None:
    is_ours = any(word in words[1] for word in ("sandbox", "drills", "bench"))
    mcp = _ROOT / "sdks/mcp"
    path = os.pathsep.join(map(str, (unpack_package(CLI_PROJECT), unpack_package(), mcp, _ROOT)))
    result = subprocess.run(
        [sys.executable if is_ours else PYTHON, *words],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": path, "VAR_DIR": str(tmp_path / "é")}
        | {"HOME": str(tmp_path), "PAYINTENT_API_KEY": "sk_test_x"}
        | terminal,
        input="sk_é😀\n".encode(),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert b"Traceback" not in result.stderr, result.stderr.decode("latin-1")
    assert b"UnicodeEncodeError" not in result.stderr
