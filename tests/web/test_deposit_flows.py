"""Payments to an address from a simple wallet, on every chain, and their refunds."""

from dataclasses import dataclass
from decimal import Decimal

import pytest
from playwright.async_api import Page, expect
from pytest_asyncio import fixture

from payintent.core import ids
from payintent.evm.abi import to_checksum_address
from payintent.onchain.operations import SetChain
from payintent.payments.model import Payment, Session
from payintent.refunds.resolve_case import ResolveCase
from payintent_sandbox.chains.deploy import PLANS
from tests.support.chain_refunds import RefundWorld
from tests.support.deposits import DepositGround, add_factory
from tests.support.onchain import ChainWorld
from tests.web.till import WalletCheckout, choose, unfold

LOOP = "session"
pytestmark = [pytest.mark.asyncio(loop_scope=LOOP), pytest.mark.full]

_TOKENS = [(slug, item) for slug in PLANS for item in PLANS[slug].tokens if not item.native]
_NAMES = {"ethereum": "Ethereum", "bsc": "BNB Smart Chain", "native": "Native"}
_BUYER = to_checksum_address(bytes(19) + b"\x07")
_INVALID = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAeD"  # an invalid checksum
_WITH_AND_WITHOUT_SCRIPTS = pytest.mark.parametrize("scripted", [True, False])
_ON_EVERY_CHAIN = pytest.mark.parametrize("slug", PLANS)


@dataclass
class DepositFlow:
    """A payment's page, and a separate wallet that only sends tokens."""

    checkout: WalletCheckout
    deposits: DepositGround
    refunds: RefundWorld
    payment: Payment
    session: Session
    scripted: bool

    @property
    def page(self) -> Page:
        return self.checkout.page

    @property
    def ground(self) -> ChainWorld:
        return self.deposits.ground

    async def send(self, amount: str, token: str | None = None) -> None:
        """Send tokens to the displayed address. The transfer's block is not final."""
        symbol = token or self.session.quote.token or ""
        units = int(Decimal(amount).scaleb(self.ground.deployment.token(symbol).decimals))
        displayed_address = await self.page.locator(".address").text_content()
        assert (displayed_address or "").lower() == self.deposits.address(self.session)
        await self.deposits.transfer(self.session, units, symbol)
        await self.ground.turn()
        await self.update_page()

    async def update_page(self) -> None:
        """Update the page. Without JavaScript, the buyer must follow a link."""
        if self.scripted:
            await self.checkout.poll_now()
        else:
            await self.page.get_by_role("link", name="Check status").first.click()

    async def expect_text(self, *texts: str) -> None:
        for text in texts:
            await expect(self.page.locator("[data-deposit] [data-status]")).to_contain_text(text)

    async def expect_heading(self, heading: str) -> None:
        await self.update_page()
        await expect(self.page.get_by_role("heading", name=heading)).to_be_visible()

    async def refund_case(self, amount: str, token: str) -> None:
        """Refund the only case. The buyer mistypes the address and corrects it.

        Check that the refund has arrived when it is final.
        """
        [case] = await self.ground.world.rows("SELECT id FROM money_case")
        case_id = ids.format_id(ids.CASE, case["id"])
        await self.ground.world.perform(
            ResolveCase(case_id=case_id, resolution="refund", note="asked")
        )
        await self.page.reload()
        await self.page.get_by_role("link", name="Enter the address for your refund").click()
        await expect(self.page.locator(".amount")).to_have_text(f"{amount}\u00a0{token}")
        await self._enter(_INVALID)
        await expect(self.page.get_by_role("alert")).to_contain_text("not a valid wallet address")
        await self._enter(_BUYER)
        await expect(self.page.locator("main")).to_contain_text("will be sent to this address")
        await self.refunds.turn()
        await self.ground.final(40)
        await self.refunds.turn()
        await self.page.reload()
        await expect(self.page.locator("main")).to_contain_text("was sent to this address")
        await expect(self.page.locator("code").first).to_have_text(_BUYER)
        units = int(Decimal(amount).scaleb(self.ground.deployment.token(token).decimals))
        assert await self.refunds.balance(token, _BUYER) == units

    async def _enter(self, address: str) -> None:
        await self.page.get_by_role("textbox").fill(address)
        await self.page.get_by_role("button", name="Save address").click()


@pytest.fixture
def token() -> str:
    return "USDT"


