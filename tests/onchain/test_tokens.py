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


async def quoted(api: Api, checkout_id: str) -> list[dict[str, Any]]:
    return (await api.send("GET", f"/v1/checkout/{checkout_id}/quotes")).json["quotes"]


async def refusal(ground: ChainWorld, payment: Any, method: int) -> ErrorCode:
    with pytest.raises(RefusedError) as refused:
        await ground.world.select(payment, method)
    return refused.value.code


async def test_a_token_that_is_not_taken_is_not_offered_and_cannot_be_selected(
    ground: ChainWorld, api: Api
) -> None:
    payment = await ground.world.create(currency="USD")
    await ground.world.perform(SetToken(chain="native", symbol="USDT", enabled=False))
    tokens = {one.get("token") for one in await quoted(api, payment.checkout_id)}
    assert tokens == {None, "NATIVED"}
    found = await refusal(ground, payment, ground.methods["USDT"])
    assert found is ErrorCode.PAYMENT_TOKEN_NOT_AVAILABLE
    listed = (await api.send("GET", "/v1/chains/native")).json["tokens"]
    assert {one["symbol"] for one in listed} == {"NATIVED"}


async def test_what_was_selected_before_a_token_was_disabled_can_still_be_paid(
    ground: ChainWorld,
) -> None:
    payment, session = await ground.bill("USDT")
    await ground.world.perform(SetToken(chain="native", symbol="USDT", enabled=False))
    await ground.pay(session)
    await ground.final()
    assert await ground.status(payment) == "PAID"


async def test_an_amount_of_eighteen_decimals_leaves_ethereum_out(
    ethereum: ChainWorld, api: Api
) -> None:
    text = "1.000000000000000001"
    fields = {"currency": "USDT", "amount": Decimal(text), "amount_text": text}
    payment = await ethereum.world.create(**fields)
    assert await quoted(api, payment.checkout_id) == []
    found = await refusal(ethereum, payment, ethereum.methods["USDT"])
    assert found is ErrorCode.INVALID_AMOUNT
    path = f"/v1/checkout/{payment.checkout_id}/quotes"
    body = {"payment_method_id": ethereum.methods["USDT"]}
    told = await api.send("POST", path, json=body)
    assert (told.status, told.json["code"]) == (422, "INVALID_AMOUNT")
    held = await ethereum.world.create(
        currency="USDT", amount=Decimal("1.000001"), amount_text="1.000001"
    )
    [one] = await quoted(api, held.checkout_id)
    assert one["total_amount"] == "1.000001"


async def test_a_disabled_token_is_neither_offered_nor_accepted(
    ethereum: ChainWorld, api: Api
) -> None:
    known = await chain_store.list_tokens(ethereum.world.database, "ethereum")
    assert {one.symbol: one.enabled for one in known} == {"USDC": True, "USDT": True}
    method = await offer(ethereum.world, ethereum.account_id, "USDC")
    await ethereum.world.perform(SetToken(chain="ethereum", symbol="USDC", enabled=False))
    payment = await ethereum.world.create(currency="USD")
    assert "USDC" not in {one.get("token") for one in await quoted(api, payment.checkout_id)}
    assert await refusal(ethereum, payment, method) is ErrorCode.PAYMENT_TOKEN_NOT_AVAILABLE


async def test_a_token_that_is_listed_and_not_taken_is_refused_as_an_unsupported_currency(
    ethereum: ChainWorld, api: Api
) -> None:
    payment = await ethereum.world.create(currency="USD")

    async def told(currency: str) -> tuple[int, str | None]:
        path = f"/v1/checkout/{payment.checkout_id}/quotes?currency={currency}"
        answer = await api.send("GET", path)
        return answer.status, answer.json.get("code")

    unsupported = await told("THB")
    assert unsupported == (422, "UNSUPPORTED_CURRENCY")
    assert await told("USDC") == unsupported  # no method for it
    await offer(ethereum.world, ethereum.account_id, "USDC")
    await ethereum.world.perform(SetToken(chain="ethereum", symbol="USDC", enabled=False))
    assert await told("USDC") == unsupported  # a method, and the token is disabled
    assert await told("USDT") == (200, None)
    await ethereum.world.perform(SetToken(chain="ethereum", symbol="USDC", enabled=True))
    assert await told("USDC") == (200, None)
    await ethereum.world.perform(SetToken(chain="ethereum", symbol="USDT", enabled=False))
    assert await told("USDT") == unsupported
    await ethereum.world.perform(DisableAccount(account_id=ethereum.account_id))
    assert await told("USDC") == unsupported


async def test_usdc_pays_dollars_and_no_payment_can_be_created_in_it(
    ethereum: ChainWorld, api: Api
) -> None:
    world = ethereum.world
    catalog = await api.send("GET", "/v1/catalog", headers=api.bearer())
    ethereum.methods["USDC"] = await offer(world, ethereum.account_id, "USDC")
    told = await api.create(currency="USDC", amount="25.50")
    assert (told.status, told.json["code"]) == (400, "INVALID_CURRENCY")
    after = await api.send("GET", "/v1/catalog", headers=api.bearer())
    assert after.json["countries"] == catalog.json["countries"]

    payment, session = await ethereum.bill("USDC")
    [quote] = [one for one in await quoted(api, payment.checkout_id) if one.get("token") == "USDC"]
    assert quote["total_amount"] == "25.5"
    await ethereum.pay(session)
    await ethereum.final()
    assert await ethereum.status(payment) == "PAID"
    [capture] = await world.rows("SELECT currency, amount_minor, credited FROM capture")
    assert dict(capture) == {"currency": "USDC", "amount_minor": 25_500_000, "credited": True}


async def test_a_merchant_with_usdc_alone_can_ask_for_dollars(
    ethereum: ChainWorld, api: Api
) -> None:
    world = ethereum.world
    await world.perform(SetToken(chain="ethereum", symbol="USDC", enabled=True))
    await world.rows("DELETE FROM payment_method")
    told = await api.create(currency="USD", amount="1.00")
    assert (told.status, told.json["code"]) == (422, "UNSUPPORTED_CURRENCY")
    await offer(world, ethereum.account_id, "USDC")
    assert (await api.create(key=str(uuid4()), currency="USD", amount="1.00")).status == 201
    assert (await api.create(currency="USDT", amount="1.00")).status == 422
    assert (await api.create(currency="USD", amount="1", include_pegged_assets=False)).status == 422


async def test_a_chain_whose_token_counts_otherwise_is_not_watched(ethereum: ChainWorld) -> None:
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
    assert not await token_decimals_match("ethereum", ethereum.reader, tokens)  # nobody is there
