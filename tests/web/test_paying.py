"""A buyer pays from a wallet in a real browser, and the page shows the final payment."""

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
from tests.support.serving import serving
from tests.support.world import free_port
from tests.web.till import Till, choose
from tests.web.wallet import ELSEWHERE, LEGACY, PATIENCE_S, UNKNOWN_CHAIN, Wallet, WalletError

pytestmark = pytest.mark.asyncio(loop_scope="session")

#: Bytes that each script of a page cost: none where the browser had it.
_FETCHES = """Object.fromEntries(performance.getEntriesByType("resource")
  .filter((one) => one.initiatorType !== "fetch" && one.name.endsWith(".js"))
  .map((one) => [one.name.split("/").at(-1), one.transferSize]))"""
#: Whether a page follows its payment already when the first wallet is offered.
_ORDER = """new MutationObserver((_, watch) => {
  if (!document.querySelector("[data-wallets] button")) return;
  window.followsFirst = customElements.get("pay-status") !== undefined;
  watch.disconnect();
}).observe(document, { childList: true, subtree: true })"""
#: What a tab remembers that has sent a payment, and could not tell the service.
_REMEMBER_A_PAYMENT = """sessionStorage.setItem(
  `payintent:${document.querySelector("[data-onchain-session]").dataset.onchainSession}`,
  JSON.stringify({ hash: `0x${"ab".repeat(32)}`, at: Date.now(), mined: false }))"""
_APPROVE = f"0x{abi.encode_approve(bytes(20), 0)[:4].hex()}"


def _allowed(wallet: Wallet) -> list[int]:
    """Return the allowance after each approval."""
    return [
        int(item["data"][-64:], 16) for item in wallet.sent if item["data"].startswith(_APPROVE)
    ]


@pytest.mark.full
async def test_the_choice_fetches_what_the_wallets_step_runs(till: Till, wallet: Wallet) -> None:
    async with till.page.expect_response("**/wallet.js") as fetched:
        world = till.ground.world
        await till.show(
            await world.create(currency="USD", amount_text="25.50", amount=Decimal("25.50"))
        )
    assert await (await fetched.value).finished() is None
    await choose(till.page, "USDT")
    await expect(till.page.locator("dl.bill")).to_be_visible()
    fetches = await till.page.evaluate(_FETCHES)
    assert set(fetches) >= {"checkout.js", "onchain.js", "wallet.js"}
    assert {name for name, received in fetches.items() if received} == set()


@pytest.mark.full
async def test_a_wallet_is_offered_before_the_page_follows(till: Till, wallet: Wallet) -> None:
    await wallet.stand_in(till.page.context)
    await till.page.add_init_script(_ORDER)
    await till.bill("USDT")
    await expect(till.wallets).to_be_visible()
    await expect(till.page.locator("html.scripted")).to_have_count(1)
    assert await till.page.evaluate("window.followsFirst") is False


@pytest.mark.full
async def test_a_wallet_is_offered_while_the_scripts_are_on_their_way_and_a_press_is_kept(
    till: Till, wallet: Wallet
) -> None:
    is_pressed = asyncio.Event()

    async def later(route: Route) -> None:
        await is_pressed.wait()
        await route.continue_()

    await wallet.stand_in(till.page.context)
    await till.page.route("**/onchain.js", later)
    world = till.ground.world
    payment = await world.create(currency="USD", amount_text="25.50", amount=Decimal("25.50"))
    await till.show(payment)
    await till.page.check("[name=method][value*=USDT]")
    await till.page.locator("form.methods button").click(no_wait_after=True)
    await till.wallets.click()
    assert wallet.asked == []
    is_pressed.set()
    await till.says("is on the blockchain")
    assert len(wallet.sent) == 2


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "token", "codes"), [("onchain.js", "USDT", 0), ("wallet.js", "NATIVED", 1)]
)
async def test_where_the_scripts_do_not_come_a_press_is_answered_and_a_code_is_offered(
    till: Till, wallet: Wallet, name: str, token: str, codes: int
) -> None:
    is_pressed = asyncio.Event()

    async def never(route: Route) -> None:
        await is_pressed.wait()
        await route.abort()

    await wallet.stand_in(till.page.context)
    payment, _ = await till.ground.bill(token)
    await till.page.route(f"**/{name}", never)
    base = till.ground.world.service.settings.checkout_base
    await till.page.goto(f"{base}/{payment.checkout_id}", wait_until="commit")
    await till.wallets.click()
    is_pressed.set()
    await till.says("We can’t reach the payment service")
    await expect(till.wallets).to_be_hidden()
    await expect(till.page.locator("details[data-scan]:visible")).to_have_count(codes)
    assert wallet.asked == []


