"""Anyone with a link can create payments, so each address can create only a few at once."""

import pytest

from payintent.runtime.settings import Settings
from tests.payment_links.link_setup import post_link, token_of
from tests.payment_links.test_page import payments, submit
from tests.support.world import Api


@pytest.fixture(name="settings")
def settings_behind_a_proxy(settings: Settings) -> Settings:
    return settings.model_copy(update={"edge_trusted_proxies": "127.0.0.1"})


def _from(address: str) -> dict[str, str]:
    return {"X-Forwarded-For": address}


async def test_an_address_can_create_only_a_few_payments_at_a_time_without_affecting_others(
    api: Api,
) -> None:
    link = await post_link(api, max_uses=100)
    path = f"/c/link/{token_of(link)}"
    answers = [await submit(api, path, **_from("192.0.2.7"))]
    while answers[-1].status == 303 and len(answers) < 60:
        answers.append(await submit(api, path, **_from("192.0.2.7")))
    answer = answers[-1]
    assert answer.status == 429
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert int(answer.headers["Retry-After"]) >= 1
    assert 30 <= len(await payments(api)) == len(answers) - 1
    assert (await api.send("GET", path, headers=_from("192.0.2.7"))).status == 200
    assert (await submit(api, path, **_from("192.0.2.8"))).status == 303
