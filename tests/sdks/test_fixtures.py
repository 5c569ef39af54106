"""The SDKs' test helpers for merchants work, and the examples in their READMEs run as printed."""

import asyncio
import json
import os
import re
import subprocess
import sys
import time
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

from payintent_sandbox.chains.anvil_binary import npm
from tests.sdks import python_sdk, typescript_sdk
from tests.sdks.conftest import Side
from tests.sdks.signed_webhooks import OTHER, SECRET, webhook
from tools.openapi.install import CLIENTS
from tools.openapi.pack_typescript import PROJECT as TYPESCRIPT

pytestmark = [pytest.mark.timeout(310), pytest.mark.long]
#: Disables our own plugins, which a shop does not have and which are slow to load.
_NO_PLUGINS = [
    word for plugin in entry_points(group="pytest11") for word in ("-p", f"no:{plugin.name}")
]
_EXAMPLE = r"## Test your shop\n.*?```{}\n(.*?)```"


def read_example(project: Path, language: str) -> str:
    readme = (project / "README.md").read_text()
    [text] = re.findall(_EXAMPLE.format(language), readme, re.DOTALL)
    return text


def _run_pytest(folder: Path, *arguments: str, **environment: str) -> tuple[int, str]:
    """Run pytest in a folder with the installed SDK; return its status and output."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTEST", "PAYINTENT", "COV"))
    }
    [httpx] = CLIENTS.glob("lib/python*/site-packages")
    variables = {
        "PYTHONPATH": f"{python_sdk.unpack_package()}:{httpx}",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *_NO_PLUGINS, *arguments],
        cwd=folder, env=inherited | variables | environment, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    return result.returncode, result.stdout + result.stderr


async def test_the_pytest_example_runs_with_environment_variables_and_with_a_configuration(
    side: Side, tmp_path: Path
) -> None:
    (tmp_path / "test_shop.py").write_text(read_example(python_sdk.PROJECT, "python"))
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    status, printed = await asyncio.to_thread(_run_pytest, tmp_path, **side)
    assert (status, "3 passed" in printed) == (0, True), printed
    lines = [f"{name.lower()} = {value}" for name, value in side.items()]
    (tmp_path / "pytest.ini").write_text("\n".join(["[pytest]", *lines, ""]))
    status, printed = await asyncio.to_thread(_run_pytest, tmp_path, "-k", "declined")
    assert (status, "1 passed" in printed) == (0, True), printed
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    old_names = {"PAYINTENT_URL": "PAYINTENT_API_BASE_URL", "PAYINTENT_API_KEY": "PAYINTENT_KEY"}
    old_variables = {old_names.get(name, name): value for name, value in side.items()}
    status, printed = await asyncio.to_thread(
        _run_pytest, tmp_path, "-k", "declined", **old_variables
    )
    assert (status, "1 passed" in printed) == (0, True), printed


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"PAYINTENT_API_KEY": "sk_live_x"}, "PAYINTENT_API_KEY is not a test key"),
        ({"PAYINTENT_API_KEY": ""}, "set PAYINTENT_API_KEY: the merchant's test key"),
        ({"PAYINTENT_WEBHOOK_PORT": "x"}, "PAYINTENT_WEBHOOK_PORT is not a port: x"),
    ],
)
def test_fixtures_refuse_a_live_key_and_report_missing_settings(
    tmp_path: Path, changes: dict[str, str], message: str
) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_one.py").write_text("def test_one(payintent_webhooks, payintent): pass\n")
    variables = {
        "PAYINTENT_URL": "http://127.0.0.1:9",
        "PAYINTENT_API_KEY": "sk_test_x",
        "PAYINTENT_WEBHOOK_SECRET": SECRET,
    }
    status, printed = _run_pytest(tmp_path, **(variables | changes))
    assert (status, message in printed) == (1, True), printed


async def test_the_node_example_runs_as_printed(side: Side) -> None:
    (typescript_sdk.install_sdk() / "shop.mts").write_text(read_example(TYPESCRIPT, "typescript"))
    printed = await asyncio.to_thread(typescript_sdk.run_program, "shop.mts", **side)
    assert "pass 3" in printed, printed


def test_the_typescript_helpers_refuse_a_live_key() -> None:
    program = 'import { TestSide } from "payintent-sdk/testing"; new TestSide();'
    command = (npm()[0], "--input-type=module", "--eval", program)
    for key, message in (("sk_live_x", "is not a test key"), ("", "set PAYINTENT_API_KEY")):
        with pytest.raises(AssertionError, match=message):
            typescript_sdk.run(*command, folder=typescript_sdk.install_sdk(), PAYINTENT_API_KEY=key)


def _run_receiver(run_program: Any, name: str) -> dict[str, Any]:
    at = int(time.time())
    valid, forged, old = webhook(at=at), webhook(secret=OTHER, at=at), webhook()
    request = {"secrets": [SECRET], "payment": "1", "webhooks": [valid, valid, forged, old]}
    return json.loads(run_program(name, text=json.dumps(request)))


@pytest.mark.parametrize(
    ("run_program", "name"),
    [
        (python_sdk.run_program, "use_receiver.py"),
        (typescript_sdk.run_program, "use_receiver.mts"),
    ],
)
def test_a_receiver_stores_signed_webhooks_once_and_waits_for_the_requested_event(
    run_program: Any, name: str
) -> None:
    assert _run_receiver(run_program, name) == {
        "statuses": [204, 204, 400, 400],
        "event_ids": ["msg_1"],
        "refused": 2,
        "event_type": "payment.expired",
        "errors": ["no payment.failed for 1", "no payment.expired for another"],
    }
