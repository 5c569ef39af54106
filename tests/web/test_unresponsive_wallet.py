"""Test that the SDK never pays twice, and that an unresponsive wallet does not block it."""

import pytest
from playwright.async_api import BrowserContext

from payintent.core import ids
from payintent.payments.model import Session
from payintent_sandbox.chains.deploy import fund
from tests.support.onchain import ChainWorld
from tests.web.sdk_driver import SdkPage
from tests.web.wallet import Wallet

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.full]

_RECEIPT = "eth_getTransactionReceipt"
_PAY = """async ([checkoutId, sessionId]) => {
  const [{ provider }] = await sdk.onchain.discover();
  const session = await sdk.onchain.session(sessionId);
  return sdk.onchain.pay({ checkoutId, session, provider });
}"""


async def _pay_from_another_account(ground: ChainWorld, wallet: Wallet, session: Session) -> None:
    """Pay from a different account during the approval, and then confirm the approval."""
    await wallet.wait_for_call(_RECEIPT, 1)
    wallet.is_unblocked.clear()
    await ground.chain.ask("evm_setAutomine", True)
    ground.payer = (await ground.chain.ask("eth_accounts"))[6]
    assert ground.payer not in wallet.accounts
    await fund(ground.chain, ground.deployment, ground.payer)
    await ground.pay(session)
    wallet.is_unblocked.set()


async def test_the_sdk_does_not_pay_if_the_payment_is_paid_during_the_approval(
    sdk: SdkPage, buyer: BrowserContext, ground: ChainWorld, wallet: Wallet
) -> None:
    await wallet.install(buyer)
    await sdk.open()
    payment, session = await ground.bill("USDT", expires_in_s=86_400)
    await ground.chain.ask("evm_setAutomine", False)
    arguments = [payment.checkout_id, ids.format_id(ids.SESSION, session.id)]
    await sdk.start("result", _PAY, arguments)
    await _pay_from_another_account(ground, wallet, session)
    assert (await sdk.result_of("result"))["result"] == {"txHash": None}
    assert len(wallet.transactions) == 1


async def test_the_sdk_stops_waiting_if_a_wallet_never_returns_a_receipt(
    sdk: SdkPage, buyer: BrowserContext, ground: ChainWorld, wallet: Wallet
) -> None:
    await wallet.install(buyer)
    await sdk.page.clock.install()
    await sdk.open()
    wallet.silent_methods = {_RECEIPT}
    payment, session = await ground.bill("NATIVED", expires_in_s=86_400)
    arguments = [payment.checkout_id, ids.format_id(ids.SESSION, session.id)]
    await sdk.start("result", _PAY, arguments)
    await sdk.page.clock.run_for(1_000)  # wallets announce themselves
    await wallet.wait_for_call(_RECEIPT, 1)
    await sdk.page.clock.fast_forward("05:00")
    assert (await sdk.result_of("result"))["result"] == {"txHash": wallet.hashes[0]}
