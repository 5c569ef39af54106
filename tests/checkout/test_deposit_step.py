"""The page of a payment to a deposit address, in a browser without JavaScript."""

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from decimal import Decimal
from html import unescape
from typing import Any

import pytest

from payintent.chains import store as chain_store
from payintent.chains import watch_store as chain_watch_store
from payintent.checkout.codes import qr_response
from payintent.checkout.languages import LOCALES, load_language
from payintent.checkout.methods.groups import group_methods
from payintent.checkout.methods.order import fastest_affordable_first
from payintent.core.errors import BadRequestError
from payintent.evm.deposits import derive_deposit_address, init_code_hash
from payintent.gateways.port import GatewaySessionRequest, SessionRejected
from payintent.merchants.methods_operations import AddPaymentMethod, ListPaymentMethods
from payintent.merchants.operations import CreateMerchant
from payintent.onchain.operations import SetChain
from payintent.onchain.wallet_sessions import get_session_view
from payintent.payments.model import Payment, Session
from payintent.runtime.settings import Settings
from payintent.service import Service
from tests.support.contracts import (
    FACTORY,
    FORWARDER,
    USDT,
    WATCHED_S,
    add_contract,
    bill,
    contract_service,
    offer_deposits,
    offer_tokens,
    register_factory,
)
from tests.support.fakes import FakeGateway
from tests.support.onchain import pay_uuid
from tests.support.world import Answer, Api

_UNIT = 10**18
_OTHER_TOKEN = "0x" + "77" * 20
_TX_NUMBERS = iter(range(1, 1_000))


@pytest.fixture
async def service(settings: Settings, gateway: FakeGateway) -> AsyncIterator[Service]:
    async with contract_service(settings, gateway) as service:
        yield service


@dataclass
class Deposit:
    """A payment of 25.50 USDT to an address, and its page."""

    api: Api
    payment: Payment
    session: Session

    @property
    def address(self) -> str:
        """The deposit address in lower case."""
        factory, forwarder = bytes.fromhex(FACTORY[2:]), bytes.fromhex(FORWARDER[2:])
        uuid = pay_uuid(self.session)
        return f"0x{derive_deposit_address(factory, init_code_hash(forwarder), uuid).hex()}"

    async def receive(self, amount: float, token: str = USDT) -> None:
        """Record a transfer in a block that is not final."""
        await self.api.world.rows(
            """
            INSERT INTO chain_sighting
                (chain, tx_hash, log_index, session_id, exact, block, token, amount, seen_at)
            VALUES ('native', $1, 0, $2, $3::bytea = $4::bytea, 7, $3, $5::text::numeric, clock())
            """,
            next(_TX_NUMBERS).to_bytes(32),
            self.session.id,
            bytes.fromhex(token[2:]),
            bytes.fromhex(USDT[2:]),
            str(int(amount * _UNIT)),
        )

    async def page(self, query: str = "") -> str:
        answer = await self.get(query)
        assert answer.status == 200
        return answer.body.decode()

    async def get(self, rest: str) -> Answer:
        return await self.api.send("GET", f"/c/{self.payment.checkout_id}{rest}")

    async def view(self) -> dict[str, Any]:
        """Return the session as the page's script reads it."""
        service = self.api.world.service
        return await get_session_view(service.database, self.session.id, service.wallet_handoff)

    async def status_text(self, query: str = "") -> str:
        """Return the page's text about the payment's progress."""
        [text] = re.findall(r"data-status>(.*?)</p>", await self.page(query), re.DOTALL)
        return unescape(text).replace("\xa0", " ")

    async def state(self) -> str:
        [state] = re.findall(r'data-state="(.*?)"', await self.page())
        return state

    async def offers_address(self) -> bool:
        """Return whether the page and both of its QR codes contain the address."""
        is_offered = self.address in (await self.page()).lower()
        codes = [await self.get(name) for name in ("/address.svg", "/wallet.svg")]
        assert [code.status for code in codes] == [200 if is_offered else 404] * 2
        return is_offered


