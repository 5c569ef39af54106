"""The merchant's catalog over HTTP: its content, its changes, and unchanged responses."""

import asyncio
import re
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest

from payintent.fraud.model import FraudRuleKind
from payintent.fraud.operations import AddFraudRule
from payintent.gateway_accounts.operations import ChangeAccount, DisableAccount, EnableAccount
from payintent.gateway_accounts.providers_operations import DisableProvider, EnableProvider
from payintent.merchants.access_operations import IssueApiKey
from payintent.merchants.activation import ApplyActivation, RequestActivation
from payintent.merchants.methods_operations import (
    AddPaymentMethod,
    ChangePaymentMethod,
    DisablePaymentMethod,
    EnablePaymentMethod,
)
from payintent.merchants.operations import SetCallbackUrl, SetMerchantProfile
from payintent.merchants.payable import RestrictionType
from payintent.merchants.restrictions import AddRestriction, LiftRestriction
from payintent.merchants.taxes import SetTaxRate
from payintent.runtime.settings import Settings
from tests.support.arrange import refusal
from tests.support.world import Answer, Api

_EDGE = {"X-Edge-Secret": "edge-secret"}
_FIAT_COUNTRIES = 52
CRYPTO, ONRAMP = RestrictionType.CRYPTO, RestrictionType.ONRAMP


@pytest.fixture
def settings(settings: Settings) -> Settings:
    secret = type(settings.edge_secret)("edge-secret")
    return settings.model_copy(update={"edge_secret": secret, "edge_trusted_proxies": "127.0.0.1"})


async def catalog(api: Api, key: str | None = None, **headers: str) -> Answer:
    http_headers = {name.replace("_", "-"): value for name, value in headers.items()}
    return await api.send("GET", "/v1/catalog", headers=api.bearer(key) | http_headers)


async def catalog_for_viewer(api: Api, country: str) -> Answer:
    return await catalog(api, CloudFront_Viewer_Country=country, X_Edge_Secret="edge-secret")


def currencies_by_country(answer: Answer) -> dict[str, list[str]]:
    assert answer.status == 200, answer.body
    return {
        country["country_code"]: [currency["currency"] for currency in country["currencies"]]
        for country in answer.json["countries"]
    }


def accept_tokens(api: Api) -> ChangePaymentMethod:
    return ChangePaymentMethod(method_id=api.world.transfer, currencies=["USD", "USDT", "NATIVED"])


async def test_the_catalog_has_the_fields_and_headers_of_sections_2_3_and_4_4(api: Api) -> None:
    await api.world.perform(
        ChangePaymentMethod(method_id=api.world.card, currencies=["JPY"], countries=["JP", "US"])
    )
    await api.world.perform(
        ChangePaymentMethod(
            method_id=api.world.transfer, currencies=["USDT"], countries=["JP", "GL"]
        )
    )
    answer = await catalog(api)
    assert (answer.status, answer.headers["Content-Type"]) == (200, "application/json")
    assert re.fullmatch(
        r'{"updated_at":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z","countries":\['
        r'{"country_code":"GL","name":"Global","currencies":\[{"currency":"USDT","decimals":4}\]},'
        r'{"country_code":"JP","name":"Japan","currencies":\[{"currency":"JPY","decimals":0},'
        r'{"currency":"USDT","decimals":4}\]}\]}',
        answer.body.decode(),
    ), answer.body
    assert answer.headers.getall("Cache-Control") == ["private, max-age=300"]
    assert answer.headers["Vary"] == "Authorization, CloudFront-Viewer-Country"
    assert re.fullmatch('"[0-9a-f]{32}"', answer.headers["ETag"])


async def test_countries_are_sorted_by_name_and_exclude_global_without_tokens(
    api: Api,
) -> None:
    answer = await catalog(api)
    names = [country["name"] for country in answer.json["countries"]]
    assert names == sorted(names)
    assert len(names) == _FIAT_COUNTRIES
    assert "GL" not in currencies_by_country(answer)
    assert (currencies_by_country(answer)["TH"], currencies_by_country(answer)["DE"]) == (
        ["THB"],
        ["USD"],
    )


async def test_an_unchanged_catalog_returns_304(api: Api) -> None:
    first = await catalog(api)
    etag = first.headers["ETag"]
    for etags in (etag, f"W/{etag}", f'"other", {etag}', "*"):
        response = await catalog(api, If_None_Match=etags)
        assert (response.status, response.body, response.headers["ETag"]) == (304, b"", etag), etags
        assert response.headers["Cache-Control"] == "private, max-age=300"
        assert response.headers["Vary"] == first.headers["Vary"]
    for unknown in ('"other"', "", ",", etag.strip('"'), f"w/{etag}"):
        response = await catalog(api, If_None_Match=unknown)
        assert (response.status, response.body) == (200, first.body), unknown


