"""If a country has a CRYPTO restriction, only token methods disappear."""

from typing import Any

import pytest

from payintent.fraud.model import FraudRuleKind
from payintent.fraud.operations import AddFraudRule
from payintent.merchants.payable import RestrictionType
from payintent.merchants.restrictions import AddRestriction, LiftRestriction
from payintent.runtime.settings import Settings
from tests.support.arrange import offers_tokens, payment_of, quotes, refusal, select
from tests.support.world import Answer, Api

_TOKENS = ["USDT", "NATIVED"]
CRYPTO = RestrictionType.CRYPTO


@pytest.fixture
def settings(settings: Settings) -> Settings:
    secret = type(settings.edge_secret)("edge-secret")
    return settings.model_copy(update={"edge_secret": secret, "edge_trusted_proxies": "127.0.0.1"})


def _viewed_from(country: str) -> dict[str, Any]:
    return {"headers": {"CloudFront-Viewer-Country": country, "X-Edge-Secret": "edge-secret"}}


def _currencies(answer: Answer) -> list[str]:
    assert answer.status == 200, answer.body
    return [quote["currency"] for quote in answer.json["quotes"]]


async def _create_in_usd(api: Api) -> Answer:
    await offers_tokens(api)
    return await api.create(currency="USD", amount="49.90")


async def _restrict(api: Api, country: str = "DE", kind: RestrictionType = CRYPTO) -> None:
    await api.world.perform(AddRestriction(type=kind, country=country))


async def test_tokens_are_not_quoted_in_a_restricted_country_or_to_its_viewers(
    api: Api,
) -> None:
    created = await _create_in_usd(api)
    await _restrict(api)
    for query, viewer, expected in (
        ("?country=DE", {}, ["USD"]),
        ("?country=US", {}, ["USD", *_TOKENS]),
        ("", {}, ["USD", *_TOKENS]),
        ("", _viewed_from("DE"), ["USD"]),
        ("?country=US", _viewed_from("DE"), ["USD"]),
        ("?country=DE", _viewed_from("US"), ["USD"]),
        ("?country=GL", _viewed_from("DE"), []),
        ("?country=US&currency=USDT", _viewed_from("DE"), []),
        ("?country=GL", _viewed_from("KR"), _TOKENS),
    ):
        assert _currencies(await quotes(api, created, query, **viewer)) == expected, (query, viewer)
    forged = {"headers": {"CloudFront-Viewer-Country": "DE"}}
    assert _currencies(await quotes(api, created, **forged)) == ["USD", *_TOKENS]


@pytest.mark.parametrize(
    ("country", "headers"),
    [
        ("T1", ["T1"]),  # Cloudflare's code for Tor
        ("T1", ["t1"]),
        ("XX", ["XX"]),  # Cloudflare's code for an unknown country
        ("XX", ["DE, FR"]),
        ("XX", ["Germany"]),
        ("XX", [""]),
        ("XX", ["DE", "FR"]),
    ],
)
async def test_edge_codes_for_an_unknown_country_can_be_restricted_and_blocked(
    api: Api, country: str, headers: list[str]
) -> None:
    created = await _create_in_usd(api)
    edge_headers = [("X-Edge-Secret", "edge-secret")]
    edge_headers += [("CloudFront-Viewer-Country", value) for value in headers]
    assert _currencies(await quotes(api, created, headers=edge_headers)) == ["USD", *_TOKENS]
    await _restrict(api, country)
    assert _currencies(await quotes(api, created, headers=edge_headers)) == ["USD"]
    assert _currencies(await quotes(api, created, **_viewed_from("DE"))) == ["USD", *_TOKENS]
    assert _currencies(await quotes(api, created)) == ["USD", *_TOKENS]
    await api.world.perform(AddFraudRule(kind=FraudRuleKind.COUNTRY, value=country))
    assert list((await quotes(api, created, headers=edge_headers)).json) == ["fds"]
    assert _currencies(await quotes(api, created)) == ["USD", *_TOKENS]
    await api.world.perform(LiftRestriction(type=CRYPTO, country=country))


