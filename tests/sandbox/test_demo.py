import asyncio
import io
import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from rich.console import Console

from payintent_sandbox.demo.stage import DemoStage, StepError, masked, read_sandbox, together

pytestmark = pytest.mark.full

SECRET = "whsec_very-secret"


def run_demo(var_dir: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "payintent_sandbox.demo"]
    variables = os.environ | {"VAR_DIR": str(var_dir)}
    return subprocess.run(command, env=variables, capture_output=True, text=True, check=False)


def describe(var_dir: Path, **changes: object) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    merchant = {"id": 1, "name": "Shop", "api_key": "sk_live_x", "callback_secret": SECRET}
    description = {
        "api_url": f"{url}/v1",
        "simulator_url": url,
        "shop_url": url,
        "merchants": [merchant],
    }
    (var_dir / "dev.json").write_text(json.dumps(description | changes))


def test_without_a_sandbox_the_demo_explains_how_to_start_it(tmp_path: Path) -> None:
    result = run_demo(tmp_path)
    assert result.returncode == 1
    assert result.stderr == f"demo: {tmp_path}/dev.json is missing: run `make dev` first\n"


def test_a_stopped_sandbox_is_reported_in_one_line(tmp_path: Path) -> None:
    describe(tmp_path)
    result = run_demo(tmp_path)
    assert result.returncode == 1
    assert "run `make dev` first" in result.stderr
    assert result.stderr.count("\n") == 1


def test_an_invalid_sandbox_description_is_refused_without_showing_secrets(tmp_path: Path) -> None:
    for changes in ({"merchants": [{"callback_secret": SECRET}]}, {"merchants": []}):
        describe(tmp_path, **changes)
        result = run_demo(tmp_path)
        assert result.returncode == 1
        assert result.stderr.count("\n") == 1
        assert "very-secret" not in result.stderr


def test_checkout_ids_are_masked_anywhere_in_a_string() -> None:
    text = masked("POST /checkout/cs_0123456789abcdef/quotes, cs_ZYXWvutsrqponmlk")
    assert text == "POST /checkout/cs_0123…/quotes, cs_ZYXW…"


def test_a_sandbox_without_chains_or_gateways_can_be_read(tmp_path: Path) -> None:
    describe(tmp_path)
    sandbox = read_sandbox(tmp_path / "dev.json")
    assert (sandbox.chains, sandbox.gateways) == ({}, {})
    describe(tmp_path, gateways={"stripe": {"url": "http://127.0.0.1:8088"}})
    assert read_sandbox(tmp_path / "dev.json").gateways["stripe"].url == "http://127.0.0.1:8088"


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[DemoStage]:
    describe(tmp_path)
    async with aiohttp.ClientSession() as http:
        console = Console(file=io.StringIO(), width=200)
        yield DemoStage(sandbox=read_sandbox(tmp_path / "dev.json"), http=http, console=console)


def list_printed_lines(stage: DemoStage) -> list[str]:
    assert isinstance(stage.console.file, io.StringIO)
    return stage.console.file.getvalue().splitlines()


async def test_acts_run_concurrently_and_print_one_line_each(stage: DemoStage) -> None:
    both = asyncio.Barrier(2)

    async def act(quiet: DemoStage) -> str:
        quiet.say("a detail")
        quiet.payment_ids.append("pay_1")
        await both.wait()  # would block forever if the acts ran one after another
        return "paid, by checkout cs_0123456789abcdef"

    await together(stage, "two acts", {"first": act, "second": act})
    line = "paid, by checkout cs_0123…"
    assert list_printed_lines(stage) == [f"  ✓ first: {line}", f"  ✓ second: {line}"]
    assert len(stage.payment_ids) == 2


async def test_failed_acts_are_reported_after_the_rest_have_ended(stage: DemoStage) -> None:
    over = asyncio.Event()

    async def fails(_: DemoStage) -> str:
        over.set()
        raise StepError("status is PAID, expected REFUNDED")

    async def misread(_: DemoStage) -> str:
        raise KeyError("refunded_amount")

    async def ends(_: DemoStage) -> str:
        await over.wait()
        return "REFUNDED"

    with pytest.raises(StepError) as refused:
        await together(stage, "acts", {"stripe": fails, "ecpay": misread, "2c2p": ends})
    assert str(refused.value).startswith("stripe: status is PAID, expected REFUNDED; ecpay: ")
    assert list_printed_lines(stage) == ["  ✓ 2c2p: REFUNDED"]


async def test_a_bug_in_the_demo_is_not_reported_as_a_failed_step(stage: DemoStage) -> None:
    async def buggy(_: DemoStage) -> str:
        raise AttributeError("no such thing")

    with pytest.raises(AttributeError):
        await together(stage, "a bug", {"first": buggy})
