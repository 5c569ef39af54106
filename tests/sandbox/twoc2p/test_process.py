import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.sandbox.simulator.simulator_setup import until_true

pytestmark = pytest.mark.full

COMMAND = [sys.executable, "-m", "payintent_sandbox.emulators.twoc2p"]
ACCOUNTS = json.dumps([{"merchant_id": "JT01", "secret_key": "very-secret"}])


def environment(**changes: str) -> dict[str, str]:
    ours = ("SIM_", "TWOC2P_")
    return {
        name: value for name, value in os.environ.items() if not name.startswith(ours)
    } | changes


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=1) as answer:  # noqa: S310 - our own
            return answer.status == 200
    except (urllib.error.URLError, OSError):
        return False


@pytest.mark.parametrize("source", ["environment", "file"])
def test_the_command_serves_until_it_is_stopped(source: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    arguments, variables = ["--port", str(port)], environment(SIM_TIME_SCALE="100")
    if source == "file":
        (tmp_path / "accounts.json").write_text(ACCOUNTS)
        arguments += ["--accounts", str(tmp_path / "accounts.json")]
    else:
        variables["TWOC2P_ACCOUNTS"] = ACCOUNTS
    process = subprocess.Popen([*COMMAND, *arguments], env=variables)
    try:
        until_true(lambda: answers(f"http://127.0.0.1:{port}/healthz"))
        assert answers(f"http://127.0.0.1:{port}/_twoc2p/public-key")
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) in {0, -signal.SIGTERM}
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"TWOC2P_ACCOUNTS": '[{"secret_key": "very-secret"'},
        {"TWOC2P_ACCOUNTS": "[]"},
        {"TWOC2P_ACCOUNTS": '[{"merchant_id": "JT01", "secret_key": ""}]'},
        {"TWOC2P_ACCOUNTS": f"[{ACCOUNTS[1:-1]}, {ACCOUNTS[1:-1]}]"},
        {"TWOC2P_ACCOUNTS": ACCOUNTS.replace("}", ', "merchant_public_key": "very-secret"}')},
        {"TWOC2P_ACCOUNTS": ACCOUNTS, "TWOC2P_PRIVATE_KEY": "very-secret"},
        {"TWOC2P_ACCOUNTS": ACCOUNTS, "SIM_TIME_SCALE": "nan"},
    ],
)
def test_invalid_settings_end_the_command_with_a_reason_and_no_secrets(
    variables: dict[str, str],
) -> None:
    process = subprocess.run(
        COMMAND, env=environment(**variables), capture_output=True, text=True, check=False
    )
    assert process.returncode == 1
    assert len(process.stderr.strip().splitlines()) == 1
    assert "very-secret" not in process.stderr


def test_the_emulator_does_not_import_the_service() -> None:
    script = (
        "import sys, payintent_sandbox.emulators.twoc2p.__main__\n"
        "print(*(name for name in sys.modules if name.startswith('payintent')))"
    )
    names = subprocess.check_output([sys.executable, "-c", script], text=True).split()
    own = "payintent_sandbox.emulators.twoc2p"
    shared = "payintent_sandbox.emulators"
    assert {name for name in names if not name.startswith(own)} == {
        "payintent_sandbox",
        shared,
        *(f"{shared}.{name}" for name in ("clock", "notifier", "runner")),
    }
    assert f"{own}.machine" in names
