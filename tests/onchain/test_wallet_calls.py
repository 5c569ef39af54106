"""The contract accepts the calls that the wallet route returns, on a real chain."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from eth_abi import decode

from payintent_sandbox.chains.anvil import Anvil
from payintent_sandbox.chains.anvil_binary import Binary
from tests.support.onchain import ChainWorld, chain_world, session_path
from tests.support.world import Answer, Api

pytestmark = pytest.mark.full

_AMOUNT = 25_500_000  # of USDT with 6 decimals


@pytest.fixture
async def ground(api: Api, chain_url: str) -> AsyncIterator[ChainWorld]:
    async with chain_world(api.world, chain_url) as ground:
        yield ground


async def _run_check(ground: ChainWorld, check: dict[str, str], payer: str, kind: str) -> Any:
    """Run a check of the route on the chain, with the payer filled in."""
    if check.get("method") == "eth_getBalance":
        return int(await ground.chain.ask("eth_getBalance", payer, "latest"), 16)
    data = check["data"].replace("{payer}", payer[2:].lower())
    result = await ground.chain.ask("eth_call", {"to": check["to"], "data": data}, "latest")
    return decode([kind], bytes.fromhex(result[2:]))[0]


async def _run_checks(ground: ChainWorld, view: dict[str, Any]) -> dict[str, Any]:
    kinds = {"balance": "uint256", "allowance": "uint256", "already_paid": "bool"}
    checks = view["checks"].items()
    return {
        name: await _run_check(ground, check, ground.payer, kinds[name]) for name, check in checks
    }


def _select_steps(view: dict[str, Any], results: dict[str, Any]) -> list[dict[str, Any]]:
    """Select the steps as the route's documentation describes."""
    allowance, amount = results.get("allowance", 0), int(view["amount_smallest_unit"])
    conditions = {
        "always": True,
        "allowance_lt_amount": allowance < amount,
        "allowance_nonzero_lt_amount": 0 < allowance < amount,
    }
    return [step for step in view["steps"] if conditions[step["when"]]]


async def _fetch_view(api: Api, session: Any) -> dict[str, Any]:
    response = await api.send("GET", session_path(session))
    assert response.status == 200, response.body
    return response.json


async def _post(api: Api, session: Any, tx_hash: str) -> Answer:
    body = {"tx_hash": tx_hash, "step": "pay"}
    return await api.send("POST", f"{session_path(session)}/transactions", json=body)


@pytest.mark.parametrize("token", ["USDT", "NATIVED"])
async def test_sending_the_steps_from_the_route_completes_the_payment(
    api: Api, ground: ChainWorld, token: str
) -> None:
    payment, session = await ground.bill(token)
    view = await _fetch_view(api, session)
    before = await _run_checks(ground, view)
    amount = int(view["amount_smallest_unit"])
    assert (before["balance"] >= amount, before["already_paid"]) == (True, False)
    steps = _select_steps(view, before)
    assert [step["kind"] for step in steps] == (
        ["pay"] if token == "NATIVED" else ["approve", "pay"]
    )
    for step in steps[:-1]:
        await ground.send(step)
    call = {name: steps[-1][name] for name in ("to", "data", "value")} | {"from": ground.payer}
    assert await ground.chain.ask("eth_call", call, "latest") == "0x"
    tx_hash = await ground.send(steps[-1])
    assert (await _run_checks(ground, view))["already_paid"] is True

    assert (await _post(api, session, tx_hash)).status == 202
    await ground.catch_up()
    after = await _fetch_view(api, session)
    assert after["transactions"] == [{"tx_hash": tx_hash, "step": "pay", "state": "sighted"}]
    assert (after["status"], after["payable"]) == ("detected", False)
    assert (after["confirmations"]["seen"], after["confirmations"]["needed"]) == (1, 2)
    await ground.mine(1)
    await ground.catch_up()
    assert (await _fetch_view(api, session))["status"] == "confirming"
    await ground.mine(3)
    await ground.catch_up()
    assert await ground.status(payment) == "PAID"
    assert (await api.send("GET", session_path(session))).status == 410


async def test_a_different_amount_is_shown_as_a_mismatch(api: Api, ground: ChainWorld) -> None:
    _, session = await ground.bill("NATIVED")
    [step] = (await _fetch_view(api, session))["steps"]
    amount = int(step["value"], 16)
    less = {
        "value": hex(amount - 1),
        "data": step["data"].replace(f"{amount:064x}", f"{amount - 1:064x}"),
    }
    await ground.send(step | less)
    await ground.catch_up()
    after = await _fetch_view(api, session)
    assert (after["status"], after["payable"]) == ("mismatch", True)
    assert [transaction["state"] for transaction in after["transactions"]] == ["mismatch"]


@pytest.fixture
def ethereum(anvil: Binary, tmp_path: Path) -> Iterator[str]:
    """A chain like Ethereum: its USDT allows an allowance to change only from or to zero."""
    chain = Anvil(1, log=tmp_path / "ethereum.log", binary=anvil)
    yield chain.start()
    chain.stop()


async def test_a_token_that_requires_a_zero_allowance_has_three_steps(
    api: Api, ethereum: str
) -> None:
    async with chain_world(api.world, ethereum, "ethereum") as ground:
        _, session = await ground.bill("USDT")
        view = await _fetch_view(api, session)
        assert view["amount_smallest_unit"] == str(_AMOUNT)
        approve = next(step for step in view["steps"] if step["kind"] == "approve")
        old_allowance = approve["data"].replace(f"{_AMOUNT:064x}", f"{_AMOUNT - 1:064x}")
        await ground.send(approve | {"data": old_allowance})
        steps = _select_steps(view, await _run_checks(ground, view))
        assert [step["kind"] for step in steps] == ["approve_reset", "approve", "pay"]
        for step in steps:
            await ground.send(step)
        after = await _run_checks(ground, view)
        assert (after["already_paid"], after["allowance"]) == (True, 0)
