"""On-ramp orders, which are validated but not accepted, and the public list of chains."""

import json
from typing import Any

from payintent.chains.operations import AddContract, RetireContract, SetToken
from payintent.merchants.payable import RestrictionType
from payintent.merchants.restrictions import AddRestriction, LiftRestriction
from tests.support.arrange import refusal
from tests.support.world import Answer, Api

_REFUSED = (422, "UNSUPPORTED_COUNTRY")
_NOT_YET = (501, "NOT_IMPLEMENTED")


async def _order(api: Api, country: str, **more: Any) -> Answer:
    return await api.send("POST", "/v1/onramp/orders", json={"country": country, **more})


async def test_by_default_only_korea_is_restricted_and_orders_are_not_implemented(
    api: Api,
) -> None:
    assert refusal(await _order(api, "KR")) == _REFUSED
    for country in ("US", "JP", "ZZ"):
        assert refusal(await _order(api, country, amount="10", anything=[1])) == _NOT_YET, country


async def test_on_ramp_restrictions_are_independent_of_crypto_restrictions(api: Api) -> None:
    onramp = RestrictionType.ONRAMP
    await api.world.perform(AddRestriction(type=onramp, country="US"))
    await api.world.perform(LiftRestriction(type=onramp, country="KR"))
    await api.world.perform(AddRestriction(type=RestrictionType.CRYPTO, country="JP"))
    assert refusal(await _order(api, "US")) == _REFUSED
    assert refusal(await _order(api, "KR")) == _NOT_YET
    assert refusal(await _order(api, "JP")) == _NOT_YET


async def test_the_country_comes_from_the_body_not_from_edge_headers(api: Api) -> None:
    headers = {"CloudFront-Viewer-Country": "KR", "X-Forwarded-For": "192.0.2.1"}
    answer = await api.send("POST", "/v1/onramp/orders", json={"country": "US"}, headers=headers)
    assert refusal(answer) == _NOT_YET


async def test_a_body_without_a_valid_country_is_a_bad_request(api: Api) -> None:
    for body in (
        *(b"", b"{}", b"[]", b"null", b"{", b'{"country":null}', b'{"country":1}'),
        *(b'{"country":"kr"}', b'{"country":"KOR"}', b'{"country":""}', b'{"country":"K\\u0000"}'),
        '{"country":"ＫＲ"}'.encode(),
    ):
        answer = await api.send(
            "POST", "/v1/onramp/orders", data=body, headers={"Content-Type": "application/json"}
        )
        assert refusal(answer) == (400, "BAD_REQUEST"), body


async def test_an_order_must_be_posted_as_json(api: Api) -> None:
    assert refusal(await api.send("GET", "/v1/onramp/orders")) == (405, "BAD_REQUEST")
    form = await api.send("POST", "/v1/onramp/orders", data={"country": "KR"})
    assert refusal(form) == (415, "BAD_REQUEST")
    vast = {"country": "US", "note": "x" * 70_000}
    assert (await api.send("POST", "/v1/onramp/orders", json=vast)).status == 413


async def test_the_three_chains_have_the_network_ids_and_tokens_of_section_2_6(api: Api) -> None:
    await api.world.perform(SetToken(chain="native", symbol="USDT", address=f"0x{40 * '1'}"))
    chains = {}
    for slug in ("ethereum", "bsc", "native"):
        answer = await api.send("GET", f"/v1/chains/{slug}")
        assert answer.status == 200
        chains[answer.json["slug"]] = (
            answer.json["network_id"],
            {token["symbol"]: token["decimals"] for token in answer.json["tokens"]},
        )
    assert chains == {
        "ethereum": (1, {"USDC": 6, "USDT": 6}),
        "bsc": (56, {"USDC": 18, "USDT": 18}),
        "native": (612055, {"USDT": 18, "NATIVED": 18}),
    }


async def test_tokens_that_are_disabled_or_have_no_address_are_not_listed(api: Api) -> None:
    async def symbols(slug: str) -> list[str]:
        chain = (await api.send("GET", f"/v1/chains/{slug}")).json
        return [token["symbol"] for token in chain["tokens"]]

    assert await symbols("native") == ["NATIVED"]  # by default, USDT has no address on this chain
    assert await symbols("ethereum") == ["USDC", "USDT"]
    await api.world.perform(SetToken(chain="ethereum", symbol="USDT", enabled=False))
    assert await symbols("ethereum") == ["USDC"]


async def test_a_chain_without_our_contract_has_no_contract_fields(api: Api) -> None:
    contract_fields = {
        "contract_address",
        "contract_version",
        "contract_abi",
        "pay_function",
        "event_topics",
    }
    before = (await api.send("GET", "/v1/chains/bsc")).json
    assert (before.keys() & contract_fields, before["status"]) == (set(), "degraded")
    contract = await api.world.perform(
        AddContract(
            chain="bsc", address=f"0x{40 * '2'}", receiver=f"0x{40 * '3'}", deployed_block=7
        )
    )
    after = (await api.send("GET", "/v1/chains/bsc")).json
    assert contract_fields <= after.keys()
    abi_names = {item["name"] for item in after["contract_abi"]}
    assert abi_names == {"pay", "refund", "is_paid", "Paid", "Refunded"}
    await api.world.perform(RetireContract(account_id=contract.account_id))
    assert not (await api.send("GET", "/v1/chains/bsc")).json.keys() & contract_fields


async def test_a_chain_can_be_read_from_any_origin_and_is_not_cached(api: Api) -> None:
    answer = await api.send("GET", "/v1/chains/native", headers={"Origin": "https://shop.example"})
    assert answer.headers.getall("Access-Control-Allow-Origin") == ["*"]
    assert answer.headers.getall("Cache-Control") == ["no-store"]
    assert json.loads(answer.body)["name"] == "Native"


async def test_an_unknown_chain_is_not_found(api: Api) -> None:
    for slug in ("tron", "Ethereum", "1", "native%00", "native/", "..", "ethereum%20"):
        assert refusal(await api.send("GET", f"/v1/chains/{slug}")) == (404, "NOT_FOUND"), slug
