"""A wallet replaces its transaction, to speed it up or cancel it, so its hash is not mined."""

from collections.abc import AsyncIterator

import pytest
from playwright.async_api import BrowserContext, expect
from pytest_asyncio import fixture

from payintent_sandbox.chains.rpc import DevChainRpc
from tests.support.onchain import ChainWorld
from tests.web.sdk_desk import Desk, until, wallet_session
from tests.web.till import Till
from tests.web.wallet import Wallet

LOOP = "session"
pytestmark = [pytest.mark.asyncio(loop_scope=LOOP), pytest.mark.full]

_PAY = """async ([checkoutId, sessionId]) => {
  const [{ provider }] = await sdk.onchain.discover();
  const session = await sdk.onchain.session(sessionId);
  return sdk.onchain.pay({ checkoutId, session, provider });
}"""


@fixture(loop_scope=LOOP)
async def chain(
    ground: ChainWorld, buyer: BrowserContext, wallet: Wallet
) -> AsyncIterator[DevChainRpc]:
    """A chain that mines blocks only on request."""
    await wallet.stand_in(buyer)
    await ground.chain.ask("evm_setAutomine", False)
    yield ground.chain
    await ground.chain.ask("evm_setAutomine", True)


async def _replace(wallet: Wallet, count: int, *, cancel: bool = False) -> None:
    """Replace the last of this many transactions, once the page has seen it."""
    await until(lambda: len(wallet.hashes) >= count)
    await wallet.is_asked("eth_getTransactionCount", 1)
    sent = await wallet.chain.ask("eth_getTransactionByHash", wallet.hashes[-1])
    same = {"from": sent["from"], "to": sent["from"], "value": "0x0", "data": "0x"}
    if not cancel:
        same = {name: wallet.sent[-1][name] for name in ("from", "to", "value", "data")}
    fee = hex(3 * int(sent.get("maxFeePerGas") or sent["gasPrice"], 16))
    await wallet.chain.ask(
        "eth_sendTransaction",
        same | {"nonce": sent["nonce"], "maxFeePerGas": fee, "maxPriorityFeePerGas": fee},
    )
    assert await wallet.chain.ask("eth_getTransactionByHash", wallet.hashes[-1]) is None
    await wallet.chain.ask("anvil_mine", "0x1")


async def test_a_permission_and_a_payment_that_were_sped_up_are_noticed(
    till: Till, wallet: Wallet, chain: DevChainRpc
) -> None:
    payment, _ = await till.bill("USDT")
    await till.press()
    await _replace(wallet, 1)
    await _replace(wallet, 2)
    await till.says("is on the blockchain")
    assert len(wallet.sent) == 2
    await chain.ask("evm_setAutomine", True)
    await till.settle()
    await till.shows_paid(payment)


async def test_a_permission_that_was_cancelled_can_be_given_again(
    till: Till, wallet: Wallet, chain: DevChainRpc
) -> None:
    await till.bill("USDT")
    await till.press()
    await _replace(wallet, 1, cancel=True)
    await till.says("cancelled or replaced")
    await chain.ask("evm_setAutomine", True)
    await till.press()
    await till.says("is on the blockchain")
    assert len(wallet.sent) == 3


async def test_a_payment_that_was_cancelled_can_be_made_again(
    till: Till, wallet: Wallet, chain: DevChainRpc
) -> None:
    payment, session = await till.bill("NATIVED")
    await till.press()
    await till.posted(session)
    await _replace(wallet, 1, cancel=True)
    await till.says("cancelled or replaced")
    await expect(till.wallets).to_be_visible()
    await chain.ask("evm_setAutomine", True)
    await till.press()
    await till.says("is on the blockchain")
    await till.settle()
    await till.shows_paid(payment)


async def test_the_sdk_goes_on_when_a_permission_was_sped_up(
    desk: Desk, ground: ChainWorld, wallet: Wallet, chain: DevChainRpc
) -> None:
    await desk.open()
    await desk.start("result", _PAY, await wallet_session(ground, "USDT"))
    await _replace(wallet, 1)
    await _replace(wallet, 2)
    assert (await desk.ends("result"))["result"] == {"txHash": None}  # it has another hash
    assert len(wallet.sent) == 2


async def test_the_sdk_tells_that_a_payment_was_cancelled(
    desk: Desk, ground: ChainWorld, wallet: Wallet, chain: DevChainRpc
) -> None:
    await desk.open()
    await desk.start("result", _PAY, await wallet_session(ground, "NATIVED"))
    await _replace(wallet, 1, cancel=True)
    ended = await desk.ends("result")
    assert ended["error"]["code"] == "ONCHAIN_TX_FAILED"
    assert "cancelled" in ended["error"]["message"]
