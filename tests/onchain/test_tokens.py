"""Tokens: the offered tokens, the supported amounts, and a token that is only for settlement."""

from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest

from payintent.chains import store as chain_store
from payintent.chains.checks import token_decimals_match
from payintent.chains.operations import SetToken
from payintent.core.errors import ErrorCode, RefusedError
from payintent.gateway_accounts.operations import DisableAccount
from tests.support.onchain import ChainWorld, offer
from tests.support.world import Api

pytestmark = pytest.mark.full


async def list_quotes(api: Api, checkout_id: str) -> list[dict[str, Any]]:
    return (await api.send("GET", f"/v1/checkout/{checkout_id}/quotes")).json["quotes"]


async def refusal(ground: ChainWorld, payment: Any, method: int) -> ErrorCode:
    with pytest.raises(RefusedError) as refused:
        await ground.world.select(payment, method)
    return refused.value.code


async def test_a_disabled_token_is_not_offered_listed_or_selectable(
    ground: ChainWorld, api: Api
) -> None:
    payment = await ground.world.create(currency="USD")
    await ground.world.perform(SetToken(chain="native", symbol="USDT", enabled=False))
    tokens = {quote.get("token") for quote in await list_quotes(api, payment.checkout_id)}
    assert tokens == {None, "NATIVED"}
    error = await refusal(ground, payment, ground.methods["USDT"])
    assert error is ErrorCode.PAYMENT_TOKEN_NOT_AVAILABLE
    tokens_of_chain = (await api.send("GET", "/v1/chains/native")).json["tokens"]
    assert {token["symbol"] for token in tokens_of_chain} == {"NATIVED"}


async def test_a_payment_selected_before_its_token_was_disabled_can_be_paid(
    ground: ChainWorld,
) -> None:
    payment, session = await ground.bill("USDT")
    await ground.world.perform(SetToken(chain="native", symbol="USDT", enabled=False))
    await ground.pay(session)
    await ground.final()
    assert await ground.status(payment) == "PAID"


async def test_a_chain_is_not_offered_if_its_token_has_too_few_decimals(
    ethereum: ChainWorld, api: Api
) -> None:
    text = "1.000000000000000001"
    fields = {"currency": "USDT", "amount": Decimal(text), "amount_text": text}
    payment = await ethereum.world.create(**fields)
    assert await list_quotes(api, payment.checkout_id) == []
    error = await refusal(ethereum, payment, ethereum.methods["USDT"])
    assert error is ErrorCode.INVALID_AMOUNT
    path = f"/v1/checkout/{payment.checkout_id}/quotes"
    body = {"payment_method_id": ethereum.methods["USDT"]}
    response = await api.send("POST", path, json=body)
    assert (response.status, response.json["code"]) == (422, "INVALID_AMOUNT")
    payable = await ethereum.world.create(
        currency="USDT", amount=Decimal("1.000001"), amount_text="1.000001"
    )
    [quote] = await list_quotes(api, payable.checkout_id)
    assert quote["total_amount"] == "1.000001"


async def test_a_disabled_token_is_neither_offered_nor_accepted(
    ethereum: ChainWorld, api: Api
) -> None:
    tokens = await chain_store.list_tokens(ethereum.world.database, "ethereum")
    assert {token.symbol: token.enabled for token in tokens} == {"USDC": True, "USDT": True}
    method = await offer(ethereum.world, ethereum.account_id, "USDC")
    await ethereum.world.perform(SetToken(chain="ethereum", symbol="USDC", enabled=False))
    payment = await ethereum.world.create(currency="USD")
    assert "USDC" not in {
        quote.get("token") for quote in await list_quotes(api, payment.checkout_id)
    }
    assert await refusal(ethereum, payment, method) is ErrorCode.PAYMENT_TOKEN_NOT_AVAILABLE


