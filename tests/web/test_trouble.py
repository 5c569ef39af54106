"""Problems between a page and a wallet are explained, and the buyer can continue."""

import pytest
from playwright.async_api import BrowserContext, Route, expect

from payintent.evm import abi
from tests.web.till import Till
from tests.web.wallet import ELSEWHERE, REJECTED, Wallet, WalletError

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.full]

_SEND = "eth_sendTransaction"
_CONNECT = "eth_requestAccounts"


async def test_a_buyer_who_declines_can_try_again_at_each_question(
    till: Till, buyer: BrowserContext, wallet: Wallet
) -> None:
    await wallet.stand_in(buyer)
    wallet.network_id, wallet.known = ELSEWHERE, {ELSEWHERE, wallet.own}
    _, session = await till.bill("NATIVED")
    declined = WalletError(REJECTED, "User rejected the request.")
    for method, told in (
        (_CONNECT, "You rejected the request"),
        ("wallet_switchEthereumChain", "Your wallet is on a different network"),
        (_SEND, "You rejected the request"),
    ):
        wallet.refuses = {method: declined}
        await till.press()
        await till.says(told)
        await expect(till.wallets).to_be_enabled()
    assert wallet.sent == []
    await till.press()
    await till.says("is on the blockchain")
    assert len(await till.posted(session)) == 1


async def test_other_errors_of_wallets_are_told_in_words(
    till: Till, buyer: BrowserContext, wallet: Wallet
) -> None:
    await wallet.stand_in(buyer)
    await till.bill("NATIVED")
    for method, code, message, told in (
        (_CONNECT, -32002, "Already processing eth_requestAccounts.", "pending request"),
        (_CONNECT, 4100, "Unauthorized", "has not given this page access to that account"),
        (
            _SEND,
            -32000,
            "insufficient funds for gas * price + value",
            "does not have enough funds for the amount",
        ),
        (_SEND, -32603, "Internal JSON-RPC error.", "couldn’t complete the request"),
    ):
        wallet.refuses = {method: WalletError(code, message)}
        await till.press()
        await till.says(told)
        await expect(till.wallets).to_be_enabled()


async def test_an_account_with_too_little_is_told_before_anything_is_sent(
    till: Till, buyer: BrowserContext, wallet: Wallet
) -> None:
    await wallet.stand_in(buyer)
    wallet.accounts = ["0x" + "11" * 20]
    await till.bill("USDT")
    await till.press()
    await till.says("does not have enough USDT")
    assert wallet.times(_SEND) == 0
    await expect(till.wallets).to_be_enabled()


async def test_a_wallet_is_asked_once_however_often_its_button_is_pressed(
    till: Till, buyer: BrowserContext, wallet: Wallet
) -> None:
    await wallet.stand_in(buyer)
    _, session = await till.bill("NATIVED")
    await expect(till.wallets).to_be_enabled()
    wallet.answers.clear()
    await till.wallets.evaluate("button => { button.click(); button.click(); button.click(); }")
    await expect(till.wallets).to_be_disabled()
    await till.wallets.dispatch_event("click")
    wallet.answers.set()
    await till.says("is on the blockchain")
    await till.posted(session)
    assert (wallet.times(_CONNECT), len(wallet.sent)) == (1, 1)


async def test_a_payment_that_was_sent_is_not_offered_again_by_a_reload(
    till: Till, buyer: BrowserContext, wallet: Wallet
) -> None:
    await wallet.stand_in(buyer)
    payment, session = await till.bill("NATIVED")
    await till.ground.chain.ask("evm_setAutomine", False)
    posting = "**/transactions"

    async def lost(route: Route) -> None:
        await route.abort()

    await till.page.route(posting, lost)
    await till.press()
    await till.says("It is not on the blockchain yet")
    await till.page.reload()
    await till.says("It is not on the blockchain yet")
    await expect(till.wallets).to_be_hidden()
    assert (await till.ground.view(session))["transactions"] == []
    await till.page.unroute(posting)
    assert await till.posted(session)  # told again
    await till.ground.chain.ask("evm_setAutomine", True)
    await till.settle()
    await till.shows_paid(payment)
    assert len(wallet.sent) == 1


async def test_another_tab_does_not_offer_what_this_one_has_sent_until_it_is_long_ago(
    till: Till, buyer: BrowserContext, wallet: Wallet
) -> None:
    await wallet.stand_in(buyer)
    _, session = await till.bill("NATIVED")
    await till.ground.chain.ask("evm_setAutomine", False)
    await till.press()
    await till.posted(session)
    other = Till(till.ground, await buyer.new_page())
    await other.page.clock.install()
    await other.page.goto(till.page.url)
    await other.says("It is not on the blockchain yet")
    await expect(other.wallets).to_be_hidden()
    await other.page.clock.fast_forward("05:00")
    await other.says("The blockchain is slow")
    await other.page.get_by_role("button", name="Pay again").click()
    await expect(other.wallets).to_be_enabled()


