"""Catalog, creation and quotes agree on the payable currencies when something is disabled."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from payintent.chains.operations import SetToken
from payintent.gateway_accounts.operations import ChangeAccount, DisableAccount, EnableAccount
from payintent.gateway_accounts.providers_operations import DisableProvider, EnableProvider
from payintent.gateways.port import GatewayCapabilities
from payintent.merchants.methods_operations import DisablePaymentMethod, EnablePaymentMethod
from payintent.runtime.settings import Settings
from payintent.service import Service
from tests.support.arrange import quotes, refusal, select
from tests.support.contracts import contract_service, offer_tokens
from tests.support.fakes import FakeGateway
from tests.support.world import Answer, Api

_UNSUPPORTED = (422, "UNSUPPORTED_CURRENCY")
_INVALID = (422, "INVALID_AMOUNT")


@pytest.fixture
async def service(settings: Settings, gateway: FakeGateway) -> AsyncIterator[Service]:
    async with contract_service(settings, gateway) as service:
        yield service


async def catalog(api: Api) -> Answer:
    answer = await api.send("GET", "/v1/catalog", headers=api.bearer())
    assert answer.status == 200
    return answer


async def list_currencies(api: Api) -> set[str]:
    """Return all currencies in the catalog."""
    countries = (await catalog(api)).json["countries"]
    return {currency["currency"] for country in countries for currency in country["currencies"]}


async def create(api: Api, currency: str, amount: str = "10") -> Answer:
    return await api.create(currency=currency, amount=amount, include_pegged_assets=False)


async def get_offers(api: Api, currency: str, created: Answer) -> tuple[bool, bool, bool]:
    """Return whether catalog, creation and an earlier payment's quotes offer a currency."""
    response = await create(api, currency)
    assert response.status == 201 or refusal(response) == _UNSUPPORTED
    offered = (await quotes(api, created)).json["quotes"]
    return currency in await list_currencies(api), response.status == 201, bool(offered)


def _run_query(query: str) -> Callable[[Api], Any]:
    async def change(api: Api) -> None:
        await api.world.rows(query)

    return change


def _perform(operation: Callable[[Api], Any]) -> Callable[[Api], Any]:
    async def change(api: Api) -> None:
        await api.world.perform(operation(api))

    return change


