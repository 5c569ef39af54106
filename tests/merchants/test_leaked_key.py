"""A merchant's key was leaked and used: the drill in `docs/operate/runbook.md`."""

from payintent.merchants.access_operations import IssueApiKey, ListApiKeys, RevokeApiKey
from payintent.refunds.operations import ListRefunds
from tests.refunds.requests import capture_payment, create_paid, post_refund
from tests.support.arrange import refusal
from tests.support.world import Api


async def test_a_leaked_key_can_be_revoked_immediately_and_its_refunds_listed(api: Api) -> None:
    world, leaked_key = api.world, api.world.api_key
    created = await api.create()
    fraudulent_refund = await post_refund(api, await create_paid(api), amount="90.00")
    new = await world.perform(IssueApiKey(merchant_id=world.merchant_id, name="after incident 6"))
    await world.perform(RevokeApiKey(public_id=_public_id(leaked_key)))

    assert refusal(await api.create()) == (401, "UNAUTHORIZED")
    world.api_key = new.api_key
    assert (await api.create()).status == 201
    regular_refund = await post_refund(api, await create_paid(api), amount="10.00")

    refunds = await world.perform(ListRefunds(merchant_id=world.merchant_id))
    assert {refund.id: refund.requested_by for refund in refunds} == {
        fraudulent_refund.json["id"]: f"merchant:{world.merchant_id}:{_public_id(leaked_key)}",
        regular_refund.json["id"]: f"merchant:{world.merchant_id}:{_public_id(new.api_key)}",
    }
    keys = await world.perform(ListApiKeys(merchant_id=world.merchant_id))
    assert {key.public_id: key.revoked_at is not None for key in keys} == {
        _public_id(leaked_key): True,
        _public_id(new.api_key): False,
    }
    await capture_payment(api, created)  # buyers can still pay


def _public_id(key: str) -> str:
    return key.split("_")[2]
