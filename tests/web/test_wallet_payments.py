"""Test payments from a wallet in a real browser."""

import asyncio
import json
from decimal import Decimal
from typing import Any

import aiohttp
import pytest
from playwright.async_api import BrowserContext, Route, expect

from payintent.evm import abi
from payintent.onchain.operations import SetChain
from payintent.runtime.settings import Settings
from payintent.service import Service
from tests.support.onchain import ChainWorld
from tests.support.ports import free_port
from tests.support.running_service import serving
from tests.web.till import WalletCheckout, choose
from tests.web.wallet import ELSEWHERE, LEGACY, PATIENCE_S, UNKNOWN_CHAIN, Wallet, WalletError

pytestmark = pytest.mark.asyncio(loop_scope="session")

#: The transfer size of each script. It is 0 if the browser had the script in its cache.
_FETCHES = """Object.fromEntries(performance.getEntriesByType("resource")
  .filter((entry) => entry.initiatorType !== "fetch" && entry.name.endsWith(".js"))
  .map((entry) => [entry.name.split("/").at(-1), entry.transferSize]))"""
#: Records whether the page follows the payment when the first wallet is offered.
_ORDER = """new MutationObserver((_, watch) => {
  if (!document.querySelector("[data-wallets] button")) return;
  window.followsFirst = customElements.get("pay-status") !== undefined;
  watch.disconnect();
}).observe(document, { childList: true, subtree: true })"""
#: Stores a sent payment of which the service was not notified, as the page does.
_REMEMBER_A_PAYMENT = """sessionStorage.setItem(
  `payintent:${document.querySelector("[data-onchain-session]").dataset.onchainSession}`,
  JSON.stringify({ hash: `0x${"ab".repeat(32)}`, at: Date.now(), mined: false }))"""
_APPROVE = f"0x{abi.encode_approve(bytes(20), 0)[:4].hex()}"


def _list_allowances(wallet: Wallet) -> list[int]:
    """Return the allowance after each approval."""
    return [
        int(item["data"][-64:], 16)
        for item in wallet.transactions
        if item["data"].startswith(_APPROVE)
    ]


@pytest.mark.full
async def test_the_method_choice_preloads_the_scripts_of_the_wallet_step(
    checkout: WalletCheckout, wallet: Wallet
) -> None:
    async with checkout.page.expect_response("**/wallet.js") as wallet_script:
        world = checkout.ground.world
        await checkout.show(
            await world.create(currency="USD", amount_text="25.50", amount=Decimal("25.50"))
        )
    assert await (await wallet_script.value).finished() is None
    await choose(checkout.page, "USDT")
    await expect(checkout.page.locator("dl.bill")).to_be_visible()
    transfer_sizes = await checkout.page.evaluate(_FETCHES)
    assert set(transfer_sizes) >= {"checkout.js", "onchain.js", "wallet.js"}
    assert {name for name, transfer_size in transfer_sizes.items() if transfer_size} == set()


@pytest.mark.full
async def test_a_wallet_is_offered_before_the_page_follows_the_payment(
    checkout: WalletCheckout, wallet: Wallet
) -> None:
    await wallet.install(checkout.page.context)
    await checkout.page.add_init_script(_ORDER)
    await checkout.bill("USDT")
    await expect(checkout.wallets).to_be_visible()
    await expect(checkout.page.locator("html.scripted")).to_have_count(1)
    assert await checkout.page.evaluate("window.followsFirst") is False


@pytest.mark.full
async def test_a_click_on_a_wallet_before_the_scripts_arrive_is_not_lost(
    checkout: WalletCheckout, wallet: Wallet
) -> None:
    is_pressed = asyncio.Event()

    async def continue_later(route: Route) -> None:
        await is_pressed.wait()
        await route.continue_()

    await wallet.install(checkout.page.context)
    await checkout.page.route("**/onchain.js", continue_later)
    world = checkout.ground.world
    payment = await world.create(currency="USD", amount_text="25.50", amount=Decimal("25.50"))
    await checkout.show(payment)
    await checkout.page.check("[name=method][value*=USDT]")
    await checkout.page.locator("form.methods button").click(no_wait_after=True)
    await checkout.wallets.click()
    assert wallet.calls == []
    is_pressed.set()
    await checkout.expect_text("is on the blockchain")
    assert len(wallet.transactions) == 2


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "token", "codes"), [("onchain.js", "USDT", 0), ("wallet.js", "NATIVED", 1)]
)
async def test_a_click_on_a_wallet_shows_an_error_if_the_scripts_fail_to_load(
    checkout: WalletCheckout, wallet: Wallet, name: str, token: str, codes: int
) -> None:
    is_pressed = asyncio.Event()

    async def abort_later(route: Route) -> None:
        await is_pressed.wait()
        await route.abort()

    await wallet.install(checkout.page.context)
    payment, _ = await checkout.ground.bill(token)
    await checkout.page.route(f"**/{name}", abort_later)
    base = checkout.ground.world.service.settings.checkout_base
    await checkout.page.goto(f"{base}/{payment.checkout_id}", wait_until="commit")
    await checkout.wallets.click()
    is_pressed.set()
    await checkout.expect_text("We can’t reach the payment service")
    await expect(checkout.wallets).to_be_hidden()
    await expect(checkout.page.locator("details[data-scan]:visible")).to_have_count(codes)
    assert wallet.calls == []


