"""When a buyer returns from the gateway, the URL must belong to the merchant's site."""

import pytest

from payintent.merchants.operations import SetMerchantProfile
from tests.support.arrange import refusal, select
from tests.support.operation_examples import open_outside_sandbox
from tests.support.sample_values import NO_WAY_BACK
from tests.support.world import Api

_ORIGINS = ("", "https://shop.example.com", "HTTPS://SHOP.example.com:443", "https://-")


@pytest.mark.parametrize(
    "merchant_url", ["https://shop.example.com/paid", "HTTPS://Shop.Example.com/paid"]
)
async def test_a_return_url_must_have_one_of_the_merchants_origins(
    api: Api, merchant_url: str
) -> None:
    await api.world.rows(  # as an older version may have stored it
        "UPDATE merchant SET return_url = $2, allowed_origins = $3 WHERE id = $1",
        api.world.merchant_id,
        merchant_url,
        _ORIGINS,
    )
    created = await api.create()
    refusals = {url: refusal(await select(api, created, return_url=url)) for url in NO_WAY_BACK}
    assert refusals == dict.fromkeys(NO_WAY_BACK, (400, "BAD_REQUEST"))
    assert len(refusals) >= 40
    for return_url in ("https://shop.example.com/thanks?a=1", "https://SHOP.example.com:443"):
        assert (await select(api, created, return_url=return_url)).status == 200


async def test_allowed_origins_are_stored_in_the_form_that_browsers_send(api: Api) -> None:
    profile = SetMerchantProfile(
        merchant_id=api.world.merchant_id, allowed_origins=["HTTPS://Shop.Example.com:443"]
    )
    assert (await api.world.perform(profile)).allowed_origins == ("https://shop.example.com",)


async def test_a_return_url_can_be_on_the_developers_machine(api: Api) -> None:
    origins = ["http://localhost:3000", "http://127.0.0.1:3000"]
    profile = SetMerchantProfile(
        merchant_id=api.world.merchant_id,
        return_url=f"{origins[0]}/orders",
        allowed_origins=origins,
    )
    async with open_outside_sandbox(api.world) as production:
        await profile.check(production.operation_context)
    assert (await api.world.perform(profile)).allowed_origins == tuple(origins)
    assert (await api.create(return_url=f"{origins[1]}/orders/A-1")).status == 201