@pytest.fixture
async def deposit(api: Api) -> Deposit:
    method = await offer_deposits(api.world)
    return Deposit(api, *(await bill(api.world, method)))


async def test_the_page_shows_the_amount_network_address_and_deadline(deposit: Deposit) -> None:
    page = await deposit.page()
    assert await deposit.status_text() == "No payment received yet."
    assert ">25.5\u00a0USDT</bdi></strong>" in page
    assert 'data-text="25.5"' in page  # the number without its unit is copied
    assert "<strong>Native</strong>" in page
    [code] = re.findall(r'<code class="address" dir="ltr">(.*?)</code>', page)
    assert re.sub(r"<[^>]*>", "", code).lower() == deposit.address
    assert code.count("<wbr>") == 9  # groups of four digits without copyable separators
    assert f'data-text="{deposit.address}"' in page.lower()
    assert "Send only USDT on Native." in page
    assert "Usually " in page
    assert f'data-until="{deposit.payment.expires_at:%Y-%m-%dT%H:%M}' in page
    assert f"&amp;uint256={255 * _UNIT // 10}" in page
    assert page.count("<noscript>") == 0
    assert "How would you like to pay?" in page
    assert await deposit.offers_address()


async def test_the_qr_codes_encode_the_address_and_the_wallet_link(deposit: Deposit) -> None:
    view = await deposit.view()
    for name, text in (
        ("address", view["deposit_address"]),
        ("wallet", view["links"]["eip681"]),
    ):
        code = await deposit.get(f"/{name}.svg")
        assert code.body == qr_response(text).body
    assert view["deposit_address"].lower() == deposit.address


async def test_a_partial_payment_leaves_a_remaining_amount_to_send(deposit: Deposit) -> None:
    await deposit.receive(12.75)
    assert await deposit.status_text() == (
        "12.75 USDT of 25.5 USDT received. 12.75 USDT of it is still being confirmed."
        " Send the remaining 12.75 USDT to the same address."
    )
    page = await deposit.page()
    assert ">12.75\u00a0USDT</bdi></strong>" in page
    assert 'data-text="12.75"' in page
    assert f"&amp;uint256={1275 * _UNIT // 100}" in page
    assert await deposit.offers_address()
    assert 'class="methods"' not in page  # the method can no longer be changed
    assert "data-until=" in page
    assert "{" not in await deposit.status_text("?lang=ar")


async def test_the_full_amount_hides_the_address(deposit: Deposit) -> None:
    await deposit.receive(12.75)
    await deposit.receive(12.75)
    status = await deposit.status_text()
    assert status.startswith("The full amount of 25.5 USDT has been received.")
    assert not await deposit.offers_address()


async def test_a_different_token_is_reported_and_not_credited(deposit: Deposit) -> None:
    await deposit.receive(25.5, _OTHER_TOKEN)
    status = await deposit.status_text()
    assert "No payment received yet. We received a different token." in status
    assert "Please send only USDT." in status
    assert await deposit.offers_address()


async def test_the_address_is_hidden_shortly_before_the_deadline(deposit: Deposit) -> None:
    await deposit.receive(12.75)
    await deposit.api.world.rows("UPDATE payment SET expires_at = clock() + interval '50 s'")
    assert await deposit.status_text() == (
        "12.75 USDT of 25.5 USDT received. 12.75 USDT of it is still being confirmed."
        " There is not enough time left. Please don’t send anything now."
        " Keep the link to this page."
        " If your transfer is refunded, you can enter the address for the refund here."
    )
    assert not await deposit.offers_address()


async def test_after_the_deadline_the_page_reports_that_time_has_run_out(deposit: Deposit) -> None:
    await deposit.api.world.rows("UPDATE payment SET expires_at = clock() - interval '1 s'")
    page = await deposit.page()
    assert "The time to pay has run out." in page
    assert not await deposit.offers_address()


