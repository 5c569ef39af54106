"""Test replaced transactions: if a wallet speeds up or cancels a transaction, its hash changes."""

from collections.abc import AsyncIterator

import pytest
from playwright.async_api import BrowserContext, expect
from pytest_asyncio import fixture

from payintent_sandbox.chains.rpc import DevChainRpc
from tests.support.onchain import ChainWorld
from tests.web.sdk_driver import SdkPage, until, wallet_session
from tests.web.till import WalletCheckout
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
    await wallet.install(buyer)
    await ground.chain.ask("evm_setAutomine", False)
    yield ground.chain
    await ground.chain.ask("evm_setAutomine", True)


async def _replace(wallet: Wallet, count: int, *, cancel: bool = False) -> None:
    """Wait for `count` transactions, and replace the last while the page waits for it."""
    await until(lambda: len(wallet.hashes) >= count)
    await wallet.wait_for_call("eth_getTransactionCount", 1)
    original = await wallet.chain.ask("eth_getTransactionByHash", wallet.hashes[-1])
    replacement = {"from": original["from"], "to": original["from"], "value": "0x0", "data": "0x"}
    if not cancel:
        replacement = {
            name: wallet.transactions[-1][name] for name in ("from", "to", "value", "data")
        }
    fee = hex(3 * int(original.get("maxFeePerGas") or original["gasPrice"], 16))
    await wallet.chain.ask(
        "eth_sendTransaction",
        replacement
        | {"nonce": original["nonce"], "maxFeePerGas": fee, "maxPriorityFeePerGas": fee},
    )
    assert await wallet.chain.ask("eth_getTransactionByHash", wallet.hashes[-1]) is None
    await wallet.chain.ask("anvil_mine", "0x1")


async def test_a_sped_up_approval_and_a_sped_up_payment_are_detected(
    checkout: WalletCheckout, wallet: Wallet, chain: DevChainRpc
) -> None:
    payment, _ = await checkout.bill("USDT")
    await checkout.click_wallet()
    await _replace(wallet, 1)
    await _replace(wallet, 2)
    await checkout.expect_text("is on the blockchain")
    assert len(wallet.transactions) == 2
    await chain.ask("evm_setAutomine", True)
    await checkout.finalize()
    await checkout.expect_paid(payment)


async def test_a_cancelled_approval_can_be_repeated(
    checkout: WalletCheckout, wallet: Wallet, chain: DevChainRpc
) -> None:
    await checkout.bill("USDT")
    await checkout.click_wallet()
    await _replace(wallet, 1, cancel=True)
    await checkout.expect_text("cancelled or replaced")
    await chain.ask("evm_setAutomine", True)
    await checkout.click_wallet()
    await checkout.expect_text("is on the blockchain")
    assert len(wallet.transactions) == 3


async def test_a_cancelled_payment_can_be_repeated(
    checkout: WalletCheckout, wallet: Wallet, chain: DevChainRpc
) -> None:
    payment, session = await checkout.bill("NATIVED")
    await checkout.click_wallet()
    await checkout.wait_for_posted(session)
    await _replace(wallet, 1, cancel=True)
    await checkout.expect_text("cancelled or replaced")
    await expect(checkout.wallets).to_be_visible()
    await chain.ask("evm_setAutomine", True)
    await checkout.click_wallet()
    await checkout.expect_text("is on the blockchain")
    await checkout.finalize()
    await checkout.expect_paid(payment)


async def test_the_sdk_continues_after_a_sped_up_approval(
    sdk: SdkPage, ground: ChainWorld, wallet: Wallet, chain: DevChainRpc
) -> None:
    await sdk.open()
    await sdk.start("result", _PAY, await wallet_session(ground, "USDT"))
    await _replace(wallet, 1)
    await _replace(wallet, 2)
    # The replacement's hash is unknown.
    assert (await sdk.result_of("result"))["result"] == {"txHash": None}
    assert len(wallet.transactions) == 2


async def test_the_sdk_reports_a_cancelled_payment(
    sdk: SdkPage, ground: ChainWorld, wallet: Wallet, chain: DevChainRpc
) -> None:
    await sdk.open()
    await sdk.start("result", _PAY, await wallet_session(ground, "NATIVED"))
    await _replace(wallet, 1, cancel=True)
    outcome = await sdk.result_of("result")
    assert outcome["error"]["code"] == "ONCHAIN_TX_FAILED"
    assert "cancelled" in outcome["error"]["message"]
