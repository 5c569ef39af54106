"""The SDK never pays twice, and an unresponsive wallet does not block it."""

import pytest
from playwright.async_api import BrowserContext

from payintent.core import ids
from payintent.payments.model import Session
from payintent_sandbox.chains.deploy import fund
from tests.support.onchain import ChainWorld
from tests.web.sdk_desk import Desk
from tests.web.wallet import Wallet

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.full]

_RECEIPT = "eth_getTransactionReceipt"
_PAY = """async ([checkoutId, sessionId]) => {
  const [{ provider }] = await sdk.onchain.discover();
  const session = await sdk.onchain.session(sessionId);
  return sdk.onchain.pay({ checkoutId, session, provider });
}"""


async def _pay_by_another(ground: ChainWorld, wallet: Wallet, session: Session) -> None:
    """Pay from another account while the wallet waits for permission, which it then gets."""
    await wallet.is_asked(_RECEIPT, 1)
    wallet.answers.clear()
    await ground.chain.ask("evm_setAutomine", True)
    ground.payer = (await ground.chain.ask("eth_accounts"))[6]
    assert ground.payer not in wallet.accounts
    await fund(ground.chain, ground.deployment, ground.payer)
    await ground.pay(session)
    wallet.answers.set()


async def test_the_sdk_does_not_pay_what_was_paid_while_a_permission_was_given(
    desk: Desk, buyer: BrowserContext, ground: ChainWorld, wallet: Wallet
) -> None:
    await wallet.stand_in(buyer)
    await desk.open()
    payment, session = await ground.bill("USDT", expires_in_s=86_400)
    await ground.chain.ask("evm_setAutomine", False)
    given = [payment.checkout_id, ids.format_id(ids.SESSION, session.id)]
    await desk.start("result", _PAY, given)
    await _pay_by_another(ground, wallet, session)
    assert (await desk.ends("result"))["result"] == {"txHash": None}
    assert len(wallet.sent) == 1


async def test_the_sdk_gives_up_waiting_where_a_wallet_never_tells_of_a_transaction(
    desk: Desk, buyer: BrowserContext, ground: ChainWorld, wallet: Wallet
) -> None:
    await wallet.stand_in(buyer)
    await desk.page.clock.install()
    await desk.open()
    wallet.silent = {_RECEIPT}
    payment, session = await ground.bill("NATIVED", expires_in_s=86_400)
    given = [payment.checkout_id, ids.format_id(ids.SESSION, session.id)]
    await desk.start("result", _PAY, given)
    await desk.page.clock.run_for(1_000)  # wallets announce themselves
    await wallet.is_asked(_RECEIPT, 1)
    await desk.page.clock.fast_forward("05:00")
    assert (await desk.ends("result"))["result"] == {"txHash": wallet.hashes[0]}
