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
from tests.clients.uses import check_what_was_done
from tests.sdks.python_sdk import HERE, MCP_PROJECT, installed
from tests.support.world import Api
from tools.openapi.install import MCP

pytestmark = pytest.mark.full

__all__ = ["uses"]

PYTHON = str(MCP / "bin" / "python")
_README = (MCP_PROJECT / "README.md").read_text()
_CHANGES = {"create_payment", "cancel_payment", "create_refund", "replay_event"}
_OF_TESTS = {"get_test_clock", "advance_test_clock", "pay_test_payment"}


def run(
    *command: str, python: str = PYTHON, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run Python with the server and the SDK as installed from their wheels."""
    path = f"{installed(MCP_PROJECT)}:{installed()}"
    inherited = {name: value for name, value in os.environ.items() if "PAYINTENT" not in name}
    return subprocess.run(
        [python, *command],
        env=inherited | {"PYTHONPATH": path} | environment,
        cwd="/", capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def refused(*words: str, **environment: str) -> str:
    """Start the server in a forbidden way; return its output."""
    ended = run("-m", "payintent_mcp", *words, **environment)
    assert (ended.returncode, ended.stdout) == (2, ""), ended.stderr
    return ended.stderr


async def test_an_agent_can_use_exactly_the_tools_that_its_key_and_options_allow(
    api: Api, uses: list[str]
) -> None:
    side = await api.world.perform(IssueApiKey(merchant_id=api.world.merchant_id, test=True))
    ended = await asyncio.to_thread(run, str(HERE / "use_mcp.py"), *uses, side.api_key)
    assert ended.returncode == 0, ended.stderr
    saw = json.loads(ended.stdout)
    again = saw["done"].pop("again")
    assert "409 INVALID_PAYMENT_STATE" in again, again
    check_what_was_done(saw["done"] | {"again": "INVALID_PAYMENT_STATE"})
    assert saw["clock"]["advanced_seconds"] == 60, saw["clock"]
    _check_refusals(saw["refused"])
    _check_tools(saw["tools"])
    assert "LIVE key" in saw["instructions"]["live"]
    assert "Test key, read-only" in saw["instructions"]["read"]


def _check_refusals(said: dict[str, str]) -> None:
    wanted = {
        "all by mistake": "amount",
        "without a key": "idempotency_key",
        "no such payment": "404 NOT_FOUND",
        "not a time": "created_from",
        "another path": "404 NOT_FOUND",
        "read only": "cancel_payment",
        "a live payment": "404 NOT_FOUND",
    }
    assert set(said) == set(wanted)
    for case, text in wanted.items():
        assert text in said[case], (case, said[case])


def _check_tools(listed: dict[str, list[dict[str, Any]]]) -> None:
    names = {session: {tool["name"] for tool in tools} for session, tools in listed.items()}
    changes = {name for name in names["write"] if not name.startswith(("get_", "list_"))}
    assert changes >= _CHANGES
    assert all(f"`{name}`" in _README for name in changes), changes
    assert names["write"] >= _OF_TESTS
    assert names["read"] == names["write"] - changes
    assert names["live"] == {name for name in names["write"] if "test" not in name.split("_")}
    for tool in listed["write"]:
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
    assert "not a test key" in refused("--write", PAYINTENT_API_KEY="sk_" + "a" * 43)


def test_a_key_is_required_and_cannot_be_an_argument() -> None:
    assert "set PAYINTENT_API_KEY" in refused()
    assert "unrecognized" in refused("--key", "sk_test_x")


def test_a_key_file_must_be_readable_only_by_its_owner(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("sk_test_x\n")
    file.chmod(0o640)
    assert "chmod 600" in refused(PAYINTENT_API_KEY_FILE=str(file))
    assert "cannot be read" in refused(PAYINTENT_API_KEY_FILE=str(tmp_path / "none"))
    file.chmod(0o600)
    older = run("-m", "payintent_mcp", PAYINTENT_KEY="sk_test_x")  # as in earlier releases
    assert older.returncode == 0, older.stderr
    served = run("-m", "payintent_mcp", PAYINTENT_API_KEY_FILE=str(file))
    assert served.returncode == 0, served.stderr  # its client has gone at once


def test_the_server_is_available_as_a_command_of_the_service() -> None:
    here = str(Path(sys.executable))
    listed = run("-m", "payintent", "--help", python=here)
    assert "agents" in listed.stdout, listed.stderr
    ended = run("-m", "payintent", "mcp", "--write", python=here)
    assert ended.returncode == 2, ended.stderr
    assert "set PAYINTENT_API_KEY" in ended.stderr
    helped = run("-m", "payintent", "mcp", "--help", python=here)
    assert "--write" in helped.stdout, helped.stderr
