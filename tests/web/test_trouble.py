"""Test that wallet problems are explained and that the buyer can continue."""

import pytest
from playwright.async_api import BrowserContext, Route, expect

from payintent.evm import abi
from tests.web.till import Till
from tests.web.wallet import ELSEWHERE, REJECTED, Wallet, WalletError

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.full]

_SEND = "eth_sendTransaction"
_CONNECT = "eth_requestAccounts"


async def test_a_buyer_who_rejects_a_wallet_request_can_try_again(
    till: Till, buyer: BrowserContext, wallet: Wallet
) -> None:
    await wallet.install(buyer)
    wallet.network_id, wallet.known_chains = ELSEWHERE, {ELSEWHERE, wallet.own_network_id}
    _, session = await till.bill("NATIVED")
    declined = WalletError(REJECTED, "User rejected the request.")
    for method, text in (
        (_CONNECT, "You rejected the request"),
        ("wallet_switchEthereumChain", "Your wallet is on a different network"),
        (_SEND, "You rejected the request"),
    ):
        wallet.refusals = {method: declined}
        await till.click_wallet()
        await till.expect_text(text)
        await expect(till.wallets).to_be_enabled()
    assert wallet.transactions == []
    await till.click_wallet()
    await till.expect_text("is on the blockchain")
    assert len(await till.wait_for_posted(session)) == 1


