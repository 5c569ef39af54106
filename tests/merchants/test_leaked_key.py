"""A merchant's key was leaked and used: the drill in `docs/operate/runbook.md`."""

from payintent.merchants.access_operations import IssueApiKey, ListApiKeys, RevokeApiKey
from payintent.refunds.operations import ListRefunds
from tests.refunds.requests import ask, paid, pay
from tests.support.arrange import refusal
from tests.support.world import Api


async def test_a_leaked_key_can_be_revoked_immediately_and_its_refunds_listed(api: Api) -> None:
    world, leaked = api.world, api.world.api_key
    begun = await api.create()
    stolen = await ask(api, await paid(api), amount="90.00")
    new = await world.perform(IssueApiKey(merchant_id=world.merchant_id, name="after incident 6"))
    await world.perform(RevokeApiKey(public_id=_public_id(leaked)))

    assert refusal(await api.create()) == (401, "UNAUTHORIZED")
    world.api_key = new.api_key
    assert (await api.create()).status == 201
    honest = await ask(api, await paid(api), amount="10.00")

    listed = await world.perform(ListRefunds(merchant_id=world.merchant_id))
    assert {refund.id: refund.requested_by for refund in listed} == {
        stolen.json["id"]: f"merchant:{world.merchant_id}:{_public_id(leaked)}",
        honest.json["id"]: f"merchant:{world.merchant_id}:{_public_id(new.api_key)}",
    }
    keys = await world.perform(ListApiKeys(merchant_id=world.merchant_id))
    assert {key.public_id: key.revoked_at is not None for key in keys} == {
        _public_id(leaked): True,
        _public_id(new.api_key): False,
    }
    await pay(api, begun)  # what its buyers have begun goes on


def _public_id(key: str) -> str:
    return key.split("_")[2]
