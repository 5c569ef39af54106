"""Test the sandbox's gateway emulators: payments, refunds, statements and restarts."""

import os
import signal
import sys

import aiohttp
import pytest
from rich.console import Console

from payintent_sandbox.demo.books import lose_a_dispute, pay_out, state_the_day
from payintent_sandbox.demo.refunds import (
    STRIPE,
    decline_three_times,
    refund_otherwise,
    refund_with_each,
)
from payintent_sandbox.demo.stage import DemoStage, read_sandbox
from tests.e2e.sandbox import Sandbox, children_of, command_line
from tests.support.timeouts import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.full]

EMULATED = ["stripe", "ecpay", "2c2p"]


@pytest.fixture
async def stage(sandbox: Sandbox, http: aiohttp.ClientSession) -> DemoStage:
    description = read_sandbox(sandbox.var_dir / "dev.json")
    return DemoStage(sandbox=description, http=http, console=Console(file=sys.stdout))


async def test_dev_json_lists_the_running_gateways(
    sandbox: Sandbox, http: aiohttp.ClientSession
) -> None:
    assert sandbox.dev_json["gateways"] == {
        name: {"url": f"http://127.0.0.1:{sandbox.port_base + 8 + index}"}
        for index, name in enumerate(EMULATED)
    }
    for gateway in sandbox.dev_json["gateways"].values():
        async with http.get(f"{gateway['url']}/healthz") as answer:
            assert answer.status == 200
    output = sandbox.output.read_text()
    assert all(item["url"] in output for item in sandbox.dev_json["gateways"].values())


async def test_a_buyer_in_taiwan_can_choose_every_gateway_with_the_simulator_first(
    stage: DemoStage,
) -> None:
    payment = await stage.create("1200.00", "TWD", "A map of Taipei")
    answer = await stage.call("GET", f"/checkout/{payment['checkout_id']}/quotes")
    providers = [quote["provider"] for quote in answer["quotes"] if quote["kind"] != "onchain"]
    assert providers == ["simulator", "simulator", *EMULATED]


async def test_every_gateway_refunds_a_payment_in_two_parts(stage: DemoStage) -> None:
    await refund_with_each(stage)  # checks the webhooks, refunds and statuses
    assert len(stage.payment_ids) == 1 + len(EMULATED) + bool(stage.sandbox.chains)


async def test_declines_and_delayed_or_failed_refunds_end_correctly(stage: DemoStage) -> None:
    await decline_three_times(stage)
    await refund_otherwise(stage)


async def test_the_days_statements_contain_a_lost_dispute_and_a_payout(stage: DemoStage) -> None:
    await lose_a_dispute(stage)
    await pay_out(stage)
    await state_the_day(stage)
    response = await stage.call("GET", "/statements", keyed=True)
    statements = {item["currency"]: item for item in response["data"] if "chain" not in item}
    assert statements["USD"]["disputes"] == f"-{STRIPE.amount}"
    assert statements["THB"]["payouts"] == "-1000.00"
    await state_the_day(stage)  # a day without entries is closed without a statement
    second_response = await stage.call("GET", "/statements", keyed=True)
    assert second_response == response


async def test_a_killed_gateway_restarts_with_the_same_keys(
    sandbox: Sandbox, stage: DemoStage
) -> None:
    pid = process_of(sandbox, STRIPE.provider)
    assert pid, "a signal to process 0 would kill the test's processes"
    os.kill(pid, signal.SIGKILL)
    await wait_until(
        lambda: process_of(sandbox, STRIPE.provider) not in {0, pid},
        "the gateway has a new process",
    )

    async def is_healthy() -> bool:
        try:
            async with stage.http.get(f"{stage.sandbox.gateways['stripe'].url}/healthz") as answer:
                return answer.status == 200
        except aiohttp.ClientError:
            return False

    await wait_until(is_healthy, "the gateway responds")
    await decline_three_times(stage)  # requires the same API key and signing secret


def process_of(sandbox: Sandbox, name: str) -> int:
    """Return a gateway's process id, or 0 if it is not running."""
    for pid in children_of(sandbox.pid):
        if f"payintent_sandbox.emulators.{name} " in command_line(pid):
            return pid
    return 0
