"""Test that wallet problems are explained and that the buyer can continue."""

import pytest
from playwright.async_api import BrowserContext, Route, expect

from payintent.evm import abi
from tests.web.till import WalletCheckout
from tests.web.wallet import ELSEWHERE, REJECTED, Wallet, WalletError

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.full]

_SEND = "eth_sendTransaction"
_CONNECT = "eth_requestAccounts"


async def test_a_buyer_who_rejects_a_wallet_request_can_try_again(
    checkout: WalletCheckout, buyer: BrowserContext, wallet: Wallet
) -> None:
    await wallet.install(buyer)
    wallet.network_id, wallet.known_chains = ELSEWHERE, {ELSEWHERE, wallet.own_network_id}
    _, session = await checkout.bill("NATIVED")
    declined = WalletError(REJECTED, "User rejected the request.")
    for method, text in (
        (_CONNECT, "You rejected the request"),
        ("wallet_switchEthereumChain", "Your wallet is on a different network"),
        (_SEND, "You rejected the request"),
    ):
        wallet.refusals = {method: declined}
        await checkout.click_wallet()
        await checkout.expect_text(text)
        await expect(checkout.wallets).to_be_enabled()
    assert wallet.transactions == []
    await checkout.click_wallet()
    await checkout.expect_text("is on the blockchain")
    assert len(await checkout.wait_for_posted(session)) == 1


async def test_wallet_errors_are_explained(
    checkout: WalletCheckout, buyer: BrowserContext, wallet: Wallet
) -> None:
    await wallet.install(buyer)
    await checkout.bill("NATIVED")
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
        (_SEND, 0, "User canceled", "You rejected the request"),
    ):
        wallet.refusals = {method: WalletError(code, message)}
        await checkout.click_wallet()
        await checkout.expect_text(text)
        await expect(checkout.wallets).to_be_enabled()


async def test_insufficient_funds_are_reported_before_a_transaction_is_sent(
    checkout: WalletCheckout, buyer: BrowserContext, wallet: Wallet
) -> None:
    await wallet.install(buyer)
    wallet.accounts = ["0x" + "11" * 20]
    await checkout.bill("USDT")
    await checkout.click_wallet()
    await checkout.expect_text("does not have enough USDT")
    assert wallet.count_calls(_SEND) == 0
    await expect(checkout.wallets).to_be_enabled()


async def test_repeated_clicks_send_a_single_wallet_request(
    checkout: WalletCheckout, buyer: BrowserContext, wallet: Wallet
) -> None:
    await wallet.install(buyer)
    _, session = await checkout.bill("NATIVED")
    await expect(checkout.wallets).to_be_enabled()
    wallet.is_unblocked.clear()
    await checkout.wallets.evaluate("button => { button.click(); button.click(); button.click(); }")
    await expect(checkout.wallets).to_be_disabled()
    await checkout.wallets.dispatch_event("click")
    wallet.is_unblocked.set()
    await checkout.expect_text("is on the blockchain")
    await checkout.wait_for_posted(session)
    assert (wallet.count_calls(_CONNECT), len(wallet.transactions)) == (1, 1)


async def test_a_sent_payment_is_not_offered_again_after_a_reload(
    checkout: WalletCheckout, buyer: BrowserContext, wallet: Wallet
) -> None:
    await wallet.install(buyer)
    payment, session = await checkout.bill("NATIVED")
    await checkout.ground.chain.ask("evm_setAutomine", False)
    posting = "**/transactions"

    async def lost(route: Route) -> None:
        await route.abort()

    await checkout.page.route(posting, lost)
    await checkout.click_wallet()
    await checkout.expect_text("It is not on the blockchain yet")
    await checkout.page.reload()
    await checkout.expect_text("It is not on the blockchain yet")
    await expect(checkout.wallets).to_be_hidden()
    assert (await checkout.ground.view(session))["transactions"] == []
    await checkout.page.unroute(posting)
    assert await checkout.wait_for_posted(session)  # the page posts it again
    await checkout.ground.chain.ask("evm_setAutomine", True)
    await checkout.finalize()
    await checkout.expect_paid(payment)
    assert len(wallet.transactions) == 1


async def test_another_tab_offers_a_sent_payment_again_only_after_a_delay(
    checkout: WalletCheckout, buyer: BrowserContext, wallet: Wallet
) -> None:
    await wallet.install(buyer)
    _, session = await checkout.bill("NATIVED")
    await checkout.ground.chain.ask("evm_setAutomine", False)
    await checkout.click_wallet()
    await checkout.wait_for_posted(session)
    second_checkout = WalletCheckout(checkout.ground, await buyer.new_page())
    await second_checkout.page.clock.install()
    await second_checkout.page.goto(checkout.page.url)
    await second_checkout.expect_text("It is not on the blockchain yet")
    await expect(second_checkout.wallets).to_be_hidden()
    await second_checkout.page.clock.fast_forward("05:00")
    await second_checkout.expect_text("The blockchain is slow")
    await second_checkout.page.get_by_role("button", name="Pay again").click()
    await expect(second_checkout.wallets).to_be_enabled()


async def test_a_reverted_payment_is_explained_and_can_be_repeated(
    checkout: WalletCheckout, buyer: BrowserContext, wallet: Wallet
) -> None:
    await wallet.install(buyer)
    payment, session = await checkout.bill("NATIVED")
    wallet.overrides = {"gas": hex(60_000)}
    await checkout.click_wallet()
    await checkout.expect_text("The network rejected the transaction")
    await expect(checkout.wallets).to_be_enabled()
    await checkout.wait_for_posted(session)
    async with checkout.page.expect_response(lambda response: "/onchain/sessions/" in response.url):
        await checkout.poll_now()
    # The service has not scanned the transaction yet.
    await checkout.expect_text("The network rejected")
    await expect(checkout.wallets).to_be_enabled()
    await checkout.ground.catch_up()
    view = await checkout.ground.view(session)
    assert [transaction["state"] for transaction in view["transactions"]] == ["reverted"]
    wallet.overrides = {}
    await checkout.click_wallet()
    await checkout.expect_text("is on the blockchain")
    await checkout.finalize()
    await checkout.expect_paid(payment)