async def test_a_payment_that_the_chain_refuses_is_told_and_can_be_tried_again(
    till: Till, buyer: BrowserContext, wallet: Wallet
) -> None:
    await wallet.stand_in(buyer)
    payment, session = await till.bill("NATIVED")
    wallet.changes = {"gas": hex(60_000)}
    await till.press()
    await till.says("The network rejected the transaction")
    await expect(till.wallets).to_be_enabled()
    await till.posted(session)
    async with till.page.expect_response(lambda one: "/onchain/sessions/" in one.url):
        await till.hurry()
    await till.says("The network rejected")  # though the service does not know of it yet
    await expect(till.wallets).to_be_enabled()
    await till.ground.look()
    view = await till.ground.view(session)
    assert [transaction["state"] for transaction in view["transactions"]] == ["reverted"]
    wallet.changes = {}
    await till.press()
    await till.says("is on the blockchain")
    await till.settle()
    await till.shows_paid(payment)


async def test_a_wallet_that_pays_through_another_contract_is_not_told_that_it_was_refused(
    till: Till, buyer: BrowserContext, wallet: Wallet
) -> None:
    await wallet.stand_in(buyer)
    await till.page.clock.install()
    _, session = await till.bill("NATIVED")
    await till.ground.chain.ask("evm_setAutomine", False)
    wallet.changes = {"to": "0x" + 40 * "5"}
    await till.press()
    await till.posted(session)
    await till.ground.look()
    view = await till.ground.view(session)
    assert [transaction["state"] for transaction in view["transactions"]] == ["foreign"]
    async with till.page.expect_response(lambda one: "/onchain/sessions/" in one.url):
        await till.hurry()
    await till.says("It is not on the blockchain yet")
    await expect(till.wallets).to_be_hidden()
    await till.ground.chain.ask("evm_setAutomine", True)
    await till.ground.mine(1)
    await till.says("is on the blockchain")
    await till.page.clock.fast_forward("05:00")
    await till.says("The blockchain is slow")  # it paid nothing
    await till.page.get_by_role("button", name="Pay again").click()
    await expect(till.wallets).to_be_enabled()


async def test_a_payment_that_was_made_elsewhere_is_not_made_again(
    till: Till, buyer: BrowserContext, wallet: Wallet
) -> None:
    await wallet.stand_in(buyer)
    _, session = await till.bill("NATIVED")
    await expect(till.wallets).to_be_enabled()
    await till.ground.pay(session)
    await till.press()
    await till.says("This payment has already been made")
    assert wallet.sent == []


async def test_the_payment_waits_until_the_chain_knows_of_the_permission(
    till: Till, buyer: BrowserContext, wallet: Wallet
) -> None:
    await wallet.stand_in(buyer)
    _, session = await till.bill("USDT")
    await till.ground.chain.ask("evm_setAutomine", False)
    await till.press()
    await till.says("We’re waiting for the network to confirm your approval")
    await wallet.is_asked("eth_getTransactionReceipt", 4)
    assert len(wallet.sent) == 1
    await till.ground.chain.ask("evm_setAutomine", True)
    await till.ground.mine(1)
    await till.says("is on the blockchain")
    assert len(wallet.sent) == 2
    assert await till.posted(session) == [wallet.hashes[1]]


async def test_a_permission_that_the_buyer_made_smaller_is_not_paid_with(
    till: Till, buyer: BrowserContext, wallet: Wallet
) -> None:
    await wallet.stand_in(buyer)
    _, session = await till.bill("USDT")
    spender = bytes.fromhex((await till.ground.view(session))["contract_address"][2:])
    wallet.changes = {"data": f"0x{abi.encode_approve(spender, 7).hex()}"}
    await till.press()
    await till.says("Please approve the full amount")
    assert len(wallet.sent) == 1


async def test_a_wallet_whose_node_is_another_chain_is_told_to_look_at_its_settings(
    till: Till, buyer: BrowserContext, wallet: Wallet
) -> None:
    await wallet.stand_in(buyer)
    await till.bill("NATIVED")
    await till.ground.chain.ask("anvil_setCode", till.ground.deployment.contract_address, "0x")
    await till.press()
    await till.says("Please check its network settings")
    assert wallet.sent == []


async def test_a_wallet_that_says_it_has_switched_and_has_not_is_not_paid_from(
    till: Till, buyer: BrowserContext, wallet: Wallet
) -> None:
    await wallet.stand_in(buyer)
    wallet.network_id, wallet.known, wallet.stays = ELSEWHERE, {ELSEWHERE, wallet.own}, True
    await till.bill("NATIVED")
    await till.press()
    await till.says("Your wallet is on a different network")
    assert wallet.sent == []


async def test_a_wallet_that_was_switched_meanwhile_is_brought_back_before_it_pays(
    till: Till, buyer: BrowserContext, wallet: Wallet
) -> None:
    await wallet.stand_in(buyer)
    wallet.leaves_after = "eth_getBalance"
    await till.bill("NATIVED")
    await till.press()
    await till.says("is on the blockchain")
    assert wallet.times("wallet_switchEthereumChain") == 1


async def test_the_offer_to_pay_ends_before_the_time_does(
    till: Till, buyer: BrowserContext, wallet: Wallet
) -> None:
    await wallet.stand_in(buyer)
    await till.bill("NATIVED")
    await expect(till.wallets).to_be_enabled()
    await till.ground.pass_time(1800 - 59)
    await till.press()
    await till.says("can no longer be made here")
    await expect(till.wallets).to_be_hidden()
    assert wallet.asked == []