@pytest.mark.full
async def test_an_early_click_does_not_pay_again_if_this_tab_has_paid(
    checkout: WalletCheckout, wallet: Wallet
) -> None:
    """The service was never notified, so the page offers the wallet until the scripts arrive."""
    is_pressed = asyncio.Event()

    async def continue_later(route: Route) -> None:
        await is_pressed.wait()
        await route.continue_()

    await wallet.install(checkout.page.context)
    await checkout.bill("USDT")
    await expect(checkout.wallets).to_be_visible()
    await checkout.page.evaluate(_REMEMBER_A_PAYMENT)
    await checkout.page.route("**/onchain.js", continue_later)
    await checkout.page.reload(wait_until="commit")
    await checkout.wallets.click()
    is_pressed.set()
    await expect(checkout.wallets).to_be_hidden()
    await checkout.expect_text("sent")
    assert wallet.calls == []


async def test_a_buyer_selects_usdt_approves_the_exact_amount_and_pays(
    checkout: WalletCheckout, buyer: BrowserContext, wallet: Wallet
) -> None:
    await wallet.install(buyer)
    world = checkout.ground.world
    await world.rows("UPDATE merchant SET return_url = 'https://nimbus.test/thanks'")
    payment = await world.create(currency="USD", amount_text="25.50", amount=Decimal("25.50"))
    await checkout.show(payment)
    await choose(checkout.page, "USDT")
    bill = checkout.page.locator("dl.bill")
    await expect(bill).to_contain_text("25.5 USDT")
    await expect(bill).to_contain_text("Native")
    await checkout.click_wallet()
    await checkout.expect_text("is on the blockchain")
    assert _list_allowances(wallet) == [25_500_000_000_000_000_000]
    assert len(wallet.transactions) == 2
    await checkout.ground.catch_up()
    await checkout.expect_text("Payment detected on")
    await expect(checkout.wallets).to_be_hidden()
    await checkout.finalize()
    # Without a forced poll.
    await expect(checkout.page.get_by_role("heading", name="Paid")).to_be_visible()
    await checkout.expect_paid(payment)
    back = checkout.page.get_by_role("link", name="Back to Nimbus Books")
    address = await back.get_attribute("href")
    assert address is not None
    assert address.startswith("https://nimbus.test/thanks?payment_id=pay_")
    assert address.endswith("&status=PAID")


@pytest.mark.full
@pytest.mark.parametrize("slug", ["ethereum"])
async def test_an_old_allowance_is_reset_first_if_the_token_requires_it(
    checkout: WalletCheckout, buyer: BrowserContext, wallet: Wallet
) -> None:
    await wallet.install(buyer)
    ground = checkout.ground
    payment, session = await checkout.bill("USDT")
    spender = bytes.fromhex((await ground.view(session))["contract_address"][2:])
    stale = {
        "to": ground.token("USDT"),
        "value": "0x0",
        "data": f"0x{abi.encode_approve(spender, 7).hex()}",
    }
    await ground.send(stale)
    await checkout.click_wallet()
    await checkout.expect_text("is on the blockchain")
    assert _list_allowances(wallet) == [0, 25_500_000]
    await checkout.finalize()
    await checkout.expect_paid(payment)


@pytest.mark.full
async def test_a_sufficient_allowance_is_not_requested_again(
    checkout: WalletCheckout, buyer: BrowserContext, wallet: Wallet
) -> None:
    await wallet.install(buyer)
    _, session = await checkout.bill("USDT")
    [approve] = [
        step for step in (await checkout.ground.view(session))["steps"] if step["kind"] == "approve"
    ]
    await checkout.ground.send(approve)
    await checkout.click_wallet()
    await checkout.expect_text("is on the blockchain")
    assert len(wallet.transactions) == 1


@pytest.mark.full
async def test_a_legacy_wallet_pays_the_native_coin_in_a_single_step(
    checkout: WalletCheckout, buyer: BrowserContext, wallet: Wallet
) -> None:
    await wallet.install(buyer, LEGACY)
    payment, _ = await checkout.bill("NATIVED")
    await checkout.click_wallet()
    await checkout.expect_text("is on the blockchain")
    assert len(wallet.transactions) == 1
    await checkout.finalize()
    await checkout.expect_paid(payment)