async def test_a_payment_through_another_contract_is_not_reported_as_rejected(
    checkout: WalletCheckout, buyer: BrowserContext, wallet: Wallet
) -> None:
    await wallet.install(buyer)
    await checkout.page.clock.install()
    _, session = await checkout.bill("NATIVED")
    await checkout.ground.chain.ask("evm_setAutomine", False)
    wallet.overrides = {"to": "0x" + 40 * "5"}
    await checkout.click_wallet()
    await checkout.wait_for_posted(session)
    await checkout.ground.catch_up()
    view = await checkout.ground.view(session)
    assert [transaction["state"] for transaction in view["transactions"]] == ["foreign"]
    async with checkout.page.expect_response(lambda response: "/onchain/sessions/" in response.url):
        await checkout.poll_now()
    await checkout.expect_text("It is not on the blockchain yet")
    await expect(checkout.wallets).to_be_hidden()
    await checkout.ground.chain.ask("evm_setAutomine", True)
    await checkout.ground.mine(1)
    await checkout.expect_text("is on the blockchain")
    await checkout.page.clock.fast_forward("05:00")
    await checkout.expect_text("The blockchain is slow")  # the transaction did not pay
    await checkout.page.get_by_role("button", name="Pay again").click()
    await expect(checkout.wallets).to_be_enabled()


async def test_a_payment_that_was_made_elsewhere_is_not_repeated(
    checkout: WalletCheckout, buyer: BrowserContext, wallet: Wallet
) -> None:
    await wallet.install(buyer)
    _, session = await checkout.bill("NATIVED")
    await expect(checkout.wallets).to_be_enabled()
    await checkout.ground.pay(session)
    await checkout.click_wallet()
    await checkout.expect_text("This payment has already been made")
    assert wallet.transactions == []


async def test_the_payment_waits_until_the_approval_is_confirmed(
    checkout: WalletCheckout, buyer: BrowserContext, wallet: Wallet
) -> None:
    await wallet.install(buyer)
    _, session = await checkout.bill("USDT")
    await checkout.ground.chain.ask("evm_setAutomine", False)
    await checkout.click_wallet()
    await checkout.expect_text("We’re waiting for the network to confirm your approval")
    await wallet.wait_for_call("eth_getTransactionReceipt", 4)
    assert len(wallet.transactions) == 1
    await checkout.ground.chain.ask("evm_setAutomine", True)
    await checkout.ground.mine(1)
    await checkout.expect_text("is on the blockchain")
    assert len(wallet.transactions) == 2
    assert await checkout.wait_for_posted(session) == [wallet.hashes[1]]


async def test_a_reduced_allowance_is_not_used_for_a_payment(
    checkout: WalletCheckout, buyer: BrowserContext, wallet: Wallet
) -> None:
    await wallet.install(buyer)
    _, session = await checkout.bill("USDT")
    spender = bytes.fromhex((await checkout.ground.view(session))["contract_address"][2:])
    wallet.overrides = {"data": f"0x{abi.encode_approve(spender, 7).hex()}"}
    await checkout.click_wallet()
    await checkout.expect_text("Please approve the full amount")
    assert len(wallet.transactions) == 1


async def test_a_wallet_with_a_wrong_node_is_asked_to_check_its_settings(
    checkout: WalletCheckout, buyer: BrowserContext, wallet: Wallet
) -> None:
    await wallet.install(buyer)
    await checkout.bill("NATIVED")
    await checkout.ground.chain.ask(
        "anvil_setCode", checkout.ground.deployment.contract_address, "0x"
    )
    await checkout.click_wallet()
    await checkout.expect_text("Please check its network settings")
    assert wallet.transactions == []


async def test_a_wallet_that_falsely_reports_a_network_switch_is_not_used(
    checkout: WalletCheckout, buyer: BrowserContext, wallet: Wallet
) -> None:
    await wallet.install(buyer)
    wallet.network_id, wallet.known_chains, wallet.ignores_switch = (
        ELSEWHERE,
        {ELSEWHERE, wallet.own_network_id},
        True,
    )
    await checkout.bill("NATIVED")
    await checkout.click_wallet()
    await checkout.expect_text("Your wallet is on a different network")
    assert wallet.transactions == []


async def test_a_wallet_that_leaves_the_network_is_switched_back_before_it_pays(
    checkout: WalletCheckout, buyer: BrowserContext, wallet: Wallet
) -> None:
    await wallet.install(buyer)
    wallet.leaves_network_after = "eth_getBalance"
    await checkout.bill("NATIVED")
    await checkout.click_wallet()
    await checkout.expect_text("is on the blockchain")
    assert wallet.count_calls("wallet_switchEthereumChain") == 1


async def test_a_wallet_payment_cannot_start_shortly_before_the_deadline(
    checkout: WalletCheckout, buyer: BrowserContext, wallet: Wallet
) -> None:
    await wallet.install(buyer)
    await checkout.bill("NATIVED")
    await expect(checkout.wallets).to_be_enabled()
    await checkout.ground.pass_time(1800 - 59)
    await checkout.click_wallet()
    await checkout.expect_text("can no longer be made here")
    await expect(checkout.wallets).to_be_hidden()
    assert wallet.calls == []
