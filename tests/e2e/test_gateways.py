"""The sandbox's emulators run, are restarted, and refund their payments."""

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
from tests.support.patience import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.full]

BESIDE = ["stripe", "ecpay", "2c2p"]


@pytest.fixture
async def stage(sandbox: Sandbox, http: aiohttp.ClientSession) -> DemoStage:
    told = read_sandbox(sandbox.var_dir / "dev.json")
    return DemoStage(sandbox=told, http=http, console=Console(file=sys.stdout))


async def test_dev_json_names_gateways_that_answer(
    sandbox: Sandbox, http: aiohttp.ClientSession
) -> None:
    assert sandbox.told["gateways"] == {
        name: {"url": f"http://127.0.0.1:{sandbox.port_base + 8 + place}"}
        for place, name in enumerate(BESIDE)
    }
    for gateway in sandbox.told["gateways"].values():
        async with http.get(f"{gateway['url']}/healthz") as answer:
            assert answer.status == 200
    listed = sandbox.output.read_text()
    assert all(item["url"] in listed for item in sandbox.told["gateways"].values())


async def test_a_buyer_in_taiwan_may_choose_among_all_gateways_the_simulator_first(
    stage: DemoStage,
) -> None:
    payment = await stage.create("1200.00", "TWD", "A map of Taipei")
    answer = await stage.call("GET", f"/checkout/{payment['checkout_id']}/quotes")
    offered = [quote["provider"] for quote in answer["quotes"] if quote["kind"] != "onchain"]
    assert offered == ["simulator", "simulator", *BESIDE]


async def test_every_gateway_gives_back_in_two_parts(stage: DemoStage) -> None:
    await refund_with_each(stage)  # it looks at webhooks, refunds and statuses itself
    assert len(stage.payment_ids) == 1 + len(BESIDE) + bool(stage.sandbox.chains)


async def test_declines_and_refunds_that_go_otherwise_end_as_they_must(stage: DemoStage) -> None:
    await decline_three_times(stage)
    await refund_otherwise(stage)


async def test_a_day_with_a_lost_dispute_and_a_payout_ends_in_statements(stage: DemoStage) -> None:
    await lose_a_dispute(stage)
    await pay_out(stage)
    await state_the_day(stage)
    found = await stage.call("GET", "/statements", keyed=True)
    stated = {item["currency"]: item for item in found["data"] if "chain" not in item}
    assert stated["USD"]["disputes"] == f"-{STRIPE.amount}"
    assert stated["THB"]["payouts"] == "-1000.00"
    await state_the_day(stage)  # a day without entries is closed too, and has no statement
    again = await stage.call("GET", "/statements", keyed=True)
    assert again == found


async def test_a_gateway_that_dies_is_there_again_with_the_keys_that_it_had(
    sandbox: Sandbox, stage: DemoStage
) -> None:
    killed = process_of(sandbox, STRIPE.provider)
    assert killed, "a signal to 0 would kill this test's own processes"
    os.kill(killed, signal.SIGKILL)
    await wait_until(
        lambda: process_of(sandbox, STRIPE.provider) not in {0, killed}, "another one runs"
    )

    async def answers() -> bool:
        try:
            async with stage.http.get(f"{stage.sandbox.gateways['stripe'].url}/healthz") as answer:
                return answer.status == 200
        except aiohttp.ClientError:
            return False

    await wait_until(answers, "it answers")
    await decline_three_times(stage)  # selected with our key there, told with its secret here


def process_of(sandbox: Sandbox, name: str) -> int:
    """Return a gateway's process id, or 0 if it is not running."""
    for pid in children_of(sandbox.pid):
        if f"payintent_sandbox.emulators.{name} " in command_line(pid):
            return pid
    return 0
