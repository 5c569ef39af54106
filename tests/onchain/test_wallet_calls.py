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


async def _ask(ground: ChainWorld, question: dict[str, str], payer: str, kind: str) -> Any:
    """Run the route's checks on the chain, with the payer filled in."""
    if question.get("method") == "eth_getBalance":
        return int(await ground.chain.ask("eth_getBalance", payer, "latest"), 16)
    data = question["data"].replace("{payer}", payer[2:].lower())
    told = await ground.chain.ask("eth_call", {"to": question["to"], "data": data}, "latest")
    return decode([kind], bytes.fromhex(told[2:]))[0]


async def _answers(ground: ChainWorld, shown: dict[str, Any]) -> dict[str, Any]:
    kinds = {"balance": "uint256", "allowance": "uint256", "already_paid": "bool"}
    checks = shown["checks"].items()
    return {name: await _ask(ground, one, ground.payer, kinds[name]) for name, one in checks}


def _due(shown: dict[str, Any], answers: dict[str, Any]) -> list[dict[str, Any]]:
    """Select the steps as the route's documentation describes."""
    allowance, amount = answers.get("allowance", 0), int(shown["amount_smallest_unit"])
    holds = {
        "always": True,
        "allowance_lt_amount": allowance < amount,
        "allowance_nonzero_lt_amount": 0 < allowance < amount,
    }
    return [one for one in shown["steps"] if holds[one["when"]]]


async def _shown(api: Api, session: Any) -> dict[str, Any]:
    answer = await api.send("GET", session_path(session))
    assert answer.status == 200, answer.body
    return answer.json


async def _post(api: Api, session: Any, tx_hash: str) -> Answer:
    body = {"tx_hash": tx_hash, "step": "pay"}
    return await api.send("POST", f"{session_path(session)}/transactions", json=body)


@pytest.mark.parametrize("token", ["USDT", "NATIVED"])
async def test_who_follows_the_route_pays(api: Api, ground: ChainWorld, token: str) -> None:
    payment, session = await ground.bill(token)
    shown = await _shown(api, session)
    before = await _answers(ground, shown)
    amount = int(shown["amount_smallest_unit"])
    assert (before["balance"] >= amount, before["already_paid"]) == (True, False)
    due = _due(shown, before)
    assert [one["kind"] for one in due] == (["pay"] if token == "NATIVED" else ["approve", "pay"])
    for step in due[:-1]:
        await ground.send(step)
    call = {name: due[-1][name] for name in ("to", "data", "value")} | {"from": ground.payer}
    assert await ground.chain.ask("eth_call", call, "latest") == "0x"
    tx_hash = await ground.send(due[-1])
    assert (await _answers(ground, shown))["already_paid"] is True

    assert (await _post(api, session, tx_hash)).status == 202
    await ground.look()
    seen = await _shown(api, session)
    assert seen["transactions"] == [{"tx_hash": tx_hash, "step": "pay", "state": "sighted"}]
    assert (seen["status"], seen["payable"]) == ("detected", False)
    assert (seen["confirmations"]["seen"], seen["confirmations"]["needed"]) == (1, 2)
    await ground.mine(1)
    await ground.look()
    assert (await _shown(api, session))["status"] == "confirming"
    await ground.mine(3)
    await ground.look()
    assert await ground.status(payment) == "PAID"
    assert (await api.send("GET", session_path(session))).status == 410


async def test_another_amount_is_shown_as_one(api: Api, ground: ChainWorld) -> None:
    _, session = await ground.bill("NATIVED")
    [step] = (await _shown(api, session))["steps"]
    amount = int(step["value"], 16)
    less = {
        "value": hex(amount - 1),
        "data": step["data"].replace(f"{amount:064x}", f"{amount - 1:064x}"),
    }
    await ground.send(step | less)
    await ground.look()
    seen = await _shown(api, session)
    assert (seen["status"], seen["payable"]) == ("mismatch", True)
    assert [one["state"] for one in seen["transactions"]] == ["mismatch"]


@pytest.fixture
def ethereum(anvil: Binary, tmp_path: Path) -> Iterator[str]:
    """A chain that imitates Ethereum, whose USDT does not allow changing an allowance."""
    chain = Anvil(1, log=tmp_path / "ethereum.log", binary=anvil)
    yield chain.start()
    chain.stop()


async def test_a_token_that_wants_zero_first_gets_three_steps(api: Api, ethereum: str) -> None:
    async with chain_world(api.world, ethereum, "ethereum") as ground:
        _, session = await ground.bill("USDT")
        shown = await _shown(api, session)
        assert shown["amount_smallest_unit"] == str(_AMOUNT)
        approve = next(one for one in shown["steps"] if one["kind"] == "approve")
        stale = approve["data"].replace(f"{_AMOUNT:064x}", f"{_AMOUNT - 1:064x}")
        await ground.send(approve | {"data": stale})
        due = _due(shown, await _answers(ground, shown))
        assert [one["kind"] for one in due] == ["approve_reset", "approve", "pay"]
        for step in due:
            await ground.send(step)
        after = await _answers(ground, shown)
        assert (after["already_paid"], after["allowance"]) == (True, 0)
