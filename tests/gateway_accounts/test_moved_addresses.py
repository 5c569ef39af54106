"""The service's URLs follow its settings, even for objects created before a change."""

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from payintent.core.addresses import parse_web_origin
from payintent.gateway_accounts.operations import ListAccounts
from payintent.runtime.settings import Settings
from payintent.service import open_service
from tests.http.builtin_gateway import side
from tests.support.arrange import select, view
from tests.support.ports import free_port
from tests.support.running_service import serving
from tests.support.world import Api

__all__ = ["side"]

Move = Callable[[], AbstractAsyncContextManager[Api]]


@pytest.fixture
def move(settings: Settings, side: Api) -> Move:
    """Open a service on the same database with different URLs."""

    @asynccontextmanager
    async def moved() -> AsyncGenerator[Api]:
        port = free_port()
        base = f"http://127.0.0.1:{port}"
        changed = settings.model_copy(
            update={"checkout_base": f"{base}/c", "api_base": f"{base}/v1"}
        )
        service = await open_service(changed, {"fake": side.world.gateway})
        try:
            async with (
                serving(changed, service, port),
                Api(base, replace(side.world, service=service)) as api,
            ):
                yield api
        finally:
            await service.close()

    return moved


async def test_the_page_uses_the_current_origin_of_the_test_gateway(side: Api, move: Move) -> None:
    created = await side.create()
    async with move() as moved:
        page = await moved.send("GET", f"/c/{created.json['checkout_id']}")
        policy = page.headers["Content-Security-Policy"]
        [sources] = [item for item in policy.split("; ") if item.startswith("form-action")]
        assert set(sources.split()[1:]) <= {"'self'", moved.base}
        assert (
            await moved.world.service.accounts.get_page_origin(side.world.account_id) == moved.base
        )


async def test_an_earlier_session_redirects_to_the_current_card_page_and_back(
    side: Api, move: Move
) -> None:
    created = await side.create()
    assert (await select(side, created)).status == 200
    async with move() as moved:
        action: dict[str, Any] = (await view(moved, created)).json["next_action"]
        assert action["redirect"]["url"].startswith(f"{moved.base}/c/test/card/sess_")
        card = action["redirect"]["url"].removeprefix(moved.base)
        page = await moved.send("GET", card)
        policy = page.headers["Content-Security-Policy"]
        assert f"form-action 'self' {moved.base}" in policy.split("; ")
        paid = await moved.send("POST", card, data={"card": "4242424242424242"})
        back = f"{moved.base}/c/{created.json['checkout_id']}/return"
        assert paid.headers["Location"].startswith(back)


async def test_a_new_test_account_does_not_store_our_address(side: Api) -> None:
    [account] = [
        item
        for item in await side.world.perform(ListAccounts())
        if item.id == side.world.account_id
    ]
    assert parse_web_origin(account.base_url) is None
