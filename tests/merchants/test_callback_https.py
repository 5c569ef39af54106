"""Outside the sandbox, webhooks use HTTPS, unless the operator exempts the merchant."""

from typing import Any

import pytest

from payintent.core.errors import ErrorCode, RefusedError
from payintent.merchants.operations import CreateMerchant, SetCallbackUrl, ShowMerchant
from tests.support.operation_examples import ADA, HOOKS, Stage
from tests.support.world import World

HTTP = HOOKS.replace("https://", "http://")


async def assert_refused(stage: Stage, operation: Any) -> None:
    with pytest.raises(RefusedError, match="callback_url must be https") as refusal:
        await stage.service.run_operation(operation, ADA)
    assert refusal.value.code is ErrorCode.BAD_REQUEST


@pytest.mark.parametrize("url", [HTTP, HTTP.upper()])
async def test_an_http_callback_url_is_refused_unless_the_operator_allows_it(
    stage: Stage, url: str
) -> None:
    merchant_id = stage.known["merchant"]
    await assert_refused(stage, CreateMerchant(name="Third", callback_url=url))
    await assert_refused(stage, SetCallbackUrl(merchant_id=merchant_id, callback_url=url))
    created = await stage.perform(CreateMerchant(name="3rd", callback_url=url, allow_http=True))
    moved = SetCallbackUrl(merchant_id=merchant_id, callback_url=url, allow_http=True)
    changed = await stage.perform(moved)
    for merchant in (created.merchant, changed):
        assert (merchant.callback_url, merchant.allow_http) == (url, True)
        assert await stage.perform(ShowMerchant(merchant_id=merchant.id)) == merchant


async def test_the_http_exemption_of_a_merchant_remains_until_it_is_revoked(stage: Stage) -> None:
    merchant: dict[str, Any] = {"merchant_id": stage.known["merchant"]}
    await stage.perform(SetCallbackUrl(**merchant, callback_url=HTTP, allow_http=True))
    assert (await stage.perform(SetCallbackUrl(**merchant, callback_url=HOOKS))).allow_http
    assert (await stage.perform(SetCallbackUrl(**merchant, callback_url=HTTP))).callback_url == HTTP
    await assert_refused(stage, SetCallbackUrl(**merchant, callback_url=HTTP, allow_http=False))
    strict = await stage.perform(SetCallbackUrl(**merchant, callback_url=HOOKS, allow_http=False))
    assert not strict.allow_http
    await assert_refused(stage, SetCallbackUrl(**merchant, callback_url=HTTP))


async def test_http_callback_urls_need_no_exemption_in_the_sandbox(world: World) -> None:
    url = "http://127.0.0.1:9/hooks"
    new = await world.perform(CreateMerchant(name="Third", callback_url=url))
    assert new.merchant.allow_http
    moved = await world.perform(SetCallbackUrl(merchant_id=world.merchant_id, callback_url=url))
    assert (moved.callback_url, moved.allow_http) == (url, True)
    secure = await world.perform(CreateMerchant(name="Fourth", callback_url=HOOKS))
    assert not secure.merchant.allow_http
