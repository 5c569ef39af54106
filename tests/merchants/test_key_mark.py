"""The installation's mark, which is the prefix of the public part of new API keys."""

import pytest

from payintent.merchants.access_operations import IssueApiKey
from payintent.merchants.operations import CreateMerchant
from payintent.operators.operation import Actor
from payintent.runtime.settings import Settings
from payintent.service import open_service
from tests.support.fakes import FakeGateway
from tests.support.world import Api

_ANN = Actor("cli:ann", "ticket 7")


def _public_id(key: str) -> str:
    return key.split("_")[2]


@pytest.mark.parametrize("test", [False, True])
async def test_new_keys_begin_with_the_mark_and_existing_keys_stay_valid(
    api: Api, settings: Settings, test: bool
) -> None:
    assert _public_id(api.world.api_key).startswith("00")
    marked = settings.model_copy(update={"key_mark": "a1"})
    service = await open_service(marked, {"fake": FakeGateway()})
    issue = IssueApiKey(merchant_id=api.world.merchant_id, test=test)
    key = (await service.run_operation(issue, _ANN)).api_key
    created = await service.run_operation(CreateMerchant(name="Other"), _ANN)
    await service.close()
    assert _public_id(created.api_key).startswith("a1")
    assert _public_id(key).startswith("a1")
    assert len(_public_id(key)) == 8
    for api_key in (key, api.world.api_key):
        assert (await api.send("GET", "/v1/payments", headers=api.bearer(api_key))).status == 200