@pytest.mark.full
async def test_a_press_before_the_scripts_pays_nothing_where_this_tab_has_paid(
    till: Till, wallet: Wallet
) -> None:
    """The service was never notified, so the page offers the wallet until the scripts arrive."""
    is_pressed = asyncio.Event()

    async def later(route: Route) -> None:
        await is_pressed.wait()
        await route.continue_()

    await wallet.stand_in(till.page.context)
    await till.bill("USDT")
    await expect(till.wallets).to_be_visible()
    await till.page.evaluate(_REMEMBER_A_PAYMENT)
    await till.page.route("**/onchain.js", later)
    await till.page.reload(wait_until="commit")
    await till.wallets.click()
    is_pressed.set()
    await expect(till.wallets).to_be_hidden()
    await till.says("sent")
    assert wallet.asked == []


async def test_a_buyer_chooses_usdt_allows_exactly_the_amount_and_pays(
    till: Till, buyer: BrowserContext, wallet: Wallet
) -> None:
    await wallet.stand_in(buyer)
    world = till.ground.world
    await world.rows("UPDATE merchant SET return_url = 'https://nimbus.test/thanks'")
    payment = await world.create(currency="USD", amount_text="25.50", amount=Decimal("25.50"))
    await till.show(payment)
    await choose(till.page, "USDT")
    bill = till.page.locator("dl.bill")
    await expect(bill).to_contain_text("25.5 USDT")
    await expect(bill).to_contain_text("Native")
    await till.press()
    await till.says("is on the blockchain")
    assert _allowed(wallet) == [25_500_000_000_000_000_000]
    assert len(wallet.sent) == 2
    await till.ground.look()
    await till.says("Payment detected on")
    await expect(till.wallets).to_be_hidden()
    await till.settle()
    await expect(till.page.get_by_role("heading", name="Paid")).to_be_visible()  # by itself
    await till.shows_paid(payment)
    back = till.page.get_by_role("link", name="Back to Nimbus Books")
    address = await back.get_attribute("href")
    assert address is not None
    assert address.startswith("https://nimbus.test/thanks?payment_id=pay_")
    assert address.endswith("&status=PAID")


@pytest.mark.full
@pytest.mark.parametrize("slug", ["ethereum"])
async def test_an_older_permission_of_a_token_that_demands_it_ends_first(
    till: Till, buyer: BrowserContext, wallet: Wallet
) -> None:
    await wallet.stand_in(buyer)
    ground = till.ground
    payment, session = await till.bill("USDT")
    spender = bytes.fromhex((await ground.view(session))["contract_address"][2:])
    stale = {
        "to": ground.token("USDT"),
        "value": "0x0",
        "data": f"0x{abi.encode_approve(spender, 7).hex()}",
    }
    await ground.send(stale)
    await till.press()
    await till.says("is on the blockchain")
    assert _allowed(wallet) == [0, 25_500_000]
    await till.settle()
    await till.shows_paid(payment)


@pytest.mark.full
async def test_what_was_allowed_before_is_not_asked_again(
    till: Till, buyer: BrowserContext, wallet: Wallet
) -> None:
    await wallet.stand_in(buyer)
    _, session = await till.bill("USDT")
    [approve] = [
        step for step in (await till.ground.view(session))["steps"] if step["kind"] == "approve"
    ]
    await till.ground.send(approve)
    await till.press()
    await till.says("is on the blockchain")
    assert len(wallet.sent) == 1


