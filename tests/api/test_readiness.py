"""`/readyz`: one look at the database a second, and never a 500 while the service opens."""

import asyncio

import pytest

from payintent.api.middleware import CommonHeaders
from payintent.api.server import make_server
from payintent.app import build_operator_app
from payintent.config import Settings
from tests.api.arrange import refusal
from tests.support.listening import listening
from tests.support.world import Api, World, free_port

_AWAY = (503, "SERVICE_UNAVAILABLE")


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"readiness_cache_s": 3600.0})


async def test_many_who_ask_whether_it_is_ready_cost_one_look(api: Api) -> None:
    asked = [api.send("GET", "/readyz") for _ in range(50)]
    assert {answer.status for answer in await asyncio.gather(*asked)} == {200}
    await api.world.rows("DELETE FROM schema_migration")
    assert (await api.send("GET", "/readyz")).status == 200  # from memory, for this hour


async def test_while_the_service_opens_the_operators_port_says_that_it_is_not_ready(
    settings: Settings, world: World
) -> None:
    port = free_port()
    running = make_server(
        CommonHeaders(build_operator_app()), settings, "127.0.0.1", port, lifespan=False
    )
    async with listening(running), Api(f"http://127.0.0.1:{port}", world) as api:
        for path in ("/readyz", "/operator/tax/list", "/operator/webhooks"):
            assert refusal(await api.send("GET", path)) == _AWAY
        assert (await api.send("GET", "/healthz")).status == 200
        assert (await api.send("GET", "/metrics")).status == 200
