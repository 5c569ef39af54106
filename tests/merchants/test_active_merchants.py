"""Only active merchants with enabled methods can accept payments."""

from uuid import uuid4

import pytest
from markupsafe import escape

from payintent.checkout.languages import load_language
from payintent.core.languages import LOCALES
from payintent.gateway_accounts.operations import DisableAccount
from payintent.gateway_accounts.providers_operations import DisableProvider
from payintent.merchants.activation import (
    ActivateMerchant,
    ApplyActivation,
    RequestActivation,
    ResumeMerchant,
    SuspendMerchant,
    ValidateActivation,
)
from payintent.merchants.methods_operations import ChangePaymentMethod, DisablePaymentMethod
from payintent.operators.operation import ChangeOperation
from tests.support.arrange import DECLINED, callback, cancel, payment_of, quotes, refusal, select
from tests.support.world import Api, World

_OUT_OF_SERVICE = (422, "UNPROCESSABLE")


async def test_a_suspended_merchant_accepts_no_payments_until_it_is_resumed(api: Api) -> None:
    created = await api.create()
    await api.world.perform(SuspendMerchant(merchant_id=api.world.merchant_id))
    response = await api.create()
    assert refusal(response) == _OUT_OF_SERVICE
    assert "SUSPENDED" in response.json["message"]
    assert (
        refusal(await api.create(currency="XXX")) == _OUT_OF_SERVICE
    )  # reported before an unsupported currency
    offered = await quotes(api, created)
    assert (offered.status, offered.json["quotes"]) == (200, [])
    assert refusal(await select(api, created)) == (422, "PG_NOT_AVAILABLE")
    assert api.world.gateway.created == []
    page = await api.send("GET", f"/c/{created.json['checkout_id']}")
    assert (page.status, b'/select"' in page.body) == (200, False)
    await api.world.perform(ResumeMerchant(merchant_id=api.world.merchant_id))
    assert (await api.create()).status == 201
    assert (await select(api, created)).status == 200


@pytest.mark.parametrize("locale", LOCALES)
async def test_the_checkout_of_a_suspended_merchant_explains_why_payment_is_impossible(
    api: Api, locale: str
) -> None:
    created = await api.create()
    path = f"/c/{created.json['checkout_id']}"
    open_page = await api.send("GET", f"{path}?lang={locale}")
    form = {"method": f"{api.world.card}|THB|1590.00"}
    await api.world.perform(SuspendMerchant(merchant_id=api.world.merchant_id))
    language = load_language(locale)
    reason = escape(language.t("out_of_service", merchant="Nimbus Books"))
    assert reason not in open_page.body.decode()
    page = await api.send("GET", f"{path}?lang={locale}")
    response = await api.send("POST", f"{path}/select?lang={locale}", data=form)
    for answer, status in ((page, 200), (response, 422)):
        text = answer.body.decode()
        assert (answer.status, text.count(reason)) == (status, 1)
        assert escape(language.t("problem_unavailable")) not in text
        assert escape(language.t("nothing_here")) not in text


async def test_suspension_empties_the_catalog_and_changes_its_etag(api: Api) -> None:
    async def catalog() -> tuple[str, str, int]:
        response = await api.send("GET", "/v1/catalog", headers=api.bearer())
        return (
            response.headers["ETag"],
            response.json["updated_at"],
            len(response.json["countries"]),
        )

    tag, updated_at, count = await catalog()
    assert count > 0
    await api.world.perform(SuspendMerchant(merchant_id=api.world.merchant_id))
    other_tag, later, country_count = await catalog()
    assert (country_count, other_tag != tag, later > updated_at) == (0, True, True)
    await api.world.perform(ResumeMerchant(merchant_id=api.world.merchant_id))
    assert (await catalog())[2] == count


async def test_payments_created_before_a_suspension_can_still_end(api: Api) -> None:
    key = str(uuid4())
    first, selected, pending = await api.create(key), await api.create(), await api.create()
    assert (await select(api, selected)).status == 200
    await api.world.perform(SuspendMerchant(merchant_id=api.world.merchant_id))
    replay = await api.create(key)
    assert (replay.status, replay.body) == (201, first.body)
    assert replay.headers["Idempotency-Replayed"] == "true"
    assert refusal(await api.create(key, amount="1")) == (409, "IDEMPOTENCY_CONFLICT")
    assert (await api.get(first.json["id"])).status == 200
    assert (await cancel(api, pending)).status == 200
    session_id = (await payment_of(api, selected)).session_id
    assert (await callback(api, session_id, DECLINED)).status == 200
    assert (await payment_of(api, selected)).status == "FAILED"


