"""If a chain is not watched, its methods are not in quotes, selections or the catalog."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from payintent.chains import store as chain_store
from payintent.chains import watch_store as chain_watch_store
from payintent.chains.operations import AddContract, ResumeChain
from payintent.payments.model import Payment
from payintent.runtime.settings import Settings
from payintent.service import Service
from tests.support.arrange import refusal
from tests.support.contracts import RECEIVER, contract_service, offer_tokens
from tests.support.fakes import FakeGateway
from tests.support.world import Answer, Api

WATCHED_S = 180


@pytest.fixture
async def service(settings: Settings, gateway: FakeGateway) -> AsyncIterator[Service]:
    async with contract_service(settings, gateway) as service:
        yield service


@pytest.fixture
async def methods(api: Api) -> dict[str, int]:
    """Offer the tokens of a chain whose watcher has just reported."""
    offered = await offer_tokens(api.world)
    await _mark_watched(api)
    return offered


async def _mark_watched(api: Api, watched_s: float = WATCHED_S) -> None:
    await chain_watch_store.mark_watched(api.world.database, "native", 0, watched_s)


async def _catalog(api: Api) -> Any:
    return (await api.send("GET", "/v1/catalog", headers=api.bearer())).json


async def _tokens(api: Api, payment: Payment) -> set[str]:
    """Return the symbols of the tokens that the checkout offers."""
    answer = await api.send("GET", f"/v1/checkout/{payment.checkout_id}/quotes")
    return {quote["token"] for quote in answer.json["quotes"] if quote.get("token")}


async def _select(api: Api, payment: Payment, method: int) -> Answer:
    return await api.send(
        "POST",
        f"/v1/checkout/{payment.checkout_id}/quotes",
        json={"payment_method_id": method},
    )


async def _is_offered(api: Api, methods: dict[str, int]) -> bool:
    """Return whether the chain is offered, and check that all routes agree."""
    payment = await api.world.create(currency="USD")
    offered = await _tokens(api, payment)
    selected = await _select(api, payment, methods["NATIVED"])
    status = (await api.send("GET", "/v1/chains/native")).json["status"]
    is_in_catalog = "NATIVED" in str(await _catalog(api))
    if offered:
        assert (offered, selected.status) == ({"USDT", "NATIVED"}, 200)
        assert (status, is_in_catalog) == ("active", True)
    else:
        assert refusal(selected) == (422, "PG_NOT_AVAILABLE")
        assert status in {"degraded", "halted"}
        assert not is_in_catalog
    return bool(offered)


async def test_a_chain_is_not_offered_if_its_watcher_has_not_reported_for_too_long(
    api: Api, methods: dict[str, int]
) -> None:
    assert await _is_offered(api, methods)
    await api.world.move_clock(WATCHED_S + 1)
    assert not await _is_offered(api, methods)
    await _mark_watched(api)
    assert await _is_offered(api, methods)


async def test_a_chain_that_was_never_watched_is_not_offered(api: Api) -> None:
    methods = await offer_tokens(api.world)
    await api.world.rows("UPDATE chain_cursor SET watched_since = NULL, watched_until = NULL")
    assert not await _is_offered(api, methods)


async def test_a_chain_whose_endpoints_are_far_behind_is_not_offered(
    api: Api, methods: dict[str, int]
) -> None:
    await _mark_watched(api, 0)
    assert not await _is_offered(api, methods)


async def test_a_halted_chain_is_offered_once_it_is_resumed_and_watched_again(
    api: Api, methods: dict[str, int]
) -> None:
    await chain_store.halt(api.world.database, "native", "needs manual review")
    assert not await _is_offered(api, methods)
    await _mark_watched(api)
    assert not await _is_offered(api, methods), "watching a halted chain does not resume it"
    await api.world.rows("UPDATE chain_cursor SET watched_until = clock() + interval '1 hour'")
    assert not await _is_offered(api, methods), "a halted chain is offered while it is watched"
    await api.world.rows("UPDATE chain_cursor SET watched_until = clock()")
    await api.world.perform(ResumeChain(chain="native"))
    assert not await _is_offered(api, methods)
    await _mark_watched(api)
    assert await _is_offered(api, methods)


async def test_a_chain_is_not_offered_until_an_older_contracts_blocks_are_read(
    api: Api, methods: dict[str, int]
) -> None:
    await api.world.rows("UPDATE chain_cursor SET block = 100")
    await api.world.perform(
        AddContract(chain="native", address="0x" + 40 * "7", receiver=RECEIVER, deployed_block=50)
    )
    assert not await _is_offered(api, methods)
    await chain_watch_store.mark_watched(api.world.database, "native", 48, WATCHED_S)
    assert await _is_offered(api, methods), (
        "all blocks before the deployment of the contract are read"
    )


async def test_the_catalogs_update_time_changes_only_with_its_content(
    api: Api, methods: dict[str, int]
) -> None:
    del methods
    watched = await _catalog(api)
    await _mark_watched(api)
    assert await _catalog(api) == watched, "the catalog has changed, but its content has not"
    await api.world.move_clock(WATCHED_S + 60)
    unwatched = await _catalog(api)
    assert unwatched["updated_at"] > watched["updated_at"]
    await api.world.move_clock(WATCHED_S + 120)
    assert await _catalog(api) == unwatched
    await _mark_watched(api)
    assert (await _catalog(api))["updated_at"] > unwatched["updated_at"]
