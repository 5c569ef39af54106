"""The emulator as a separate process, which does not import the service."""

import json
import os
import signal
import subprocess
import sys

import pytest

from tests.sandbox.simulator.simulator_setup import until_true
from tests.sandbox.simulator.test_process import answers
from tests.support.ports import free_port

pytestmark = pytest.mark.full

COMMAND = [sys.executable, "-m", "payintent_sandbox.emulators.ecpay"]
ONE = {"merchant_id": "1", "hash_key": "verysecret", "hash_iv": "iv", "credit_check_code": "2"}
ACCOUNTS = json.dumps([ONE])


def environment(**changes: str) -> dict[str, str]:
    variables = {name: value for name, value in os.environ.items() if not name.startswith("SIM_")}
    return {name: variables[name] for name in variables if name != "ECPAY_ACCOUNTS"} | changes


def test_the_command_serves_until_it_is_stopped() -> None:
    port = free_port()
    process = subprocess.Popen(
        [*COMMAND, "--port", str(port), "--host", "127.0.0.1"],
        env=environment(ECPAY_ACCOUNTS=ACCOUNTS, SIM_TIME_SCALE="100"),
    )
    try:
        until_true(lambda: answers(f"http://127.0.0.1:{port}/healthz"))
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) in {0, -signal.SIGTERM}
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"ECPAY_ACCOUNTS": "[]"},
        {"ECPAY_ACCOUNTS": json.dumps([ONE, ONE])},
        {"ECPAY_ACCOUNTS": json.dumps([ONE | {"hash_iv": ""}])},
        {"ECPAY_ACCOUNTS": ACCOUNTS, "SIM_TIME_SCALE": "0"},
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
    assert "verysecret" not in process.stderr


def test_the_emulator_does_not_import_the_service() -> None:
    script = (
        "import sys, payintent_sandbox.emulators.ecpay.__main__\n"
        "print(*(name for name in sys.modules if name.startswith('payintent')))"
    )
    names = subprocess.check_output([sys.executable, "-c", script], text=True).split()
    own = "payintent_sandbox.emulators.ecpay"
    shared = "payintent_sandbox.emulators"
    assert {name for name in names if not name.startswith(own)} == {
        "payintent_sandbox",
        shared,
        *(f"{shared}.{name}" for name in ("clock", "notifier", "runner")),
    }
    assert f"{own}.machine" in names
