"""The gas costs of our contracts. They do not depend on the machine, only on the code."""

import asyncio
import re

import pytest
from rich.console import Console

from bench import gas
from payintent_sandbox.chains.anvil_binary import Binary
from tests.docs.parse_pages import page, section
from tests.support.chain import fetched_anvil

pytestmark = pytest.mark.full

CEILINGS = {
    "deploy with 3 tokens": 920_000,
    "pay USDT": 80_500,
    "pay USDC": 74_000,
    "pay the native coin": 61_500,
    "refund USDT": 81_500,
    "refund the native coin": 62_500,
    "sweep USDT": 42_000,
    "pay too late (mined, reverted)": 32_500,
}


@pytest.fixture(scope="module")
def anvil() -> Binary:
    return fetched_anvil()


@pytest.fixture(scope="module")
def report(anvil: Binary) -> gas.GasReport:
    del anvil
    return asyncio.run(gas.measure())


def test_no_call_uses_more_gas_than_before(report: gas.GasReport) -> None:
    costs = {item.name: item.later or item.first for item in report.gateway}

    assert {name: cost for name, cost in costs.items() if cost > CEILINGS.get(name, 50_000)} == {}
    assert set(CEILINGS) < set(costs)


def test_the_documented_deposit_gas_matches_the_measurement(report: gas.GasReport) -> None:
    text = section(page("docs/operate/gateways/onchain.md"), "## Cost in gas")
    documented = {
        step: [int(cost.replace(",", "")) for cost in re.findall(r"[\d,]+", costs)]
        for step, costs in re.findall(r"^\| (.+?) \| (\d.+) \|$", text, re.MULTILINE)
    }
    assert documented == {
        deposit.name: pytest.approx(
            [cost for cost in (deposit.first, deposit.later) if cost], rel=0.005
        )
        for deposit in report.deposits
    }


def test_the_costs_are_printed(report: gas.GasReport, capsys: pytest.CaptureFixture[str]) -> None:
    gas.print_report(Console(width=100), report)
    printed = capsys.readouterr().out
    for item in (*report.gateway, *report.deposits):
        assert f"{item.name} " in printed
        assert f"{item.first:,}" in printed