@pytest.mark.full
async def test_the_chains_own_coin_is_paid_in_one_step_by_a_wallet_of_the_old_kind(
    till: Till, buyer: BrowserContext, wallet: Wallet
) -> None:
    await wallet.stand_in(buyer, LEGACY)
    payment, _ = await till.bill("NATIVED")
    await till.press()
    await till.says("is on the blockchain")
    assert len(wallet.sent) == 1
    await till.settle()
    await till.shows_paid(payment)


@pytest.mark.full
async def test_a_chain_that_the_wallet_does_not_know_is_added_and_paid_on(
    till: Till, buyer: BrowserContext, wallet: Wallet
) -> None:
    await wallet.stand_in(buyer)
    wallet.network_id, wallet.known = ELSEWHERE, {ELSEWHERE}
    payment, _ = await till.bill("NATIVED")
    wrapped = WalletError(-32603, "Internal JSON-RPC error.", UNKNOWN_CHAIN)  # as on some phones
    wallet.refuses = {"wallet_switchEthereumChain": wrapped}
    await till.press()
    await till.says("doesn’t have")  # nobody has given an address that wallets may use
    urls = ["https://rpc.chain.test"]
    await till.ground.world.perform(SetChain(chain=till.ground.slug, public_rpc_urls=urls))
    await till.press()
    await till.says("is on the blockchain")
    assert [item["rpcUrls"] for item in wallet.added] == [urls]
    await till.settle()
    await till.shows_paid(payment)


class TestWithTheApiElsewhere:
    @pytest.fixture
    def api_port(self) -> int:
        return free_port()

    @pytest.fixture
    def settings(self, settings: Settings, api_port: int) -> Settings:
        return settings.model_copy(update={"api_base": f"http://localhost:{api_port}/v1"})

    @pytest.mark.full
    async def test_a_page_may_ask_an_api_of_another_origin_and_no_third(
        self,
        till: Till,
        settings: Settings,
        service: Service,
        api_port: int,
        buyer: BrowserContext,
        wallet: Wallet,
    ) -> None:
        await wallet.stand_in(buyer)
        async with serving(settings, service, api_port):
            _, session = await till.bill("NATIVED")
            answer = await till.page.reload()
            assert answer is not None
            policy = answer.headers["content-security-policy"]
            assert f"connect-src 'self' http://localhost:{api_port};" in f"{policy};"
            await till.press()
            await till.says("is on the blockchain")
            assert len(await till.posted(session)) == 1
            await till.page.close()  # before it misses the API


@pytest.mark.full
async def test_a_page_whose_session_was_replaced_elsewhere_shows_the_new_one(
    till: Till, buyer: BrowserContext, wallet: Wallet, ground: ChainWorld
) -> None:
    await wallet.stand_in(buyer)
    payment, _ = await till.bill("NATIVED")
    await expect(till.wallets).to_be_visible()
    await ground.world.select(payment, ground.methods["USDT"])
    await till.hurry()
    await expect(till.page.locator("dl.bill")).to_contain_text("USDT")


@pytest.mark.full
async def test_whoever_listens_hears_what_was_seen_on_the_chain(till: Till) -> None:
    payment, session = await till.bill("NATIVED")
    url = f"{till.ground.world.service.settings.api_base}/checkout/{payment.checkout_id}/events"
    async with aiohttp.ClientSession() as http, http.get(url) as answer:
        assert (await _told(answer))[0] == "status"
        tx_hash = await till.ground.pay(session)
        await till.ground.post(session, tx_hash)
        name, progress = await _told(answer)
        assert (name, progress["tx_hash"], progress["step"]) == ("onchain", tx_hash, "pay")
        assert progress["session_id"] == (await till.ground.view(session))["id"]
        await till.ground.look()
        while (await _told(answer))[1]["status"] not in {"detected", "confirming"}:
            pass
        await till.settle()
        while (told := await _told(answer))[0] != "status":
            assert 0 <= told[1]["seen"] <= told[1]["needed"]
        assert told[1]["status"] == "PAID"


async def _told(answer: aiohttp.ClientResponse) -> tuple[str, dict[str, Any]]:
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