_NO_DOLLARS = {"decimals": {"THB": 2, "JPY": 0}}
_NOT_IN_DOLLAR_COUNTRIES = {"decimals": None, "countries": frozenset({"TH", "JP"})}
_SWITCHES: dict[str, tuple[str, Callable[[Api], Any], Callable[[Api], Any]]] = {
    "account": (
        "USD",
        _perform(lambda api: DisableAccount(account_id=api.world.account_id)),
        _perform(lambda api: EnableAccount(account_id=api.world.account_id)),
    ),
    "account's countries": (
        "USD",
        _perform(lambda api: ChangeAccount(account_id=api.world.account_id, countries=["TH"])),
        _perform(lambda api: ChangeAccount(account_id=api.world.account_id, countries=[])),
    ),
    "provider": (
        "USD",
        _perform(lambda _: DisableProvider(provider="fake")),
        _perform(lambda _: EnableProvider(provider="fake")),
    ),
    "method": (
        "USDT",
        _run_query("UPDATE payment_method SET enabled = false WHERE token = 'USDT'"),
        _run_query("UPDATE payment_method SET enabled = true"),
    ),
    "token": (
        "USDT",
        _perform(lambda _: SetToken(chain="bsc", symbol="USDT", enabled=False)),
        _perform(lambda _: SetToken(chain="bsc", symbol="USDT", enabled=True)),
    ),
    "address": (
        "USDT",
        _run_query("UPDATE chain_token SET address = NULL WHERE chain = 'bsc'"),
        _run_query("UPDATE chain_token SET address = decode(repeat('01', 20), 'hex') "
              "WHERE chain = 'bsc' AND symbol = 'USDT'"),
    ),
    "chain": (
        "USDT",
        _run_query("UPDATE chain_cursor SET halted = 'a test'"),
        _run_query("UPDATE chain_cursor SET halted = NULL"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("switch", _SWITCHES)
async def test_a_disabled_currency_disappears_from_the_catalog_creation_and_quotes(
    api: Api, switch: str
) -> None:
    currency, off, on = _SWITCHES[switch]
    await offer_tokens(api.world, "bsc")
    created = await create(api, currency)
    assert await get_offers(api, currency, created) == (True, True, True)
    before = await catalog(api)
    await api.world.move_clock(10)
    await off(api)
    assert await get_offers(api, currency, created) == (False, False, False)
    without = await catalog(api)
    assert without.headers["ETag"] != before.headers["ETag"]
    assert without.json["updated_at"] > before.json["updated_at"]
    await api.world.move_clock(20)
    await on(api)
    assert await get_offers(api, currency, created) == (True, True, True)
    after = await catalog(api)
    assert after.json["countries"] == before.json["countries"]
    assert after.json["updated_at"] > without.json["updated_at"]


@pytest.mark.parametrize("restrictions", [_NO_DOLLARS, _NOT_IN_DOLLAR_COUNTRIES])
async def test_an_unsupported_currency_disappears_from_the_catalog_creation_and_quotes(
    api: Api, gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch, restrictions: dict[str, Any]
) -> None:
    created = await create(api, "USD")
    assert await get_offers(api, "USD", created) == (True, True, True)
    before = await catalog(api)
    await api.world.move_clock(10)
    capabilities = GatewayCapabilities(credentials=frozenset({"signing_secret"}), **restrictions)
    monkeypatch.setattr(gateway, "capabilities", capabilities)
    # Capabilities change only when a process starts. This update makes it read the merchant again.
    await api.world.rows("UPDATE merchant SET name = name")
    assert await get_offers(api, "USD", created) == (False, False, False)
    assert (await catalog(api)).json["updated_at"] > before.json["updated_at"]
    assert refusal(await select(api, created)) == _UNSUPPORTED


async def test_pegged_tokens_make_only_usd_payable(api: Api) -> None:
    await api.world.perform(DisablePaymentMethod(method_id=api.world.card))
    await api.world.perform(DisablePaymentMethod(method_id=api.world.transfer))
    assert refusal(await api.create(currency="USD", amount="10")) == _UNSUPPORTED
    await offer_tokens(api.world, "bsc")
    assert (await api.create(currency="USD", amount="10")).status == 201
    assert refusal(await create(api, "USD")) == _UNSUPPORTED
    assert refusal(await api.create()) == _UNSUPPORTED
    await api.world.rows("UPDATE chain_cursor SET halted = 'a test'")
    assert refusal(await api.create(currency="USD", amount="10")) == _UNSUPPORTED


async def test_an_amount_with_more_decimals_than_any_token_is_refused(api: Api) -> None:
    await offer_tokens(api.world, "ethereum")  # 6 decimals
    six_decimals, seven_decimals = "1.000001", "1.0000001"
    assert (await create(api, "USDT", six_decimals)).status == 201
    response = await create(api, "USDT", seven_decimals)
    assert refusal(response) == _INVALID
    assert "6 decimals" in response.json["message"]
    with_trailing_zeros = await create(api, "USDT", "1." + "0" * 18)
    assert with_trailing_zeros.status == 201
    await offer_tokens(api.world, "bsc")  # 18 decimals
    assert (await create(api, "USDT", seven_decimals)).status == 201
    await api.world.perform(SetToken(chain="bsc", symbol="USDT", enabled=False))
    assert refusal(await create(api, "USDT", seven_decimals)) == _INVALID


async def test_updated_at_does_not_change_if_another_method_offers_the_same_currencies(
    api: Api,
) -> None:
    before = await catalog(api)
    for number, operation in enumerate(
        [
            DisablePaymentMethod(method_id=api.world.transfer),
            EnablePaymentMethod(method_id=api.world.transfer),
        ],
        1,
    ):
        await api.world.move_clock(10 * number)
        await api.world.perform(operation)
        after = await catalog(api)
        assert (after.body, after.headers["ETag"]) == (before.body, before.headers["ETag"])


async def test_a_change_that_is_reverted_before_a_read_does_not_change_updated_at(api: Api) -> None:
    before = await catalog(api)
    await api.world.move_clock(10)
    await api.world.perform(DisableAccount(account_id=api.world.account_id))
    await api.world.perform(EnableAccount(account_id=api.world.account_id))
    assert (await catalog(api)).body == before.body