@pytest.mark.parametrize("reason", ["halted", "not watched"])
async def test_the_address_is_hidden_if_its_chain_is_not_watched(
    deposit: Deposit, reason: str
) -> None:
    database = deposit.api.world.database
    if reason == "halted":
        await chain_store.halt(database, "native", "test")
    else:
        await deposit.api.world.rows("UPDATE chain_cursor SET watched_until = clock()")
    assert (await deposit.status_text()).startswith("Native is unavailable at the moment.")
    assert not await deposit.offers_address()
    await deposit.api.world.rows("UPDATE chain_cursor SET halted = NULL")
    await chain_watch_store.mark_watched(database, "native", 0, WATCHED_S)
    assert await deposit.offers_address()


async def test_the_state_changes_whenever_the_page_would_change(deposit: Deposit) -> None:
    """`deposit.js` computes the same text from the session, and replaces the step if it differs."""
    states = [await deposit.state()]
    await deposit.receive(1)
    states.append(await deposit.state())
    await deposit.receive(1, _OTHER_TOKEN)
    states.append(await deposit.state())
    await chain_store.halt(deposit.api.world.database, "native", "test")
    states.append(await deposit.state())
    assert len(set(states)) == len(states)
    session = await deposit.view()
    amounts = [
        session[name]["amount_smallest_unit"] for name in ("received", "pending", "remaining")
    ]
    assert states[-1] == ",".join([*amounts, "chain_halted", "2"])


async def test_an_embedded_page_also_shows_the_address(deposit: Deposit) -> None:
    origin = "https://shop.test"
    await deposit.api.world.rows("UPDATE merchant SET allowed_origins = $1", [origin])
    page = await deposit.page(f"?embed_origin={origin}&nonce=n1")
    assert deposit.address in page.lower()
    assert re.search(r'<a href="ethereum:[^"]+" target="_top">', page)


async def test_a_contract_session_has_no_qr_code_of_an_address(api: Api) -> None:
    payment, _ = await bill(api.world, (await offer_tokens(api.world))["NATIVED"])
    assert (await api.send("GET", f"/c/{payment.checkout_id}/address.svg")).status == 404
    assert (await api.send("GET", f"/c/{payment.checkout_id}/wallet.svg")).status == 200


# Network selection


async def test_a_deposit_is_offered_with_its_usual_duration(api: Api) -> None:
    await offer_deposits(api.world, label="USDT on Native")
    created = await api.create(currency="USD", amount="25.50")
    page = (await api.send("GET", f"/c/{created.json['checkout_id']}")).body.decode()
    assert "Pay from an exchange or any wallet" in page
    assert "Usually " in page
    assert "deposit.js" in page  # the script is preloaded
    assert "onchain.js" not in page


async def test_the_native_coin_cannot_be_offered_at_a_deposit_address(api: Api) -> None:
    await add_contract(api.world, "native")
    account_id = await register_factory(api.world, "native")
    new = await api.world.perform(CreateMerchant(name="Third", methods="all"))
    methods = await api.world.perform(ListPaymentMethods(merchant_id=new.merchant.id))
    # The payment contract offers the coin.
    assert "NATIVED" in {method.token for method in methods}
    assert "NATIVED" not in {method.token for method in methods if method.account_id == account_id}
    with pytest.raises(BadRequestError, match="one of USDT"):
        await api.world.perform(
            AddPaymentMethod(
                merchant_id=api.world.merchant_id,
                account_id=account_id,
                kind="onchain",
                label="NATIVED",
                currencies=["NATIVED"],
                token="NATIVED",
            )
        )


async def test_the_gateway_does_not_issue_an_address_for_the_native_coin(api: Api) -> None:
    accounts = api.world.service.accounts
    gateway = accounts.gateway("onchain")
    await add_contract(api.world, "native")
    account = await accounts.get(await register_factory(api.world, "native"))
    assert gateway
    assert account
    payment = await api.world.create()
    request = GatewaySessionRequest(
        session_id=payment.id,
        amount_minor=10**18,
        currency="NATIVED",
        kind="onchain",
        country="TH",
        description="A-1",
        opened_at=payment.created_at,
        expires_at=payment.expires_at,
        return_url="",
        callback_url="",
    )
    result = await gateway.create_session(account, request)
    assert isinstance(result, SessionRejected)
    assert await api.world.rows("SELECT FROM deposit_address") == []


