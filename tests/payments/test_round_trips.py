"""The busiest route makes a single round trip to the database, counted on the wire."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from payintent.fraud.model import FraudRuleKind
from payintent.fraud.operations import AddFraudRule
from payintent.merchants import call_log
from payintent.runtime.settings import Settings
from tests.http.fault_proxy import FaultProxy
from tests.support.world import Api

_CREATES = 10


class CountingProxy(FaultProxy):
    """Counts the driver's writes; each request is a single write, because the driver waits."""

    write_count = 0

    async def _forward_requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_lost: asyncio.Event
    ) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65_536):
                self.write_count += 1
                writer.write(data)
                await writer.drain()


@pytest.fixture
async def proxy(database_url: str) -> AsyncIterator[CountingProxy]:
    proxy = CountingProxy(database_url)
    await proxy.mend()
    yield proxy
    await proxy.cut()


@pytest.fixture
def settings(settings: Settings, proxy: CountingProxy, monkeypatch: pytest.MonkeyPatch) -> Settings:
    # On a busy machine, ten creations take so long that the periodic writers would be counted too.
    monkeypatch.setattr(call_log, "_WRITE_INTERVAL_S", 3600.0)
    monkeypatch.setattr(call_log, "_KEY_USES_WRITE_INTERVAL_S", 3600.0)
    return settings.model_copy(
        update={
            "database_url": proxy.url,
            "database_connections_max": 1,  # so that each statement is prepared once
            "policy_cache_s": 3600.0,
            "api_key_cache_s": 3600.0,
        }
    )


async def _count_round_trips(api: Api, proxy: CountingProxy) -> int:
    """Count the round trips of ten creation requests, after a request that fills all caches."""
    assert (await api.create()).status == 201
    writes_before = proxy.write_count
    for number in range(_CREATES):
        assert (await api.create(payer_uid=f"buyer-{number}")).status == 201
    return proxy.write_count - writes_before


async def test_a_creation_needs_a_single_round_trip_without_fraud_rules(
    api: Api, proxy: CountingProxy
) -> None:
    assert await _count_round_trips(api, proxy) == _CREATES


async def test_a_creation_needs_a_single_round_trip_if_list_rules_allow_it(
    api: Api, proxy: CountingProxy
) -> None:
    other_merchant = await api.world.add_merchant()
    rules = [
        AddFraudRule(kind=FraudRuleKind.COUNTRY, value="KP"),
        AddFraudRule(kind=FraudRuleKind.PAYER, value="somebody"),
        AddFraudRule(kind=FraudRuleKind.ADDRESS, value="192.0.2.0/24"),
        AddFraudRule(kind=FraudRuleKind.ADDRESS_VELOCITY, count_max=1, window_s=60),
        AddFraudRule(
            kind=FraudRuleKind.PAYER_VELOCITY,
            count_max=1,
            window_s=60,
            merchant_id=other_merchant.merchant.id,
        ),
    ]
    for rule in rules:
        await api.world.perform(rule)
    assert await _count_round_trips(api, proxy) == _CREATES


async def test_a_creation_needs_five_round_trips_with_a_payer_velocity_rule(
    api: Api, proxy: CountingProxy
) -> None:
    """This shows that round trips are counted: BEGIN, lock, count, create, COMMIT."""
    await api.world.perform(
        AddFraudRule(kind=FraudRuleKind.PAYER_VELOCITY, count_max=100, window_s=60)
    )
    assert await _count_round_trips(api, proxy) == 5 * _CREATES