async def test_quotes_in_a_disabled_token_are_rejected_as_an_unsupported_currency(
    ethereum: ChainWorld, api: Api
) -> None:
    payment = await ethereum.world.create(currency="USD")

    async def request_quotes(currency: str) -> tuple[int, str | None]:
        path = f"/v1/checkout/{payment.checkout_id}/quotes?currency={currency}"
        response = await api.send("GET", path)
        return response.status, response.json.get("code")

    unsupported = await request_quotes("THB")
    assert unsupported == (422, "UNSUPPORTED_CURRENCY")
    assert await request_quotes("USDC") == unsupported  # there is no method for USDC
    await offer(ethereum.world, ethereum.account_id, "USDC")
    await ethereum.world.perform(SetToken(chain="ethereum", symbol="USDC", enabled=False))
    assert await request_quotes("USDC") == unsupported  # the method's token is disabled
    assert await request_quotes("USDT") == (200, None)
    await ethereum.world.perform(SetToken(chain="ethereum", symbol="USDC", enabled=True))
    assert await request_quotes("USDC") == (200, None)
    await ethereum.world.perform(SetToken(chain="ethereum", symbol="USDT", enabled=False))
    assert await request_quotes("USDT") == unsupported
    await ethereum.world.perform(DisableAccount(account_id=ethereum.account_id))
    assert await request_quotes("USDC") == unsupported


async def test_usdc_can_settle_usd_payments_but_is_not_a_payment_currency(
    ethereum: ChainWorld, api: Api
) -> None:
    world = ethereum.world
    catalog = await api.send("GET", "/v1/catalog", headers=api.bearer())
    ethereum.methods["USDC"] = await offer(world, ethereum.account_id, "USDC")
    response = await api.create(currency="USDC", amount="25.50")
    assert (response.status, response.json["code"]) == (400, "INVALID_CURRENCY")
    after = await api.send("GET", "/v1/catalog", headers=api.bearer())
    assert after.json["countries"] == catalog.json["countries"]

    payment, session = await ethereum.bill("USDC")
    [quote] = [
        quote
        for quote in await list_quotes(api, payment.checkout_id)
        if quote.get("token") == "USDC"
    ]
    assert quote["total_amount"] == "25.5"
    await ethereum.pay(session)
    await ethereum.final()
    assert await ethereum.status(payment) == "PAID"
    [capture] = await world.rows("SELECT currency, amount_minor, credited FROM capture")
    assert dict(capture) == {"currency": "USDC", "amount_minor": 25_500_000, "credited": True}


async def test_a_merchant_with_only_usdc_can_create_usd_payments(
    ethereum: ChainWorld, api: Api
) -> None:
    world = ethereum.world
    await world.perform(SetToken(chain="ethereum", symbol="USDC", enabled=True))
    await world.rows("DELETE FROM payment_method")
    response = await api.create(currency="USD", amount="1.00")
    assert (response.status, response.json["code"]) == (422, "UNSUPPORTED_CURRENCY")
    await offer(world, ethereum.account_id, "USDC")
    assert (await api.create(key=str(uuid4()), currency="USD", amount="1.00")).status == 201
    assert (await api.create(currency="USDT", amount="1.00")).status == 422
    assert (await api.create(currency="USD", amount="1", include_pegged_assets=False)).status == 422


async def test_wrong_decimals_or_a_missing_token_contract_are_detected(
    ethereum: ChainWorld,
) -> None:
    database = ethereum.world.database
    assert await token_decimals_match(
        "ethereum", ethereum.reader, await chain_store.list_tokens(database, "ethereum")
    )
    await ethereum.world.perform(SetToken(chain="ethereum", symbol="USDT", decimals=18))
    tokens = await chain_store.list_tokens(database, "ethereum")
    assert not await token_decimals_match("ethereum", ethereum.reader, tokens)
    await ethereum.world.perform(
        SetToken(chain="ethereum", symbol="USDT", decimals=6, address="0x" + 40 * "1")
    )
    tokens = await chain_store.list_tokens(database, "ethereum")
    assert not await token_decimals_match(
        "ethereum", ethereum.reader, tokens
    )  # the address has no contract