@fixture(loop_scope=LOOP)
async def flow(
    checkout: WalletCheckout, refunding: RefundWorld, token: str, scripted: bool
) -> DepositFlow:
    other_tokens = {
        item.symbol for item in checkout.ground.deployment.tokens if not item.native
    } - {token}
    deposits = await add_factory(checkout.ground, token, *other_tokens)
    payment, session = await deposits.bill(token)
    await checkout.show(payment)
    return DepositFlow(checkout, deposits, refunding, payment, session, scripted)


@_WITH_AND_WITHOUT_SCRIPTS
@pytest.mark.parametrize(
    ("slug", "token"), [(slug, plan_token.symbol) for slug, plan_token in _TOKENS]
)
async def test_a_plain_wallet_pays_in_two_transfers_on_every_chain(
    flow: DepositFlow, slug: str, token: str
) -> None:
    page = flow.page
    await expect(page.locator(".figure")).to_have_text(f"25.5\u00a0{token}")
    await expect(page.locator("[data-details]")).to_contain_text(_NAMES[slug])
    await flow.send("10.000001")
    await flow.expect_text(
        f"10.000001\u00a0{token} of 25.5\u00a0{token}", f"remaining 15.499999\u00a0{token}"
    )
    await expect(page.locator(".figure")).to_have_text(f"15.499999\u00a0{token}")
    await flow.send("15.499999")
    await flow.expect_text("The full amount of 25.5")
    await flow.ground.final(40)
    await flow.expect_heading("Paid")
    assert await flow.deposits.outcome(flow.payment) == ("PAID", None, [])


@_WITH_AND_WITHOUT_SCRIPTS
@_ON_EVERY_CHAIN
async def test_an_underpayment_at_the_deadline_is_refunded_to_the_buyers_address(
    flow: DepositFlow,
) -> None:
    await flow.send("12.75")
    await flow.ground.final(40)
    await flow.deposits.expire(flow.payment)
    await flow.expect_heading("The payment did not go through")
    assert await flow.deposits.outcome(flow.payment) == (
        "FAILED",
        "AMOUNT_MISMATCH",
        ["AMOUNT_MISMATCH"],
    )
    await flow.refund_case("12.75", "USDT")


@_WITH_AND_WITHOUT_SCRIPTS
async def test_an_overpayment_completes_the_payment_and_the_surplus_is_refunded(
    flow: DepositFlow,
) -> None:
    await flow.send("30.5")
    await flow.expect_text("The full amount of 25.5")
    await flow.ground.final()
    await flow.expect_heading("Paid")
    assert await flow.deposits.outcome(flow.payment) == ("PAID", None, ["SURPLUS"])
    await flow.refund_case("5", "USDT")


@_WITH_AND_WITHOUT_SCRIPTS
@pytest.mark.parametrize("slug", ["ethereum"])
async def test_a_different_listed_token_does_not_pay_and_is_refunded(flow: DepositFlow) -> None:
    await flow.send("25.5", "USDC")
    await flow.expect_text("No payment received yet.", "a different token", "send only USDT")
    await flow.ground.final(40)
    await flow.deposits.expire(flow.payment)
    await flow.expect_heading("The payment did not go through")
    assert await flow.deposits.outcome(flow.payment) == (
        "FAILED",
        "TOKEN_MISMATCH",
        ["TOKEN_MISMATCH"],
    )
    await flow.refund_case("25.5", "USDC")


@_WITH_AND_WITHOUT_SCRIPTS
async def test_a_buyer_chooses_between_an_address_and_a_wallet(checkout: WalletCheckout) -> None:
    await add_factory(checkout.ground, "USDT")
    world, page = checkout.ground.world, checkout.page
    await world.perform(SetChain(chain="native", transfer_fee_usd="0.5"))
    await checkout.show(
        await world.create(currency="USD", amount_text="25.50", amount=Decimal("25.5"))
    )
    tokens = page.locator("label.method", has_text="USDT")
    address, wallet = "Pay from an exchange or any wallet", "Connect your wallet"
    # The cheaper method first.
    for at, (way, fee) in enumerate(((address, "0.50"), (wallet, "1.10"))):
        await expect(tokens.nth(at)).to_contain_text(way)
        await expect(tokens.nth(at)).to_contain_text("Usually less than a minute")
        await expect(tokens.nth(at)).to_contain_text(f"Network fee about {fee}\u00a0USD")
    await choose(page, address)
    await expect(page.locator(".address")).to_be_visible()
    await expect(page.locator("[data-deposit]")).to_contain_text("Send only USDT on Native.")
    await unfold(page)
    await tokens.nth(1).click()
    await page.locator("form.methods button").click()
    await expect(page.locator("[data-onchain-session]")).to_be_attached()
