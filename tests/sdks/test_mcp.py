"""The MCP server for agents, used with the official Model Context Protocol client."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from payintent.merchants.access_operations import IssueApiKey
from tests.clients.conftest import uses
from tests.clients.expected_results import check_what_was_done
from tests.sdks.python_sdk import HERE, MCP_PROJECT, unpack_package
from tests.support.world import Api
from tools.openapi.install import MCP

pytestmark = pytest.mark.full

__all__ = ["uses"]

PYTHON = str(MCP / "bin" / "python")
_README = (MCP_PROJECT / "README.md").read_text()
_CHANGES = {"create_payment", "cancel_payment", "create_refund", "replay_event"}
_TEST_TOOLS = {"get_test_clock", "advance_test_clock", "pay_test_payment"}


def run(
    *command: str, python: str = PYTHON, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run Python with the server and the SDK from their wheels."""
    path = f"{unpack_package(MCP_PROJECT)}:{unpack_package()}"
    inherited = {name: value for name, value in os.environ.items() if "PAYINTENT" not in name}
    return subprocess.run(
        [python, *command],
        env=inherited | {"PYTHONPATH": path} | environment,
        cwd="/", capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def start_refused(*arguments: str, **environment: str) -> str:
    """Start the server with invalid options; return its error output."""
    result = run("-m", "payintent_mcp", *arguments, **environment)
    assert (result.returncode, result.stdout) == (2, ""), result.stderr
    return result.stderr


async def test_an_agent_can_use_exactly_the_tools_that_its_key_and_options_allow(
    api: Api, uses: list[str]
) -> None:
    side = await api.world.perform(IssueApiKey(merchant_id=api.world.merchant_id, test=True))
    result = await asyncio.to_thread(run, str(HERE / "use_mcp.py"), *uses, side.api_key)
    assert result.returncode == 0, result.stderr
    output = json.loads(result.stdout)
    second_cancellation = output["done"].pop("again")
    assert "409 INVALID_PAYMENT_STATE" in second_cancellation, second_cancellation
    check_what_was_done(output["done"] | {"again": "INVALID_PAYMENT_STATE"})
    assert output["clock"]["advanced_seconds"] == 60, output["clock"]
    _check_refusals(output["refused"])
    _check_tools(output["tools"])
    assert "LIVE key" in output["instructions"]["live"]
    assert "Test key, read-only" in output["instructions"]["read"]


def _check_refusals(messages: dict[str, str]) -> None:
    expected = {
        "all by mistake": "amount",
        "without a key": "idempotency_key",
        "no such payment": "404 NOT_FOUND",
        "not a time": "created_from",
        "another path": "404 NOT_FOUND",
        "read only": "cancel_payment",
        "a live payment": "404 NOT_FOUND",
    }
    assert set(messages) == set(expected)
    for case, text in expected.items():
        assert text in messages[case], (case, messages[case])


def _check_tools(tools_by_session: dict[str, list[dict[str, Any]]]) -> None:
    names = {
        session: {tool["name"] for tool in tools} for session, tools in tools_by_session.items()
    }
    changes = {name for name in names["write"] if not name.startswith(("get_", "list_"))}
    assert changes >= _CHANGES
    assert all(f"`{name}`" in _README for name in changes), changes
    assert names["write"] >= _TEST_TOOLS
    assert names["read"] == names["write"] - changes
    assert names["live"] == {name for name in names["write"] if "test" not in name.split("_")}
    for tool in tools_by_session["write"]:
        assert len(tool["description"]) > 30, tool["name"]
        assert tool["annotations"]["read_only_hint"] == (tool["name"] not in changes)
        schema = tool["input_schema"]
        for name, parameter in schema["properties"].items():
            assert len(parameter["description"]) > 10, (tool["name"], name)
            kinds = {parameter.get("type")} | {k["type"] for k in parameter.get("anyOf", ())}
            assert "number" not in kinds, f"{tool['name']}: {name} would be a float"
        if tool["name"] in {"create_payment", "create_refund"}:
            assert {"idempotency_key", "amount"} <= set(schema["required"])


def test_a_live_key_is_refused_unless_it_is_allowed() -> None:
    assert "not a test key" in start_refused("--write", PAYINTENT_API_KEY="sk_" + "a" * 43)


def test_a_key_is_required_and_cannot_be_an_argument() -> None:
    assert "set PAYINTENT_API_KEY" in start_refused()
    assert "unrecognized" in start_refused("--key", "sk_test_x")


def test_a_key_file_must_be_readable_only_by_its_owner(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("sk_test_x\n")
    file.chmod(0o640)
    assert "chmod 600" in start_refused(PAYINTENT_API_KEY_FILE=str(file))
    assert "cannot be read" in start_refused(PAYINTENT_API_KEY_FILE=str(tmp_path / "none"))
    file.chmod(0o600)
    old_variable = run(
        "-m", "payintent_mcp", PAYINTENT_KEY="sk_test_x"
    )  # the variable of earlier releases
    assert old_variable.returncode == 0, old_variable.stderr
    result = run("-m", "payintent_mcp", PAYINTENT_API_KEY_FILE=str(file))
    assert result.returncode == 0, result.stderr  # the server ends, because it has no client


def test_the_server_is_available_as_a_command_of_the_service() -> None:
    python = str(Path(sys.executable))
    result = run("-m", "payintent", "--help", python=python)
    assert "agents" in result.stdout, result.stderr
    refused_run = run("-m", "payintent", "mcp", "--write", python=python)
    assert refused_run.returncode == 2, refused_run.stderr
    assert "set PAYINTENT_API_KEY" in refused_run.stderr
    help_run = run("-m", "payintent", "mcp", "--help", python=python)
    assert "--write" in help_run.stdout, help_run.stderr
