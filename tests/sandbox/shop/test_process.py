import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator

import aiohttp
import pytest

from tests.sandbox.shop.shop_setup import API_KEY, SECRET, Visitor, event, signed
from tests.support.timeouts import PATIENCE_S

pytestmark = pytest.mark.full

COMMAND = [sys.executable, "-m", "payintent_sandbox.shop"]


def environment(**changes: str) -> dict[str, str]:
    variables = {name: value for name, value in os.environ.items() if not name.startswith("SHOP_")}
    return variables | changes


@pytest.fixture
def command(free_port: int) -> Generator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [*COMMAND, "--port", str(free_port)],
        env=environment(SHOP_API_KEY=API_KEY, SHOP_CALLBACK_SECRET=SECRET),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    yield process
    process.kill()
    process.communicate()


async def test_the_command_serves_until_it_is_stopped_and_prints_no_secrets(
    command: subprocess.Popen[bytes], free_port: int
) -> None:
    wait_until_it_listens(free_port)
    async with aiohttp.ClientSession() as http:
        visitor = Visitor(http, f"http://127.0.0.1:{free_port}")
        assert (await visitor.call("GET", "/healthz")).status == 200
        body = event("pay_1")
        assert await visitor.tell(body, signed(body)) == 204
    command.send_signal(signal.SIGTERM)
    output = command.communicate(timeout=PATIENCE_S)[0].decode()
    assert command.returncode in {0, -signal.SIGTERM}
    assert API_KEY not in output
    assert SECRET.removeprefix("whsec_") not in output


def wait_until_it_listens(port: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        assert time.monotonic() < deadline, "nothing listens"
        time.sleep(0.005)


@pytest.mark.parametrize(
    "variables",
    [
        {"SHOP_CALLBACK_SECRET": SECRET},
        {"SHOP_API_KEY": API_KEY, "SHOP_CALLBACK_SECRET": "whsec_very-secret!"},
    ],
)
def test_the_command_needs_valid_secrets_and_does_not_print_them(
    variables: dict[str, str],
) -> None:
    result = subprocess.run(
        COMMAND, env=environment(**variables), capture_output=True, text=True, check=False
    )
    assert result.returncode == 1
    assert result.stderr.count("\n") == 1
    assert "very-secret" not in result.stderr
    assert API_KEY not in result.stderr