async def test_the_remaining_quotes_are_unchanged(api: Api) -> None:
    created = await _create_in_usd(api)
    unrestricted = (await quotes(api, created, "?country=DE")).json
    await _restrict(api)
    restricted = (await quotes(api, created, "?country=DE")).json
    assert restricted == unrestricted | {"quotes": unrestricted["quotes"][:1]}


async def test_a_viewer_from_an_unsupported_country_can_be_restricted(api: Api) -> None:
    created = await _create_in_usd(api)
    await _restrict(api, "KR")
    answer = await quotes(api, created, **_viewed_from("KR"))
    assert (_currencies(answer), answer.json["country"]) == (["USD"], "US")


async def test_a_restricted_token_cannot_be_selected_and_opens_no_session(api: Api) -> None:
    created = await _create_in_usd(api)
    await _restrict(api)
    path = f"/v1/checkout/{created.json['checkout_id']}/quotes"
    for body, viewer in (({"country": "DE"}, {}), ({}, _viewed_from("DE"))):
        for currency in ({}, {"currency": "USDT"}):
            selection = {"payment_method_id": api.world.transfer, **body, **currency}
            answer = await api.send("POST", path, json=selection, **viewer)
            assert refusal(answer) == (422, "UNSUPPORTED_CURRENCY"), selection
    assert api.world.gateway.created == []
    assert (await payment_of(api, created)).status == "PENDING"
    card = {"payment_method_id": api.world.card}
    assert (await api.send("POST", path, json=card, **_viewed_from("DE"))).status == 200


async def test_the_page_offers_no_tokens_to_a_restricted_viewer(api: Api) -> None:
    created = await _create_in_usd(api)
    path = f"/c/{created.json['checkout_id']}"
    await _restrict(api)
    unrestricted = (await api.send("GET", path, **_viewed_from("US"))).body.decode()
    restricted = (await api.send("GET", path, **_viewed_from("DE"))).body.decode()
    assert "USDT" in unrestricted
    assert "USDT" not in restricted
    assert '/select"' in restricted
    token = {"method": f"{api.world.transfer}|USDT|"}
    answer = await api.send("POST", f"{path}/select", data=token, **_viewed_from("DE"))
    assert answer.status == 422
    assert api.world.gateway.created == []


async def test_a_token_selected_before_a_restriction_stays_selected(api: Api) -> None:
    created = await _create_in_usd(api)
    selection = await select(api, created, payment_method_id=api.world.transfer, currency="USDT")
    assert selection.status == 200
    await _restrict(api)
    payment = await payment_of(api, created)
    view = await api.send(
        "GET", f"/v1/checkout/{created.json['checkout_id']}", **_viewed_from("DE")
    )
    assert view.json["selected"]["currency"] == "USDT"
    assert (payment.status, api.world.gateway.closed) == ("PROCESSING", [])


async def test_lifted_and_on_ramp_restrictions_do_not_affect_quotes(
    api: Api,
) -> None:
    created = await _create_in_usd(api)
    await _restrict(api)
    await _restrict(api, kind=RestrictionType.ONRAMP)
    await api.world.perform(LiftRestriction(type=CRYPTO, country="DE"))
    answer = await quotes(api, created, "?country=DE", **_viewed_from("DE"))
    assert _currencies(answer) == ["USD", *_TOKENS]
    created = await api.create(currency="USD", amount="1", country="DE")
    assert created.status == 201  # restrictions do not apply to creating payments


async def test_a_token_payment_has_no_quotes_in_a_restricted_country(
    api: Api,
) -> None:
    await offers_tokens(api)
    created = await api.create(currency="USDT", amount="1.5")
    await _restrict(api)
    assert _currencies(await quotes(api, created, "?country=DE")) == []
    assert _currencies(await quotes(api, created, "?country=US")) == ["USDT"]