async def test_wallet_errors_are_explained(
    till: Till, buyer: BrowserContext, wallet: Wallet
) -> None:
    await wallet.install(buyer)
    await till.bill("NATIVED")
    for method, code, message, text in (
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
        wallet.refusals = {method: WalletError(code, message)}
        await till.click_wallet()
        await till.expect_text(text)
        await expect(till.wallets).to_be_enabled()


async def test_insufficient_funds_are_reported_before_a_transaction_is_sent(
    till: Till, buyer: BrowserContext, wallet: Wallet
) -> None:
    await wallet.install(buyer)
    wallet.accounts = ["0x" + "11" * 20]
    await till.bill("USDT")
    await till.click_wallet()
    await till.expect_text("does not have enough USDT")
    assert wallet.count_calls(_SEND) == 0
    await expect(till.wallets).to_be_enabled()


async def test_repeated_clicks_send_a_single_wallet_request(
    till: Till, buyer: BrowserContext, wallet: Wallet
) -> None:
    await wallet.install(buyer)
    _, session = await till.bill("NATIVED")
    await expect(till.wallets).to_be_enabled()
    wallet.is_unblocked.clear()
    await till.wallets.evaluate("button => { button.click(); button.click(); button.click(); }")
    await expect(till.wallets).to_be_disabled()
    await till.wallets.dispatch_event("click")
    wallet.is_unblocked.set()
    await till.expect_text("is on the blockchain")
    await till.wait_for_posted(session)
    assert (wallet.count_calls(_CONNECT), len(wallet.transactions)) == (1, 1)


async def test_a_sent_payment_is_not_offered_again_after_a_reload(
    till: Till, buyer: BrowserContext, wallet: Wallet
) -> None:
    await wallet.install(buyer)
    payment, session = await till.bill("NATIVED")
    await till.ground.chain.ask("evm_setAutomine", False)
    posting = "**/transactions"

    async def lost(route: Route) -> None:
        await route.abort()

    await till.page.route(posting, lost)
    await till.click_wallet()
    await till.expect_text("It is not on the blockchain yet")
    await till.page.reload()
    await till.expect_text("It is not on the blockchain yet")
    await expect(till.wallets).to_be_hidden()
    assert (await till.ground.view(session))["transactions"] == []
    await till.page.unroute(posting)
    assert await till.wait_for_posted(session)  # the page posts it again
    await till.ground.chain.ask("evm_setAutomine", True)
    await till.finalize()
    await till.expect_paid(payment)
    assert len(wallet.transactions) == 1


async def test_another_tab_offers_a_sent_payment_again_only_after_a_delay(
    till: Till, buyer: BrowserContext, wallet: Wallet
) -> None:
    await wallet.install(buyer)
    _, session = await till.bill("NATIVED")
    await till.ground.chain.ask("evm_setAutomine", False)
    await till.click_wallet()
    await till.wait_for_posted(session)
    second_till = Till(till.ground, await buyer.new_page())
    await second_till.page.clock.install()
    await second_till.page.goto(till.page.url)
    await second_till.expect_text("It is not on the blockchain yet")
    await expect(second_till.wallets).to_be_hidden()
    await second_till.page.clock.fast_forward("05:00")
    await second_till.expect_text("The blockchain is slow")
    await second_till.page.get_by_role("button", name="Pay again").click()
    await expect(second_till.wallets).to_be_enabled()


async def test_a_reverted_payment_is_explained_and_can_be_repeated(
    till: Till, buyer: BrowserContext, wallet: Wallet
) -> None:
    await wallet.install(buyer)
    payment, session = await till.bill("NATIVED")
    wallet.overrides = {"gas": hex(60_000)}
    await till.click_wallet()
    await till.expect_text("The network rejected the transaction")
    await expect(till.wallets).to_be_enabled()
    await till.wait_for_posted(session)
    async with till.page.expect_response(lambda response: "/onchain/sessions/" in response.url):
        await till.poll_now()
    # The service has not scanned the transaction yet.
    await till.expect_text("The network rejected")
    await expect(till.wallets).to_be_enabled()
    await till.ground.look()
    view = await till.ground.view(session)
    assert [transaction["state"] for transaction in view["transactions"]] == ["reverted"]
    wallet.overrides = {}
    await till.click_wallet()
    await till.expect_text("is on the blockchain")
    await till.finalize()
    await till.expect_paid(payment)


async def test_a_payment_through_another_contract_is_not_reported_as_rejected(
    till: Till, buyer: BrowserContext, wallet: Wallet
) -> None:
    await wallet.install(buyer)
    await till.page.clock.install()
    _, session = await till.bill("NATIVED")
    await till.ground.chain.ask("evm_setAutomine", False)
    wallet.overrides = {"to": "0x" + 40 * "5"}
    await till.click_wallet()
    await till.wait_for_posted(session)
    await till.ground.look()
    view = await till.ground.view(session)
    assert [transaction["state"] for transaction in view["transactions"]] == ["foreign"]
    async with till.page.expect_response(lambda response: "/onchain/sessions/" in response.url):
        await till.poll_now()
    await till.expect_text("It is not on the blockchain yet")
    await expect(till.wallets).to_be_hidden()
    await till.ground.chain.ask("evm_setAutomine", True)
    await till.ground.mine(1)
    await till.expect_text("is on the blockchain")
    await till.page.clock.fast_forward("05:00")
    await till.expect_text("The blockchain is slow")  # the transaction did not pay
    await till.page.get_by_role("button", name="Pay again").click()
    await expect(till.wallets).to_be_enabled()


async def test_a_payment_that_was_made_elsewhere_is_not_repeated(
    till: Till, buyer: BrowserContext, wallet: Wallet
) -> None:
    await wallet.install(buyer)
    _, session = await till.bill("NATIVED")
    await expect(till.wallets).to_be_enabled()
    await till.ground.pay(session)
    await till.click_wallet()
    await till.expect_text("This payment has already been made")
    assert wallet.transactions == []


async def test_the_payment_waits_until_the_approval_is_confirmed(
    till: Till, buyer: BrowserContext, wallet: Wallet
) -> None:
    await wallet.install(buyer)
    _, session = await till.bill("USDT")
    await till.ground.chain.ask("evm_setAutomine", False)
    await till.click_wallet()
    await till.expect_text("We’re waiting for the network to confirm your approval")
    await wallet.wait_for_call("eth_getTransactionReceipt", 4)
    assert len(wallet.transactions) == 1
    await till.ground.chain.ask("evm_setAutomine", True)
    await till.ground.mine(1)
    await till.expect_text("is on the blockchain")
    assert len(wallet.transactions) == 2
    assert await till.wait_for_posted(session) == [wallet.hashes[1]]


async def test_a_reduced_allowance_is_not_used_for_a_payment(
    till: Till, buyer: BrowserContext, wallet: Wallet
) -> None:
    await wallet.install(buyer)
    _, session = await till.bill("USDT")
    spender = bytes.fromhex((await till.ground.view(session))["contract_address"][2:])
    wallet.overrides = {"data": f"0x{abi.encode_approve(spender, 7).hex()}"}
    await till.click_wallet()
    await till.expect_text("Please approve the full amount")
    assert len(wallet.transactions) == 1


async def test_a_wallet_with_a_wrong_node_is_asked_to_check_its_settings(
    till: Till, buyer: BrowserContext, wallet: Wallet
) -> None:
    await wallet.install(buyer)
    await till.bill("NATIVED")
    await till.ground.chain.ask("anvil_setCode", till.ground.deployment.contract_address, "0x")
    await till.click_wallet()
    await till.expect_text("Please check its network settings")
    assert wallet.transactions == []


async def test_a_wallet_that_falsely_reports_a_network_switch_is_not_used(
    till: Till, buyer: BrowserContext, wallet: Wallet
) -> None:
    await wallet.install(buyer)
    wallet.network_id, wallet.known_chains, wallet.ignores_switch = (
        ELSEWHERE,
        {ELSEWHERE, wallet.own_network_id},
        True,
    )
    await till.bill("NATIVED")
    await till.click_wallet()
    await till.expect_text("Your wallet is on a different network")
    assert wallet.transactions == []


async def test_a_wallet_that_leaves_the_network_is_switched_back_before_it_pays(
    till: Till, buyer: BrowserContext, wallet: Wallet
) -> None:
    await wallet.install(buyer)
    wallet.leaves_network_after = "eth_getBalance"
    await till.bill("NATIVED")
    await till.click_wallet()
    await till.expect_text("is on the blockchain")
    assert wallet.count_calls("wallet_switchEthereumChain") == 1


async def test_a_wallet_payment_cannot_start_shortly_before_the_deadline(
    till: Till, buyer: BrowserContext, wallet: Wallet
) -> None:
    await wallet.install(buyer)
    await till.bill("NATIVED")
    await expect(till.wallets).to_be_enabled()
    await till.ground.pass_time(1800 - 59)
    await till.click_wallet()
    await till.expect_text("can no longer be made here")
    await expect(till.wallets).to_be_hidden()
    assert wallet.calls == []
