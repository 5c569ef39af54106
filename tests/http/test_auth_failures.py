"""Invalid keys and tokens are counted by reason, and logged without their value."""

import pytest
from prometheus_client import REGISTRY

from payintent.core import access as api_key
from tests.support.arrange import refusal
from tests.support.world import Api

_NAME = "payintent_authentication_failures_total"
_REASONS = ("missing", "malformed", "unknown", "wrong_secret")


def _counts(holder: str) -> list[float]:
    labels = ({"holder": holder, "reason": reason} for reason in _REASONS)
    return [REGISTRY.get_sample_value(_NAME, label) or 0 for label in labels]


async def _fail_each_way(api: Api, path: str, prefix: str, public_id: str) -> list[float]:
    secret = "s" * api_key.SECRET_CHARS
    keys = (api_key.make_api_key(prefix, item, secret).text for item in ("0" * 8, public_id))
    holder = "operator" if prefix == api_key.OPERATOR else "merchant"
    before = _counts(holder)
    for text in ("", "nonsense", *keys):
        headers = {"Authorization": f"Bearer {text}"} if text else {}
        assert refusal(await api.send("GET", path, headers=headers)) == (401, "UNAUTHORIZED")
    return [now - then for now, then in zip(_counts(holder), before, strict=True)]


async def test_merchant_failures_are_counted_by_reason_and_logged_without_the_key(
    api: Api, capfd: pytest.CaptureFixture[str]
) -> None:
    public_id = api.world.api_key.split("_")[2]
    assert await _fail_each_way(api, "/v1/catalog", api_key.MERCHANT, public_id) == [1, 1, 1, 1]
    logged = capfd.readouterr()
    text = logged.out + logged.err
    assert text.count("authentication_failed") == len(_REASONS)
    assert "sssss" not in text
    assert "nonsense" not in text


async def test_operator_failures_are_counted_by_reason(operator: Api) -> None:
    public_id = (await operator.world.operator_token()).split("_")[1]
    path = "/operator/tax/list"
    assert await _fail_each_way(operator, path, api_key.OPERATOR, public_id) == [1, 1, 1, 1]
