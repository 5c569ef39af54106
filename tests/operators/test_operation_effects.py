"""Each operation and its effects on keys, quotes, catalogs and callbacks."""

import base64
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from payintent.core.access import RateLimitClass
from payintent.core.errors import ErrorCode, RefusedError
from payintent.fraud.model import FraudRuleKind, RiskLevel
from payintent.fraud.operations import (
    AddFraudRule,
    ListFraudDecisions,
    ListFraudRules,
    RemoveFraudRule,
)
from payintent.gateway_accounts.operations import (
    AddAccount,
    ChangeAccount,
    CheckAccount,
    DisableAccount,
    EnableAccount,
    ListAccounts,
    ShowAccount,
)
from payintent.gateway_accounts.providers_operations import (
    DisableProvider,
    EnableProvider,
    ListProviders,
    RenameProvider,
)
from payintent.gateways.port import AccountCheck, AccountProblem
from payintent.merchants import callback_secrets
from payintent.merchants.access_operations import (
    ClearRateLimit,
    IssueApiKey,
    ListApiKeys,
    ListRateLimits,
    RevokeApiKey,
    SetRateLimit,
)
from payintent.merchants.callback_secrets import RotateCallbackSecret
from payintent.merchants.methods_operations import (
    AddPaymentMethod,
    ChangePaymentMethod,
    DisablePaymentMethod,
    EnablePaymentMethod,
    ListPaymentMethods,
)
from payintent.merchants.model import FeeMode, TaxCountry, TaxManager
from payintent.merchants.operations import (
    CreateMerchant,
    ListMerchants,
    SetCallbackUrl,
    SetMerchantProfile,
    ShowMerchant,
)
from payintent.merchants.payable import RestrictionType
from payintent.merchants.restrictions import AddRestriction, LiftRestriction, ListRestrictions
from payintent.merchants.taxes import ListTaxRates, RemoveTaxRate, SetTaxRate
from payintent.operators.operations import ListOperatorTokens, RevokeOperatorToken
from payintent.runtime.settings import Settings
from payintent.service import open_service
from payintent.webhooks.operations import ResendEvent, ResendMissedEvents
from tests.support.arrange import cancel, offers_tokens, quotes, refusal, select, view
from tests.support.fakes import FakeGateway
from tests.support.world import Answer, Api, World


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Reload the policies for every request."""
    return settings.model_copy(update={"policy_cache_s": 0.0})


async def _list_quotes(api: Api, created: Answer, query: str = "?country=TH") -> list[Any]:
    return (await quotes(api, created, query)).json["quotes"]


async def _catalog(api: Api, key: str | None = None) -> dict[str, set[str]]:
    """Return the payable currencies and countries."""
    answer = await api.send("GET", "/v1/catalog", headers=api.bearer(key))
    return {
        country["country_code"]: {currency["currency"] for currency in country["currencies"]}
        for country in answer.json["countries"]
    }


async def test_a_new_merchant_gets_a_working_api_key_and_a_callback_secret(api: Api) -> None:
    new = await api.world.perform(CreateMerchant(name="Third", methods="all"))
    assert {"THB", "JPY"} <= {code for codes in (await _catalog(api, new.api_key)).values()
                              for code in codes}  # fmt: skip
    [sealed] = (await callback_secrets.list_secrets(api.world.database, [new.merchant.id], 10))[
        new.merchant.id
    ]
    secret = api.world.service.encryption.decrypt(
        sealed.sealed, f"callback_secret:{new.merchant.id}:{sealed.id}"
    )
    assert new.callback_secret == "whsec_" + base64.b64encode(secret).decode()
    merchants = await api.world.perform(ListMerchants())
    merchant = await api.world.perform(ShowMerchant(merchant_id=new.merchant.id))
    assert merchants[-1] == merchant == new.merchant
    assert merchant.auto_refund, "automatic refunds are not enabled by default"
    assert (await api.world.perform(ListMerchants(limit=1))) == merchants[:1]
    merchant_without_methods = await api.world.perform(CreateMerchant(name="Fourth"))
    assert await _catalog(api, merchant_without_methods.api_key) == {}


async def test_buyers_see_the_merchant_profile_and_omitted_fields_are_unchanged(api: Api) -> None:
    merchant_id = api.world.merchant_id
    created = await api.create(currency="USD", amount="10.00")
    await api.world.perform(
        SetMerchantProfile(
            merchant_id=merchant_id,
            logo_url="https://shop.example.com/logo.png",
            return_url="https://shop.example.com/thanks",
            default_country="FR",
        )
    )
    await api.world.perform(SetMerchantProfile(merchant_id=merchant_id, name="Nimbus & Sons"))
    checkout = (await view(api, created)).json
    assert checkout["merchant"] == {
        "name": "Nimbus & Sons",
        "logo_url": "https://shop.example.com/logo.png",
    }
    assert checkout["return_url"] == "https://shop.example.com/thanks"
    quote_list = (await quotes(api, created)).json
    assert (quote_list["country"], quote_list["country_source"]) == ("FR", "default")
    await api.world.perform(SetMerchantProfile(merchant_id=merchant_id, logo_url="", return_url=""))
    checkout = (await view(api, created)).json
    assert checkout["merchant"] == {"name": "Nimbus & Sons"}
    assert "return_url" not in checkout


async def test_a_selection_can_return_to_an_allowed_origin(api: Api) -> None:
    created = await api.create()
    urls = {"return_url": "https://app.example.com/done"}
    assert refusal(await select(api, created, **urls)) == (400, "BAD_REQUEST")
    allowed = SetMerchantProfile(
        merchant_id=api.world.merchant_id, allowed_origins=["https://app.example.com"]
    )
    assert (await api.world.perform(allowed)).allowed_origins == ("https://app.example.com",)
    assert (await select(api, created, **urls)).status == 200
    cleared = SetMerchantProfile(merchant_id=api.world.merchant_id, allowed_origins=[])
    assert (await api.world.perform(cleared)).allowed_origins == ()


async def test_a_tax_rate_applies_to_quotes_if_the_service_manages_the_merchants_tax(
    api: Api,
) -> None:
    before = await api.create()
    await api.world.perform(SetTaxRate(country="TH", rate=Decimal("0.07")))
    managed = SetMerchantProfile(merchant_id=api.world.merchant_id, tax_manager=TaxManager.SERVICE)
    await api.world.perform(managed)
    created = await api.create(amount="100.00")
    assert {item["estimated_tax"] for item in await _list_quotes(api, created)} == {"7.00"}
    # A payment keeps the tax manager that it was created with.
    assert {item["estimated_tax"] for item in await _list_quotes(api, before)} == {"0"}
    await api.world.perform(SetTaxRate(country="TH", rate=Decimal("0.1")))
    [tax_rate] = await api.world.perform(ListTaxRates())
    assert (tax_rate.country, tax_rate.rate) == ("TH", Decimal("0.1"))
    assert {item["estimated_tax"] for item in await _list_quotes(api, created)} == {"10.00"}
    await api.world.perform(RemoveTaxRate(country="TH"))
    assert {item["estimated_tax"] for item in await _list_quotes(api, created)} == {"0"}
    assert await api.world.perform(ListTaxRates()) == []


async def test_with_merchant_tax_country_the_buyers_selection_does_not_change_the_tax(
    api: Api,
) -> None:
    merchant_id = api.world.merchant_id
    for country, rate in (("TH", "0.07"), ("FR", "0.2")):
        await api.world.perform(SetTaxRate(country=country, rate=Decimal(rate)))
    managed = SetMerchantProfile(
        merchant_id=merchant_id, tax_manager=TaxManager.SERVICE, default_country="FR"
    )
    await api.world.perform(managed)
    created = await api.create(currency="USD", amount="100.00")

    async def list_taxes(query: str) -> set[str]:
        quote_list = (await quotes(api, created, query)).json["quotes"]
        return {item["estimated_tax"] for item in quote_list}

    with_country, without_country = "?country=US", ""
    assert (await list_taxes(with_country), await list_taxes(without_country)) == ({"0"}, {"20.00"})
    tax_by_merchant = SetMerchantProfile(merchant_id=merchant_id, tax_country=TaxCountry.MERCHANT)
    assert (await api.world.perform(tax_by_merchant)).tax_country is TaxCountry.MERCHANT
    assert (await list_taxes(with_country), await list_taxes(without_country)) == (
        {"20.00"},
        {"20.00"},
    )
    selected = await select(api, created, country="US")
    assert selected.json["quote"]["estimated_tax"] == "20.00"
    renamed = await api.world.perform(SetMerchantProfile(merchant_id=merchant_id, name="Nimbus"))
    assert renamed.tax_country is TaxCountry.MERCHANT


async def test_events_are_delivered_only_if_the_merchant_has_a_callback_url(api: Api) -> None:
    world = api.world

    async def states() -> list[str]:
        rows = await world.rows("SELECT state FROM delivery ORDER BY event_id")
        return [row["state"] for row in rows]

    await cancel(api, await api.create())
    assert await states() == ["skipped"]
    url = "http://127.0.0.1:9/hooks"
    moved = SetCallbackUrl(merchant_id=world.merchant_id, callback_url=url)
    assert (await world.perform(moved)).callback_url == url
    missed = await world.perform(ResendMissedEvents(merchant_id=world.merchant_id))
    assert (missed.events, await states()) == (1, ["pending"])
    assert (await world.perform(ResendMissedEvents(merchant_id=world.merchant_id))).events == 0
    resent = await world.perform(ResendEvent(event_id=missed.first_event_id))
    assert (resent.event_id, resent.merchant_id) == (missed.last_event_id, world.merchant_id)
    assert (await world.perform(SetCallbackUrl(merchant_id=world.merchant_id))).callback_url is None


async def test_a_time_without_a_time_zone_is_interpreted_as_utc(api: Api) -> None:
    await cancel(api, await api.create())
    [row] = await api.world.rows("SELECT occurred_at FROM event")
    event_time = row["occurred_at"].replace(tzinfo=None)
    hour = timedelta(hours=1)

    async def count_resent_events(**period: datetime) -> int:
        return (await api.world.perform(ResendMissedEvents(**period))).events

    assert await count_resent_events(until=event_time - hour) == 0
    assert await count_resent_events(since=event_time + hour) == 0
    assert await count_resent_events(until=event_time) == 0
    assert await count_resent_events(since=event_time) == 1


async def test_with_an_overlap_of_zero_the_old_secret_expires_immediately(world: World) -> None:
    for overlap_s, expected in ((60, 2), (0, 1)):
        rotated = RotateCallbackSecret(merchant_id=world.merchant_id, overlap_s=overlap_s)
        new = await world.perform(rotated)
        secrets = (await callback_secrets.list_secrets(world.database, [world.merchant_id], 10))[
            world.merchant_id
        ]
        assert len(secrets) == expected
    assert new.id == world.merchant_id


async def test_api_keys_are_listed_with_their_names_and_revoking_is_idempotent(api: Api) -> None:
    world = api.world
    issued = await world.perform(IssueApiKey(merchant_id=world.merchant_id, name="second server"))
    assert (await api.send("GET", "/v1/catalog", headers=api.bearer(issued.api_key))).status == 200
    public_id = issued.api_key.split("_")[2]
    revoked = await world.perform(RevokeApiKey(public_id=public_id))
    await world.move_clock(60)
    assert (await world.perform(RevokeApiKey(public_id=public_id))) == revoked
    keys = await world.perform(ListApiKeys(merchant_id=world.merchant_id))
    assert {item.name: item.revoked_at for item in keys} == {
        "second server": revoked.revoked_at,
        "first": None,
    }
    answer = await api.send("GET", "/v1/catalog", headers=api.bearer(issued.api_key))
    assert refusal(answer) == (401, "UNAUTHORIZED")


async def test_operator_tokens_are_listed_by_public_id(world: World) -> None:
    token = await world.operator_token("Ada")
    [token_view] = await world.perform(ListOperatorTokens())
    assert (token_view.public_id, token_view.name, token_view.revoked_at) == (
        token.split("_")[1],
        "Ada",
        None,
    )
    revoked = await world.perform(RevokeOperatorToken(public_id=token_view.public_id))
    assert await world.perform(ListOperatorTokens()) == [revoked]


async def test_a_merchants_own_account_cannot_be_used_by_another_merchant(api: Api) -> None:
    world = api.world
    owner_id = (await world.add_merchant(methods="none")).merchant.id
    account = await world.perform(
        AddAccount(
            provider="fake",
            base_url="http://theirs.test",
            credentials={"signing_secret": "theirs"},
            merchant_id=owner_id,
            name="their own",
        )
    )
    assert account == await world.perform(ShowAccount(account_id=account.id))
    assert [item.id for item in await world.perform(ListAccounts())] == [
        world.account_id,
        account.id,
    ]
    method = {"account_id": account.id, "kind": "card", "label": "Card", "currencies": ["THB"]}
    with pytest.raises(RefusedError, match="this merchant has no account") as refused:
        await world.perform(AddPaymentMethod(merchant_id=world.merchant_id, **method))
    assert refused.value.code is ErrorCode.NOT_FOUND
    added = await world.perform(AddPaymentMethod(merchant_id=owner_id, **method))
    assert await world.perform(ListPaymentMethods(merchant_id=owner_id)) == [added]
    # `all` offers only the platform's accounts.
    third_id = (await world.add_merchant("Third")).merchant.id
    offered = await world.perform(ListPaymentMethods(merchant_id=third_id))
    assert {item.account_id for item in offered} == {world.account_id}


async def test_another_process_reads_a_changed_account(world: World, gateway: FakeGateway) -> None:
    changed = await world.perform(
        ChangeAccount(
            account_id=world.account_id,
            name="main",
            base_url="http://gateway.test/v2",
            credentials={"signing_secret": "another"},
        )
    )
    assert (changed.name, changed.base_url) == ("main", "http://gateway.test/v2")
    unchanged = await world.perform(ChangeAccount(account_id=world.account_id))
    assert unchanged == await world.perform(ShowAccount(account_id=world.account_id))
    service = await open_service(world.service.settings, {"fake": gateway})
    account = await service.accounts.get(world.account_id)
    await service.close()
    assert account is not None
    assert (account.base_url, account.credentials) == (
        "http://gateway.test/v2",
        {"signing_secret": "another"},
    )


async def test_an_account_accepts_payments_only_in_its_countries(
    api: Api, gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, capabilities = api.world, gateway.capabilities
    monkeypatch.setattr(
        gateway, "capabilities", replace(capabilities, countries=frozenset({"TH", "JP"}))
    )
    assert {code for code, currencies in (await _catalog(api)).items() if currencies} == {
        "TH",
        "JP",
    }
    change = ChangeAccount(account_id=world.account_id, countries=["TH", "US"])
    with pytest.raises(RefusedError, match="fake does not accept payments in 'US'") as refused:
        await world.perform(change)
    assert refused.value.code is ErrorCode.BAD_REQUEST
    new = AddAccount(
        provider="fake",
        base_url="http://theirs.test",
        credentials={"signing_secret": "theirs"},
        countries=["US"],
    )
    with pytest.raises(RefusedError, match="fake does not accept payments in 'US'"):
        await world.perform(new)
    for countries, stored, payable in (
        (["TH"], ("TH",), {"TH"}),
        (None, ("TH",), {"TH"}),
        ([], None, {"TH", "JP"}),
    ):
        changed = await world.perform(
            ChangeAccount(account_id=world.account_id, countries=countries)
        )
        assert changed.countries == stored
        assert changed == await world.perform(ShowAccount(account_id=world.account_id))
        assert {code for code, currencies in (await _catalog(api)).items() if currencies} == payable
    added = await world.perform(msgspec.structs.replace(new, countries=["JP"]))
    assert added.countries == ("JP",)


async def test_a_disabled_account_or_provider_offers_no_methods(api: Api) -> None:
    world = api.world
    created = await api.create()
    assert len(await _list_quotes(api, created)) == 2
    for off, on in (
        (DisableAccount(account_id=world.account_id), EnableAccount(account_id=world.account_id)),
        (DisableProvider(provider="fake"), EnableProvider(provider="fake")),
    ):
        assert not (await world.perform(off)).enabled
        assert await _list_quotes(api, created) == []
        assert await _catalog(api) == {}
        assert refusal(await select(api, created)) == (422, "PG_NOT_AVAILABLE")
        assert refusal(await api.create()) == (422, "UNSUPPORTED_CURRENCY")
        assert (await world.perform(on)).enabled
        assert len(await _list_quotes(api, created)) == 2
        assert "THB" in (await _catalog(api))["TH"]


async def test_renaming_a_provider_changes_its_name_in_new_quotes(api: Api) -> None:
    before = await api.create()
    assert (await select(api, before)).json["quote"]["provider"] == "fake"
    renamed = await api.world.perform(RenameProvider(provider="fake", wire_name="acme"))
    providers = await api.world.perform(ListProviders())
    assert renamed in providers
    assert {item["provider"] for item in await _list_quotes(api, await api.create())} == {"acme"}
    assert (await view(api, before)).json["selected"]["provider"] == "fake"


async def test_changes_to_a_method_apply_to_the_next_quotes(api: Api) -> None:
    world = api.world
    created = await api.create(amount="100.00")
    frozen = (await select(api, created)).json["quote"]
    changed = await world.perform(
        ChangePaymentMethod(
            method_id=world.card,
            label="Card, Apple Pay",
            fee_mode=FeeMode.EXCLUSIVE,
            fee_rate=Decimal("0.05"),
            position=9,
        )
    )
    assert (changed.fee_rate, changed.countries, changed.position) == (Decimal("0.05"), None, 9)
    first, second = await _list_quotes(api, await api.create(amount="100.00"))
    assert first["label"] == "Transfer"
    assert (second["label"], second["fee_amount"], second["total_amount"]) == (
        *("Card, Apple Pay", "5.00", "105.00"),
    )
    assert (await view(api, created)).json["selected"] == frozen
    await world.perform(
        ChangePaymentMethod(method_id=world.card, countries=["JP"], currencies=["JPY"])
    )
    fresh = await api.create()
    assert [item["label"] for item in await _list_quotes(api, fresh)] == ["Transfer"]
    everywhere = await world.perform(ChangePaymentMethod(method_id=world.card, countries=[]))
    assert (everywhere.countries, everywhere.currencies) == (None, ("JPY",))


async def test_a_method_can_be_added_disabled_and_enabled(api: Api) -> None:
    world = api.world
    added = await world.perform(
        AddPaymentMethod(
            merchant_id=world.merchant_id,
            account_id=world.account_id,
            kind="qr",
            label="QR",
            currencies=["THB"],
            countries=["TH"],
            fee_mode=FeeMode.EXCLUSIVE,
            fee_rate=Decimal("0.01"),
            position=7,
        )
    )
    created = await api.create(amount="100.00")
    assert [(item["label"], item["total_amount"]) for item in await _list_quotes(api, created)][
        -1
    ] == (*("QR", "101.00"),)
    assert not (await world.perform(DisablePaymentMethod(method_id=added.id))).enabled
    assert "QR" not in {item["label"] for item in await _list_quotes(api, created)}
    answer = await select(api, created, payment_method_id=added.id)
    assert refusal(answer) == (404, "PAYMENT_METHOD_NOT_FOUND")
    assert (await world.perform(EnablePaymentMethod(method_id=added.id))).enabled
    assert (await select(api, created, payment_method_id=added.id)).status == 200


async def test_a_restriction_removes_crypto_from_a_country_until_it_is_lifted(api: Api) -> None:
    world = api.world
    await offers_tokens(api)
    created = await api.create(currency="USD", amount="10.00")
    th = "?country=TH"
    assert {item["currency"] for item in await _list_quotes(api, created, th)} == {
        "USDT",
        "NATIVED",
    }
    restricted = AddRestriction(type=RestrictionType.CRYPTO, country="TH")
    assert (await world.perform(restricted)).active
    assert (await world.perform(restricted)).active  # adding a restriction is idempotent
    assert await _list_quotes(api, created, th) == []
    catalog = await _catalog(api)
    assert "USDT" not in catalog.get("TH", set())
    assert "USDT" in catalog["JP"]
    restrictions = {
        (item.type, item.country): item.active for item in await world.perform(ListRestrictions())
    }
    assert restrictions == {("CRYPTO", "TH"): True, ("ONRAMP", "KR"): True}
    lifted = LiftRestriction(type=RestrictionType.CRYPTO, country="TH")
    assert not (await world.perform(lifted)).active
    assert len(await _list_quotes(api, created, th)) == 2
    with pytest.raises(RefusedError, match="'TH' has no CRYPTO restriction"):
        await world.perform(lifted)


async def test_after_the_restriction_is_lifted_on_ramp_orders_from_korea_are_not_implemented(
    api: Api,
) -> None:
    order = {"country": "KR"}
    options = {"json": order, "headers": api.bearer()}
    refused = await api.send("POST", "/v1/onramp/orders", **options)
    assert refusal(refused) == (422, "UNSUPPORTED_COUNTRY")
    await api.world.perform(LiftRestriction(type=RestrictionType.ONRAMP, country="KR"))
    assert refusal(await api.send("POST", "/v1/onramp/orders", **options)) == (
        501,
        "NOT_IMPLEMENTED",
    )


async def test_a_fraud_rule_denies_matching_payments_until_it_is_removed(api: Api) -> None:
    world = api.world
    rule = await world.perform(
        AddFraudRule(
            kind=FraudRuleKind.EMAIL,
            value="@Spam.Example",
            merchant_id=world.merchant_id,
            code="SPAM",
            level=RiskLevel.CRITICAL,
            score=90,
        )
    )
    assert rule.value == "@spam.example"
    denied = await api.create(payer_email="Eve@SPAM.example")
    fds = denied.json["fds"]
    assert (denied.status, fds["code"], fds["risk_level"], fds["risk_score"]) == (
        *(200, "SPAM", "CRITICAL", 90),
    )
    assert (await api.create(payer_email="eve@example.com")).status == 201
    assert await world.perform(ListFraudRules()) == [rule]
    [decision] = await world.perform(ListFraudDecisions(merchant_id=world.merchant_id))
    assert (decision.rule_id, decision.code, decision.payment_id) == (rule.id, "SPAM", None)
    second_merchant_id = (await world.add_merchant()).merchant.id
    assert await world.perform(ListFraudDecisions(merchant_id=second_merchant_id)) == []
    assert await world.perform(RemoveFraudRule(rule_id=rule.id)) == rule
    assert (await api.create(payer_email="eve@spam.example")).status == 201
    assert await world.perform(ListFraudRules()) == []
    assert len(await world.perform(ListFraudDecisions())) == 1
    with pytest.raises(RefusedError, match=f"no fraud rule {rule.id}"):
        await world.perform(RemoveFraudRule(rule_id=rule.id))


async def test_a_velocity_rule_denies_payments_above_its_count(api: Api) -> None:
    rule = AddFraudRule(kind=FraudRuleKind.PAYER_VELOCITY, count_max=2, window_s=3600)
    assert (await api.world.perform(rule)).code == "VELOCITY_EXCEEDED"
    responses = [await api.create() for _ in range(3)]
    assert [answer.status for answer in responses] == [201, 201, 200]
    assert (await api.create(payer_uid="buyer-2")).status == 201


async def test_a_rate_limit_appears_in_responses_until_it_is_cleared(api: Api) -> None:
    world = api.world
    limit = SetRateLimit(merchant_id=world.merchant_id, kind=RateLimitClass.CREATE, per_s=1)
    assert (await world.perform(limit)).burst == 2
    answers = [await api.create() for _ in range(3)]
    assert "RateLimit-Policy" in answers[0].headers
    assert refusal(answers[-1]) == (429, "RATE_LIMITED")
    assert len(await world.perform(ListRateLimits(merchant_id=world.merchant_id))) == 1
    clear = ClearRateLimit(merchant_id=world.merchant_id, kind=RateLimitClass.CREATE)
    assert await world.perform(clear) is None
    assert await world.perform(ListRateLimits()) == []
    unlimited = await api.create()
    assert (unlimited.status, "RateLimit-Policy" in unlimited.headers) == (201, False)


async def test_an_account_without_the_required_credentials_is_rejected(world: World) -> None:
    page = {"script_url": "http://gateway.test/script.js"}
    for operation in (
        AddAccount(provider="fake", base_url="http://gateway.test", credentials=page),
        ChangeAccount(account_id=world.account_id, credentials=page),
    ):
        with pytest.raises(RefusedError, match="requires signing_secret") as refused:
            await world.perform(operation)
        assert refused.value.code is ErrorCode.BAD_REQUEST
    assert len(await world.perform(ListAccounts())) == 1


async def test_an_unknown_credential_is_rejected_and_the_correct_name_is_suggested(
    world: World,
) -> None:
    mistyped = {"signing_secret": "x", "signing_secrets": "x"}
    for operation in (
        AddAccount(provider="fake", base_url="http://gateway.test", credentials=mistyped),
        ChangeAccount(account_id=world.account_id, credentials=mistyped),
    ):
        with pytest.raises(RefusedError) as refused:
            await world.perform(operation)
        assert refused.value.message == (
            "credentials: fake does not use 'signing_secrets' (did you mean "
            "signing_secret?); it uses api_key, page_url, script_url, signing_secret"
        )


async def test_an_account_shows_the_callback_url_for_its_gateway(
    world: World,
) -> None:
    account = await world.perform(ShowAccount(account_id=world.account_id))
    base = world.service.settings.api_base
    assert account.callback_url == f"{base}/callbacks/fake/{world.account_id}"


async def test_an_account_check_returns_the_adapters_result(world: World) -> None:
    good = await world.perform(CheckAccount(account_id=world.account_id))
    assert (good.works, good.problem, good.detail) == (True, None, "as it should be")
    world.gateway.answer_check = AccountCheck(
        problem=AccountProblem.CREDENTIALS, detail="the key was revoked"
    )
    bad = await world.perform(CheckAccount(account_id=world.account_id))
    assert (bad.works, bad.problem, bad.detail) == (False, "credentials", "the key was revoked")
