"""A key's last use is stored with a resolution of one minute, separately from its requests."""

import asyncio
from typing import Any

import pytest
from starlette.requests import Request

from payintent.http.address_limits import AuthenticationAttempts, UnauthorizedError
from payintent.http.viewer import ViewerReader
from payintent.merchants.access import Authenticator
from payintent.merchants.access_operations import IssueApiKey, ListApiKeys
from payintent.merchants.call_log import KeyUses
from tests.support.world import World

_CACHED_S = 3600.0  # a use is recorded even if the key is cached


@pytest.fixture
def uses(world: World) -> KeyUses:
    return KeyUses(world.database)


@pytest.fixture
def authenticator(world: World, uses: KeyUses) -> Authenticator:
    service = world.service
    attempts = AuthenticationAttempts(service.settings, ViewerReader(service.settings))
    return Authenticator(
        service.database, service.encryption, service.accounts, attempts, _CACHED_S, key_uses=uses
    )


def _request(key: str) -> Request:
    headers = [(b"authorization", f"Bearer {key}".encode())]
    return Request({"type": "http", "headers": headers, "client": None})


async def _get_last_uses(world: World) -> dict[str, Any]:
    api_keys = await world.perform(ListApiKeys(merchant_id=world.merchant_id))
    return {key.name: key.last_used_at for key in api_keys}


async def test_a_use_is_stored_asynchronously_for_the_key_that_was_used(
    world: World, uses: KeyUses, authenticator: Authenticator
) -> None:
    await world.perform(IssueApiKey(merchant_id=world.merchant_id, name="second"))
    await authenticator.authenticate(_request(world.api_key))
    assert await _get_last_uses(world) == {"first": None, "second": None}
    await uses.flush()
    used = await _get_last_uses(world)
    assert used["first"] is not None
    assert used["second"] is None


async def test_a_use_is_stored_at_most_once_a_minute_across_all_processes(
    world: World, uses: KeyUses, authenticator: Authenticator
) -> None:
    await authenticator.authenticate(_request(world.api_key))
    await uses.flush()
    first = (await _get_last_uses(world))["first"]
    other_uses = KeyUses(world.database)
    for elapsed_s, is_new in ((30, False), (59, False), (61, True)):
        await world.move_clock(elapsed_s)
        await authenticator.authenticate(_request(world.api_key))
        other_uses.record(world.api_key.split("_")[2])
        await asyncio.gather(uses.flush(), other_uses.flush())
        assert ((await _get_last_uses(world))["first"] > first) is is_new, elapsed_s


async def test_a_rejected_key_is_not_recorded_as_used(
    world: World, uses: KeyUses, authenticator: Authenticator
) -> None:
    forged = world.api_key[:-1] + ("0" if world.api_key[-1] != "0" else "1")
    with pytest.raises(UnauthorizedError):
        await authenticator.authenticate(_request(forged))
    await uses.flush()
    assert await _get_last_uses(world) == {"first": None}


async def test_a_failed_write_of_key_uses_is_ignored(world: World, uses: KeyUses) -> None:
    uses.record(world.api_key.split("_")[2])
    await world.rows("ALTER TABLE api_key RENAME TO gone")
    await uses.flush()
    await world.rows("ALTER TABLE gone RENAME TO api_key")