async def test_a_catalog_belongs_to_its_merchant_and_requires_a_key(api: Api) -> None:
    second_merchant = await api.world.add_merchant(methods="none")
    assert refusal(await api.send("GET", "/v1/catalog")) == (401, "UNAUTHORIZED")
    assert refusal(await catalog(api, "sk_live_nobody")) == (401, "UNAUTHORIZED")
    assert currencies_by_country(await catalog(api, second_merchant.api_key)) == {}
    own_catalog = await catalog(api)
    await api.world.perform(_method(api, second_merchant.merchant.id, ["THB"]))
    assert currencies_by_country(await catalog(api, second_merchant.api_key)) == {"TH": ["THB"]}
    assert (await catalog(api)).body == own_catalog.body
    mismatched = await catalog(
        api, second_merchant.api_key, If_None_Match=own_catalog.headers["ETag"]
    )
    assert mismatched.status == 200


async def test_the_catalog_changes_only_if_its_content_changes(api: Api) -> None:
    """Each operation changes both `updated_at` and the body, or neither."""
    world, merchant_id = api.world, api.world.merchant_id
    second_merchant = await world.add_merchant(methods="none")
    foreign_method = await world.perform(_method(api, second_merchant.merchant.id, ["THB"]))
    steps: list[tuple[Any, bool]] = [
        *((item, False) for item in _unrelated_changes(api, foreign_method.id)),
        # the card covers the same countries and currencies
        (
            DisablePaymentMethod(method_id=world.transfer),
            False,
        ),
        (DisablePaymentMethod(method_id=world.card), True),
        (EnablePaymentMethod(method_id=world.card), True),
        (DisableAccount(account_id=world.account_id), True),
        (EnableAccount(account_id=world.account_id), True),
        (DisableProvider(provider="fake"), True),
        (EnableProvider(provider="fake"), True),
        (ChangePaymentMethod(method_id=world.card, currencies=["THB", "USD"]), True),
        (ChangePaymentMethod(method_id=world.card, countries=["TH", "US"]), True),
        (_request(merchant_id, ["TH", "DE"], ["THB", "USD", "USDT"]), False),
        (ApplyActivation(merchant_id=merchant_id), True),
        (accept_tokens(api), False),  # the method is disabled
        (EnablePaymentMethod(method_id=world.transfer), True),
        (LiftRestriction(type=CRYPTO, country="DE"), True),
        (AddRestriction(type=CRYPTO, country="DE"), True),
        (AddRestriction(type=CRYPTO, country="DE"), False),  # already restricted
        (AddRestriction(type=CRYPTO, country="FR"), False),  # outside the merchant's market
        (AddRestriction(type=CRYPTO, country="KP"), False),  # not a supported country
        (AddRestriction(type=ONRAMP, country="DE"), False),
    ]
    before = await catalog(api)
    body_by_etag = {before.headers["ETag"]: before.body}
    for number, (operation, is_changed) in enumerate(steps, 1):
        await world.move_clock(10 * number)
        await world.perform(operation)
        after = await catalog(api)
        assert (_updated_at(after) > _updated_at(before)) is is_changed, operation
        assert (after.body != before.body) is is_changed, operation
        assert body_by_etag.setdefault(after.headers["ETag"], after.body) == after.body
        before = after
    assert len(set(body_by_etag.values())) == len(body_by_etag)


def _unrelated_changes(api: Api, foreign_method_id: int) -> list[Any]:
    world, merchant_id = api.world, api.world.merchant_id
    return [
        ChangePaymentMethod(
            method_id=world.card, fee_rate=Decimal("0.5"), label="Karte", position=7
        ),
        ChangePaymentMethod(method_id=foreign_method_id, currencies=["USD"]),
        DisablePaymentMethod(method_id=foreign_method_id),
        SetMerchantProfile(merchant_id=merchant_id, name="Other name", default_country="TH"),
        SetCallbackUrl(merchant_id=merchant_id),
        ChangeAccount(account_id=world.account_id, name="renamed"),
        EnableAccount(account_id=world.account_id),  # already enabled
        EnableProvider(provider="fake"),
        DisableProvider(provider="ecpay"),  # the merchant does not use it
        SetTaxRate(country="TH", rate=Decimal("0.07")),
        IssueApiKey(merchant_id=merchant_id, name="second"),
        AddFraudRule(kind=FraudRuleKind.COUNTRY, value="DE"),
        AddRestriction(type=CRYPTO, country="DE"),  # no tokens are offered yet
        _request(merchant_id, ["TH"], ["THB"]),
    ]