async def test_a_refused_create_does_not_use_up_its_idempotency_key(api: Api) -> None:
    key = str(uuid4())
    await api.world.perform(SuspendMerchant(merchant_id=api.world.merchant_id))
    assert refusal(await api.create(key)) == _OUT_OF_SERVICE
    await api.world.perform(ResumeMerchant(merchant_id=api.world.merchant_id))
    created = await api.create(key)
    assert (created.status, "Idempotency-Replayed" in created.headers) == (201, False)


async def test_a_merchant_accepts_payments_once_its_activation_request_is_applied(api: Api) -> None:
    merchant = {"merchant_id": api.world.merchant_id}
    request = RequestActivation(
        **merchant, countries=["TH"], currencies=["THB"], contract="c-1", kyc="k-1"
    )
    await api.world.rows("UPDATE merchant SET activation = 'NEW', activated_at = NULL")
    for operation, status in (
        (request, 422),
        (ApplyActivation(**merchant), 201),
        (ValidateActivation(**merchant), 201),
        (ActivateMerchant(**merchant), 201),
        (SuspendMerchant(**merchant), 422),
        (ResumeMerchant(**merchant), 201),
    ):
        await api.world.perform(operation)
        assert (await api.create()).status == status, operation
    dollars = await api.create(currency="USD", amount="10", include_pegged_assets=False)
    assert refusal(dollars) == (422, "UNSUPPORTED_CURRENCY")


async def test_quotes_and_selection_are_limited_to_the_market(
    api: Api,
) -> None:
    created = await api.create(currency="USD", amount="10")
    await _apply_market(api.world, ["FR", "SG"], ["USD"])
    for country, offered in (("FR", 2), ("SG", 2), ("US", 0)):
        answer = await quotes(api, created, f"?country={country}")
        assert len(answer.json["quotes"]) == offered, country
    anywhere = (await quotes(api, created)).json
    assert (anywhere["country"], anywhere["country_source"]) == ("FR", "first")
    assert refusal(await select(api, created, country="US")) == (422, "UNSUPPORTED_CURRENCY")
    assert (await select(api, created)).status == 200


async def test_a_create_is_refused_if_no_country_of_the_merchant_uses_the_currency(
    api: Api,
) -> None:
    for method in (api.world.card, api.world.transfer):
        await api.world.perform(
            ChangePaymentMethod(method_id=method, currencies=["THB", "USD"], countries=["US"])
        )
    assert refusal(await api.create(currency="THB")) == (422, "UNSUPPORTED_CURRENCY")
    assert (await api.create(currency="USD", amount="10")).status == 201
    await _apply_market(api.world, ["TH"], ["THB", "USD"])
    assert refusal(await api.create(currency="USD", amount="10")) == (422, "UNSUPPORTED_CURRENCY")


async def _apply_market(world: World, countries: list[str], currencies: list[str]) -> None:
    await world.perform(
        RequestActivation(
            merchant_id=world.merchant_id,
            countries=countries,
            currencies=currencies,
            contract="c-1",
            kyc="k-1",
        )
    )
    await world.perform(ApplyActivation(merchant_id=world.merchant_id))


@pytest.mark.parametrize("switch", ["method", "account", "provider"])
async def test_a_disabled_method_account_or_provider_is_not_offered(api: Api, switch: str) -> None:
    world = api.world
    created, selected = await api.create(), await api.create()
    assert (await select(api, selected)).status == 200
    disabling: dict[str, list[ChangeOperation[object]]] = {
        "method": [DisablePaymentMethod(method_id=item) for item in (world.card, world.transfer)],
        "account": [DisableAccount(account_id=world.account_id)],
        "provider": [DisableProvider(provider="fake")],
    }
    for operation in disabling[switch]:
        await world.perform(operation)
    response = await api.send("GET", "/v1/catalog", headers=api.bearer())
    assert response.json["countries"] == []
    assert (await quotes(api, created)).json["quotes"] == []
    expected = (
        (404, "PAYMENT_METHOD_NOT_FOUND") if switch == "method" else (422, "PG_NOT_AVAILABLE")
    )
    assert refusal(await select(api, created)) == expected
    assert refusal(await api.create()) == (422, "UNSUPPORTED_CURRENCY")
    session_id = (await payment_of(api, selected)).session_id  # open sessions can still end
    assert (await callback(api, session_id, DECLINED)).status == 200
    assert (await payment_of(api, selected)).status == "FAILED"
