"""The viewer's country is used only if it comes from a trusted proxy with the secret."""

import pytest

from payintent.runtime.settings import Settings
from tests.support.world import Api, World

SECRET = "edge-secret-of-the-test"


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(
        update={
            "edge_secret": type(settings.edge_secret)(SECRET),
            "edge_trusted_proxies": "10.0.0.0/8, 127.0.0.1",
        }
    )


async def read_country(
    api: Api, world: World, headers: dict[str, str] | list[tuple[str, str]]
) -> object:
    payment = await world.create(currency="USD", amount_text="10", include_pegged_assets=False)
    path = f"/v1/checkout/{payment.checkout_id}"
    view = (await api.send("GET", path, headers=headers)).json
    quotes = (await api.send("GET", f"{path}/quotes", headers=headers)).json
    return view.get("suggested_country"), quotes["country"], quotes["country_source"]


async def test_the_country_from_a_trusted_edge_is_used(api: Api, world: World) -> None:
    headers = {"CloudFront-Viewer-Country": "DE", "X-Edge-Secret": SECRET}
    assert await read_country(api, world, headers) == ("DE", "DE", "geo")


@pytest.mark.parametrize(
    "headers",
    [
        [("CloudFront-Viewer-Country", "DE")],
        [("CloudFront-Viewer-Country", "DE"), ("X-Edge-Secret", "guess")],
        [("CF-IPCountry", "DE"), ("X-Edge-Secret", SECRET)],
        [("CloudFront-Viewer-Country", "DE"), ("X-Edge-Secret", SECRET), ("X-Edge-Secret", "x")],
        [
            ("CloudFront-Viewer-Country", "DE"),
            ("CloudFront-Viewer-Country", "US"),
            ("X-Edge-Secret", SECRET),
        ],
        [("CloudFront-Viewer-Country", "ZZ"), ("X-Edge-Secret", SECRET)],
    ],
)
async def test_a_country_from_an_untrusted_or_ambiguous_source_is_ignored(
    api: Api, world: World, headers: list[tuple[str, str]]
) -> None:
    assert await read_country(api, world, headers) == (None, "US", "default")


async def test_the_query_takes_precedence_over_the_edge(api: Api, world: World) -> None:
    payment = await world.create(currency="USD", amount_text="10")
    headers = {"CloudFront-Viewer-Country": "DE", "X-Edge-Secret": SECRET}
    path = f"/v1/checkout/{payment.checkout_id}/quotes?country=FR"
    quotes = (await api.send("GET", path, headers=headers)).json
    assert (quotes["country"], quotes["country_source"]) == ("FR", "query")