@pytest.mark.full
async def test_a_chain_that_the_wallet_does_not_know_is_added_before_the_payment(
    checkout: WalletCheckout, buyer: BrowserContext, wallet: Wallet
) -> None:
    await wallet.install(buyer)
    wallet.network_id, wallet.known_chains = ELSEWHERE, {ELSEWHERE}
    payment, _ = await checkout.bill("NATIVED")
    # As in some mobile wallets.
    wrapped_error = WalletError(-32603, "Internal JSON-RPC error.", UNKNOWN_CHAIN)
    wallet.refusals = {"wallet_switchEthereumChain": wrapped_error}
    await checkout.click_wallet()
    await checkout.expect_text("doesn’t have")  # the chain does not have a public RPC URL
    urls = ["https://rpc.chain.test"]
    await checkout.ground.world.perform(SetChain(chain=checkout.ground.slug, public_rpc_urls=urls))
    await checkout.click_wallet()
    await checkout.expect_text("is on the blockchain")
    assert [item["rpcUrls"] for item in wallet.added_chains] == [urls]
    await checkout.finalize()
    await checkout.expect_paid(payment)


@pytest.mark.full
@pytest.mark.parametrize("code", [-32603, 0])
async def test_a_chain_is_added_if_the_wallet_has_no_code_for_an_unknown_chain(
    checkout: WalletCheckout, buyer: BrowserContext, wallet: Wallet, code: int
) -> None:
    await wallet.install(buyer)
    wallet.network_id, wallet.known_chains = ELSEWHERE, {ELSEWHERE}
    urls = ["https://rpc.chain.test"]
    await checkout.ground.world.perform(SetChain(chain=checkout.ground.slug, public_rpc_urls=urls))
    await checkout.bill("NATIVED")
    wallet.refusals = {"wallet_switchEthereumChain": WalletError(code, "Netzwerk unbekannt")}
    await checkout.click_wallet()
    await checkout.expect_text("is on the blockchain")
    assert len(wallet.added_chains) == 1


class TestSeparateApiOrigin:
    @pytest.fixture
    def api_port(self) -> int:
        return free_port()

    @pytest.fixture
    def settings(self, settings: Settings, api_port: int) -> Settings:
        return settings.model_copy(update={"api_base": f"http://localhost:{api_port}/v1"})

    @pytest.mark.full
    async def test_the_page_may_call_only_its_own_origin_and_the_api(
        self,
        checkout: WalletCheckout,
        settings: Settings,
        service: Service,
        api_port: int,
        buyer: BrowserContext,
        wallet: Wallet,
    ) -> None:
        await wallet.install(buyer)
        async with serving(settings, service, api_port):
            _, session = await checkout.bill("NATIVED")
            answer = await checkout.page.reload()
            assert answer is not None
            policy = answer.headers["content-security-policy"]
            assert f"connect-src 'self' http://localhost:{api_port};" in f"{policy};"
            await checkout.click_wallet()
            await checkout.expect_text("is on the blockchain")
            assert len(await checkout.wait_for_posted(session)) == 1
            await checkout.page.close()  # before the API stops


@pytest.mark.full
async def test_the_page_shows_the_new_session_if_the_method_is_changed_elsewhere(
    checkout: WalletCheckout, buyer: BrowserContext, wallet: Wallet, ground: ChainWorld
) -> None:
    await wallet.install(buyer)
    payment, _ = await checkout.bill("NATIVED")
    await expect(checkout.wallets).to_be_visible()
    await ground.world.select(payment, ground.methods["USDT"])
    await checkout.poll_now()
    await expect(checkout.page.locator("dl.bill")).to_contain_text("USDT")


@pytest.mark.full
async def test_the_event_stream_reports_the_progress_on_the_chain(checkout: WalletCheckout) -> None:
    payment, session = await checkout.bill("NATIVED")
    url = f"{checkout.ground.world.service.settings.api_base}/checkout/{payment.checkout_id}/events"
    async with aiohttp.ClientSession() as http, http.get(url) as answer:
        assert (await _read_event(answer))[0] == "status"
        tx_hash = await checkout.ground.pay(session)
        await checkout.ground.post(session, tx_hash)
        name, progress = await _read_event(answer)
        assert (name, progress["tx_hash"], progress["step"]) == ("onchain", tx_hash, "pay")
        assert progress["session_id"] == (await checkout.ground.view(session))["id"]
        await checkout.ground.catch_up()
        while (await _read_event(answer))[1]["status"] not in {"detected", "confirming"}:
            pass
        await checkout.finalize()
        while (event := await _read_event(answer))[0] != "status":
            assert 0 <= event[1]["seen"] <= event[1]["needed"]
        assert event[1]["status"] == "PAID"


async def _read_event(answer: aiohttp.ClientResponse) -> tuple[str, dict[str, Any]]:
    """Wait for the next event; return its name and data."""
    name = ""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            line = (await answer.content.readline()).decode()
            assert line, "the stream has ended"
            if line.startswith("event: "):
                name = line.removeprefix("event: ").strip()
            if line.startswith("data: "):
                return name, json.loads(line.removeprefix("data: "))