async def test_a_token_can_be_offered_by_wallet_and_by_deposit_address(api: Api) -> None:
    await offer_tokens(api.world)
    await offer_deposits(api.world)
    created = await api.create(currency="USD", amount="25.50")
    page = (await api.send("GET", f"/c/{created.json['checkout_id']}")).body.decode()
    for label in ("Connect your wallet", "Pay from an exchange or any wallet"):
        assert re.search(rf'<span class="name">USDT\w*<span class="soft">{label}</span>', page), (
            label
        )
    assert "onchain.js" in page
    assert "deposit.js" in page


def _quote(network: str, total: str, typical_s: int, **fields: Any) -> dict[str, Any]:
    return {
        "payment_method_id": 1,
        "kind": "onchain",
        "label": f"USDT on {network}",
        "currency": "USDT",
        "token": "USDT",
        "name": f"USDT on {network}",
        "chain_name": network,
        "typical_s": typical_s,
        "total_amount": total,
        "fee_mode": "INCLUSIVE",
        "fee_amount": "0",
        "estimated_tax": "0",
    } | fields


def test_networks_are_listed_cheapest_first_then_fastest_first() -> None:
    card = _quote("", "9", 0) | {"kind": "card", "label": "Card", "currency": "USD"}
    quotes = [
        _quote("Ethereum", "25.5", 900),
        card,
        _quote("BNB Smart Chain", "25.5", 5),
        _quote("Dear", "26", 1),
        _quote("Cheap", "9.5", 900),
    ]
    ordered = fastest_affordable_first(quotes)
    assert [quote["chain_name"] for quote in ordered] == [
        *("Cheap", ""),
        *("BNB Smart Chain", "Ethereum", "Dear"),
    ]
    [_, group] = group_methods(ordered, load_language("en"))
    choices = group.options[0].choices
    assert [(choice.name, choice.duration) for choice in choices[:2]] == [
        ("Cheap", "Usually about 15 minutes"),
        ("BNB Smart Chain", "Usually less than a minute"),
    ]


def test_the_network_fee_counts_as_a_cost_and_is_shown_in_cents() -> None:
    quotes = [
        _quote("Ethereum", "25.5", 5, network_fee=Decimal("0.5")),
        _quote("BNB Smart Chain", "25.5", 900, network_fee=Decimal("0.001")),
    ]
    [group] = group_methods(fastest_affordable_first(quotes), load_language("en"))
    assert [(choice.name, choice.network_fee) for choice in group.options[0].choices] == [
        ("BNB Smart Chain", "Network fee about 0.01\u00a0USD"),
        ("Ethereum", "Network fee about 0.50\u00a0USD"),
    ]


async def test_a_payment_that_needs_a_token_approval_costs_more_than_a_transfer(api: Api) -> None:
    await offer_tokens(api.world)
    await offer_deposits(api.world)
    await api.world.perform(SetChain(chain="native", transfer_fee_usd="0.5"))
    created = await api.create(currency="USD", amount="25.50")
    page = (await api.send("GET", f"/c/{created.json['checkout_id']}")).body.decode()
    fees = re.findall(r"Network fee about ([0-9.]+)", page)
    # A token transfer, the coin, and a token that needs an approval.
    assert sorted(fees) == ["0.50", "0.50", "1.10"]


@pytest.mark.parametrize("locale", LOCALES)
def test_a_duration_is_rounded_to_minutes(locale: str) -> None:
    language = load_language(locale)
    assert language.duration(59) == language.t("usual_soon")
    assert language.duration(89) == language.t("usual_one")
    assert "15" in language.duration(900)
