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


def play(var_dir: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "payintent_sandbox.demo"]
    variables = os.environ | {"VAR_DIR": str(var_dir)}
    return subprocess.run(command, env=variables, capture_output=True, text=True, check=False)


def describe(var_dir: Path, **changes: object) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    merchant = {"id": 1, "name": "Shop", "api_key": "sk_live_x", "callback_secret": SECRET}
    described = {
        "api_url": f"{url}/v1",
        "simulator_url": url,
        "shop_url": url,
        "merchants": [merchant],
    }
    (var_dir / "dev.json").write_text(json.dumps(described | changes))


def test_without_a_sandbox_the_demo_says_how_to_start_one(tmp_path: Path) -> None:
    done = play(tmp_path)
    assert done.returncode == 1
    assert done.stderr == f"demo: {tmp_path}/dev.json is missing: start `make dev` first\n"


def test_a_sandbox_that_is_gone_is_told_in_one_line(tmp_path: Path) -> None:
    describe(tmp_path)
    done = play(tmp_path)
    assert done.returncode == 1
    assert "start `make dev` first" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_description_of_another_shape_is_refused_without_its_secrets(tmp_path: Path) -> None:
    for changes in ({"merchants": [{"callback_secret": SECRET}]}, {"merchants": []}):
        describe(tmp_path, **changes)
        done = play(tmp_path)
        assert done.returncode == 1
        assert done.stderr.count("\n") == 1
        assert "very-secret" not in done.stderr


def test_checkout_ids_are_masked_wherever_they_stand() -> None:
    shown = masked("POST /checkout/cs_0123456789abcdef/quotes, cs_ZYXWvutsrqponmlk")
    assert shown == "POST /checkout/cs_0123…/quotes, cs_ZYXW…"


def test_a_sandbox_without_chains_and_other_gateways_can_be_played_on(tmp_path: Path) -> None:
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


def printed(stage: DemoStage) -> list[str]:
    assert isinstance(stage.console.file, io.StringIO)
    return stage.console.file.getvalue().splitlines()


async def test_acts_are_played_at_the_same_time_and_told_in_a_line_each(stage: DemoStage) -> None:
    both = asyncio.Barrier(2)

    async def act(quiet: DemoStage) -> str:
        quiet.say("a step that nobody need read")
        quiet.payment_ids.append("pay_1")
        await both.wait()  # one after the other would wait for ever
        return "paid, by checkout cs_0123456789abcdef"

    await together(stage, "two acts", {"one": act, "other": act})
    line = "paid, by checkout cs_0123…"
    assert printed(stage) == [f"  ✓ one: {line}", f"  ✓ other: {line}"]
    assert len(stage.payment_ids) == 2


async def test_an_act_that_fails_is_named_after_the_others_have_ended(stage: DemoStage) -> None:
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
    assert printed(stage) == ["  ✓ 2c2p: REFUNDED"]


async def test_a_bug_of_the_demo_is_no_step_that_went_otherwise(stage: DemoStage) -> None:
    async def buggy(_: DemoStage) -> str:
        raise AttributeError("no such thing")

    with pytest.raises(AttributeError):
        await together(stage, "a bug", {"one": buggy})