def _request(merchant_id: int, countries: list[str], currencies: list[str]) -> RequestActivation:
    return RequestActivation(
        merchant_id=merchant_id,
        countries=countries,
        currencies=currencies,
        contract="c-1",
        kyc="k-1",
    )


def _updated_at(answer: Answer) -> datetime:
    return datetime.fromisoformat(answer.json["updated_at"])


async def test_changes_to_an_already_disabled_method_do_not_change_the_catalog(
    api: Api,
) -> None:
    world = api.world
    account_id = await world.add_account("http://other.test", signing_secret="x")
    method = await world.perform(_method(api, world.merchant_id, ["USDT"], account_id))
    await world.perform(DisablePaymentMethod(method_id=method.id))
    before = await catalog(api)
    await world.move_clock(10)
    await world.perform(DisableAccount(account_id=account_id))
    assert (await catalog(api)).body == before.body
    await world.move_clock(20)
    await world.perform(EnablePaymentMethod(method_id=method.id))
    assert currencies_by_country(await catalog(api)) == currencies_by_country(before)
    await world.perform(EnableAccount(account_id=account_id))
    assert currencies_by_country(await catalog(api))["GL"] == ["USDT"]


async def test_restrictions_remove_crypto_for_a_country_and_for_its_viewers(
    api: Api,
) -> None:
    await api.world.perform(accept_tokens(api))
    unrestricted = await catalog(api)
    assert (
        currencies_by_country(unrestricted)["DE"]
        == currencies_by_country(unrestricted)["US"]
        == ["USD", "USDT", "NATIVED"]
    )
    await api.world.move_clock(10)
    await api.world.perform(AddRestriction(type=CRYPTO, country="DE"))
    await api.world.perform(AddRestriction(type=CRYPTO, country="GL"))
    restricted = await catalog(api)
    assert (currencies_by_country(restricted)["DE"], currencies_by_country(restricted)["US"]) == (
        ["USD"],
        currencies_by_country(unrestricted)["US"],
    )
    assert "GL" not in currencies_by_country(restricted)
    assert restricted.headers["ETag"] != unrestricted.headers["ETag"]
    viewer_catalog = await catalog_for_viewer(api, "DE")
    offered = {code for codes in currencies_by_country(viewer_catalog).values() for code in codes}
    assert offered == {"USD", "THB", "JPY", "TWD", "IDR", "PHP"}
    assert len(currencies_by_country(viewer_catalog)) == _FIAT_COUNTRIES
    assert viewer_catalog.headers["ETag"] != restricted.headers["ETag"]
    assert (await catalog_for_viewer(api, "US")).body == restricted.body
    forged = await catalog(api, CloudFront_Viewer_Country="DE")
    assert forged.body == restricted.body


async def test_restricting_an_unlisted_country_affects_only_its_viewers(
    api: Api,
) -> None:
    await api.world.perform(accept_tokens(api))
    before = await catalog(api)
    await api.world.move_clock(10)
    await api.world.perform(AddRestriction(type=CRYPTO, country="KR"))
    assert (await catalog(api)).body == before.body
    viewer_catalog = await catalog_for_viewer(api, "KR")
    assert "GL" not in currencies_by_country(viewer_catalog)
    assert viewer_catalog.json["updated_at"] > before.json["updated_at"]
    await api.world.move_clock(20)
    await api.world.perform(LiftRestriction(type=CRYPTO, country="KR"))
    lifted = await catalog_for_viewer(api, "KR")
    assert currencies_by_country(lifted) == currencies_by_country(before)
    assert lifted.json["updated_at"] > viewer_catalog.json["updated_at"]


async def test_a_restriction_does_not_change_a_catalog_without_tokens(api: Api) -> None:
    before = await catalog(api)
    for number, operation in enumerate(
        [AddRestriction(type=CRYPTO, country="DE"), LiftRestriction(type=CRYPTO, country="DE")], 1
    ):
        await api.world.move_clock(10 * number)
        await api.world.perform(operation)
        assert (
            (await catalog_for_viewer(api, "DE")).body == (await catalog(api)).body == before.body
        )


async def test_concurrent_first_requests_after_a_change_get_the_same_catalog(api: Api) -> None:
    for operation in (SetMerchantProfile(merchant_id=api.world.merchant_id), accept_tokens(api)):
        await api.world.perform(operation)
        answers = await asyncio.gather(*(catalog(api) for _ in range(12)))
        assert {answer.status for answer in answers} == {200}
        assert len({answer.headers["ETag"] for answer in answers}) == 1


def _method(
    api: Api, merchant_id: int, currencies: list[str], account_id: int | None = None
) -> AddPaymentMethod:
    return AddPaymentMethod(
        merchant_id=merchant_id,
        account_id=account_id or api.world.account_id,
        kind="card",
        label="Card",
        currencies=currencies,
    )
