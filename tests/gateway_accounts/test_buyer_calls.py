"""Gateway calls triggered by buyers are limited, and do not delay other requests."""

from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass
from uuid import UUID, uuid4

import pytest
from prometheus_client import REGISTRY

from payintent.core.access import RateLimit
from payintent.core.errors import ErrorCode, RefusedError
from payintent.gateway_accounts.buyer_calls import (
    WAITING_PER_ACCOUNT_MAX,
    WAITING_PER_MERCHANT_MAX,
    BuyerCall,
    BuyerCalls,
)
from payintent.gateway_accounts.health import FAILURES_MAX, GatewayChannel, GatewayHealth
from payintent.gateways.port import GatewaySessionState, OutcomeUnknown, SessionReport
from payintent.payment_sessions.inquire import inquire_on_return
from payintent.payment_sessions.open_session import SELECTIONS_MAX
from payintent.payments import sessions_store as session_store
from tests.payments.test_expire import inquire_all
from tests.support.clock import StoppedClock
from tests.support.fakes import captured
from tests.support.world import World

THROTTLED = OutcomeUnknown(detail="status 429", is_throttled=True)
SILENT = OutcomeUnknown(detail="no answer")


BUSY_CALLS_MIN, OTHER = 1, 2  # merchant ids


def make_buyer_call(
    account_id: int,
    merchant_id: int | None = None,
    provider: str = "fake",
    payment_id: UUID | None = None,
) -> BuyerCall:
    """A call for a merchant's payment; by default, both are new."""
    payment_id = payment_id or uuid4()
    return BuyerCall(
        account_id=account_id,
        provider=provider,
        merchant_id=merchant_id or payment_id.int,
        payment_id=payment_id,
    )


async def refusal(calls: BuyerCalls, call: BuyerCall) -> ErrorCode | None:
    try:
        async with calls.enter(call):
            return None
    except RefusedError as refused:
        return refused.code


@dataclass
class SharedBucket:
    """An account's rate limit, with a clock that the test advances."""

    calls: BuyerCalls
    account_id: int
    clock: StoppedClock
    now: list[float]

    @classmethod
    async def at(cls, world: World, limit: RateLimit) -> "SharedBucket":
        now = [0.0]
        calls = BuyerCalls(world.database, limit, frozenset(), lambda: now[0])
        return cls(calls, world.account_id, await StoppedClock(world).stop(), now)

    async def ask(self, merchant_id: int, payment_id: UUID | None = None) -> bool:
        return await self.calls.allow(
            make_buyer_call(self.account_id, merchant_id, payment_id=payment_id)
        )

    async def move(self, milliseconds: int) -> None:
        self.now[0] += milliseconds / 1000
        await self.clock.move(milliseconds)


async def come_back(world: World, session_id: UUID) -> int:
    """Open the return URL as the buyer; return the number of inquiries."""
    service = world.service
    session = await session_store.get(world.database, session_id)
    assert session is not None
    await inquire_on_return(world.database, service.accounts, world.merchant_id, session)
    return await inquire_all(world)


def two_calls_at_once(world: World) -> None:
    """Limit buyer-triggered calls per account to a burst of two, then one per second."""
    accounts = world.service.accounts
    accounts.buyer_calls = BuyerCalls(world.database, RateLimit(1, 2), frozenset())


async def test_a_buyer_who_reloads_the_return_page_causes_an_inquiry_every_five_seconds(
    world: World,
) -> None:
    clock = await StoppedClock(world).stop()
    session = (await world.select(await world.create())).session
    assert [await come_back(world, session.id) for _ in range(5)] == [1, 0, 0, 0, 0]
    await clock.move(4_999)
    assert await come_back(world, session.id) == 0
    await clock.move(1)
    assert [await come_back(world, session.id) for _ in range(2)] == [1, 0]
    assert len(world.gateway.inquired) == 2


async def test_the_return_page_does_not_call_the_gateway_if_the_rate_limit_is_reached(
    world: World,
) -> None:
    two_calls_at_once(world)
    first, second = [(await world.select(await world.create())).session for _ in range(2)]
    assert [await come_back(world, item.id) for item in (first, second)] == [0, 0]
    assert world.gateway.inquired == []


async def test_the_number_of_selections_is_limited_but_the_payment_can_still_be_paid(
    world: World,
) -> None:
    payment = await world.create()
    for number in range(SELECTIONS_MAX):
        selected = await world.select(payment, (world.card, world.transfer)[number % 2])
    inquiries = len(world.gateway.inquired)
    for _ in range(2):
        with pytest.raises(RefusedError, match="selected at most 20 times") as refused:
            await world.select(payment)
        assert refused.value.code is ErrorCode.RATE_LIMITED
        assert 1 <= (refused.value.retry_after_s or 0) <= 1800
    assert len(world.gateway.created) == SELECTIONS_MAX
    assert len(world.gateway.inquired) == inquiries
    await world.report(payment, selected.session.id, captured(159000))
    assert await world.status(payment) == "PAID"


async def test_a_rate_limited_selection_stores_nothing_and_calls_no_gateway(
    world: World,
) -> None:
    two_calls_at_once(world)
    for _ in range(2):
        await world.select(await world.create())
    payment = await world.create()
    with pytest.raises(RefusedError) as refused:
        await world.select(payment)
    assert (refused.value.code, refused.value.retry_after_s) == (ErrorCode.RATE_LIMITED, 1)
    assert len(world.gateway.created) == 2
    assert await world.rows("SELECT 1 FROM session WHERE payment_id = $1", payment.id) == []
    other = await world.add_account("http://other.test", signing_secret="another")
    await world.rows("UPDATE payment_method SET account_id = $1 WHERE id = $2", other, world.card)
    assert (await world.select(payment)).payment.status == "PROCESSING"


async def test_a_method_change_uses_a_call_for_the_inquiry_about_the_current_method(
    world: World,
) -> None:
    two_calls_at_once(world)
    payment = await world.create()
    await world.select(payment)
    with pytest.raises(RefusedError) as refused:
        await world.select(payment, world.transfer)
    assert refused.value.code is ErrorCode.RATE_LIMITED
    assert (len(world.gateway.created), len(world.gateway.inquired)) == (1, 1)


async def test_all_processes_share_a_bucket_that_refills(world: World) -> None:
    clock = await StoppedClock(world).stop()
    database, account = world.database, world.account_id
    first, second = (BuyerCalls(database, RateLimit(2, 4), {"local"}) for _ in range(2))

    async def allowed() -> list[bool]:
        return [await item.allow(make_buyer_call(account)) for item in (first, second, first)]

    assert await allowed() == [True, True, True]
    assert await allowed() == [True, False, False]
    await clock.move(499)
    assert await allowed() == [False, False, False]
    await clock.move(1)
    assert await allowed() == [True, False, False]
    await clock.move(3_600_000)
    assert [*await allowed(), *await allowed()] == [True] * 4 + [False] * 2
    assert await first.allow(make_buyer_call(account + 1))
    assert await first.allow(make_buyer_call(account, provider="local"))
    assert await BuyerCalls(database, None, ()).allow(make_buyer_call(account))


async def test_a_merchant_under_load_leaves_calls_for_buyers_of_other_merchants(
    world: World,
) -> None:
    """A crowd sends as many requests as it can while another merchant has 39 buyers."""
    shared = await SharedBucket.at(world, RateLimit(20, 60))
    crowd, other = list[bool](), list[bool]()
    for _ in range(39):
        crowd += [await shared.ask(BUSY_CALLS_MIN) for _ in range(10)]
        other.append(await shared.ask(OTHER))
        await shared.move(100)
    assert other == [True] * 39
    # The crowd gets the remaining calls of 3.9 s, except for the reserved third of a burst.
    assert sum(crowd) >= 39 + 20


async def test_the_only_merchant_of_an_account_can_use_all_its_calls(world: World) -> None:
    shared = await SharedBucket.at(world, RateLimit(20, 60))
    burst = [await shared.ask(BUSY_CALLS_MIN) for _ in range(60)]
    assert 40 <= sum(burst) < 45  # a third is reserved for other merchants
    later = list[bool]()
    for _ in range(100):
        later += [await shared.ask(BUSY_CALLS_MIN) for _ in range(5)]
        await shared.move(100)
    assert sum(later) >= 0.9 * 200  # until the bucket reaches its steady level


async def test_merchants_that_exceed_their_share_get_equal_shares(world: World) -> None:
    shared = await SharedBucket.at(world, RateLimit(20, 60))
    got = Counter[int]()
    for _ in range(100):
        for merchant, times in ((1, 8), (2, 3), (3, 2)):
            got[merchant] += sum([await shared.ask(merchant) for _ in range(times)])
        await shared.move(100)
    assert sum(got.values()) >= 200
    assert max(got.values()) <= 1.3 * min(got.values())


async def test_a_looping_checkout_leaves_calls_for_other_checkouts_of_its_merchant(
    world: World,
) -> None:
    shared = await SharedBucket.at(world, RateLimit(20, 60))
    loop, others = uuid4(), list[bool]()
    for _ in range(39):
        for _ in range(10):
            await shared.ask(BUSY_CALLS_MIN, loop)
        others.append(await shared.ask(BUSY_CALLS_MIN))
        await shared.move(100)
    assert others == [True] * 39


async def test_the_number_of_waiting_buyers_is_limited_per_account_and_per_merchant(
    world: World,
) -> None:
    calls = BuyerCalls(world.database, None, {"local"})
    async with AsyncExitStack() as waiting:
        for number in range(WAITING_PER_MERCHANT_MAX):
            await waiting.enter_async_context(
                calls.enter(make_buyer_call(number % 2, BUSY_CALLS_MIN))
            )
        assert await refusal(calls, make_buyer_call(3, BUSY_CALLS_MIN)) is ErrorCode.RATE_LIMITED
        assert await refusal(calls, make_buyer_call(3, BUSY_CALLS_MIN, "local")) is None
        assert await refusal(calls, make_buyer_call(0, OTHER)) is None
        for _ in range(WAITING_PER_ACCOUNT_MAX - WAITING_PER_MERCHANT_MAX // 2):
            await waiting.enter_async_context(calls.enter(make_buyer_call(0)))
        assert await refusal(calls, make_buyer_call(0)) is ErrorCode.RATE_LIMITED
        assert await refusal(calls, make_buyer_call(1)) is None
    assert await refusal(calls, make_buyer_call(0, BUSY_CALLS_MIN)) is None


async def test_throttling_is_never_an_outage(world: World) -> None:
    health = GatewayHealth(world.database)
    for _ in range(3 * FAILURES_MAX):
        await health.record_result(world.account_id, GatewayChannel.SESSIONS, THROTTLED)
    assert await health.get_unavailable_channels() == frozenset()
    assert await world.rows("SELECT 1 FROM gateway_outage") == []


def throttled(channel: GatewayChannel) -> float:
    name = "payintent_gateway_throttled_total"
    return REGISTRY.get_sample_value(name, {"channel": channel}) or 0


async def test_throttled_calls_are_counted_by_channel_and_timeouts_are_not(
    world: World,
) -> None:
    health = GatewayHealth(world.database)
    before = {channel: throttled(channel) for channel in GatewayChannel}
    account, report = world.account_id, SessionReport(state=GatewaySessionState.OPEN)
    for answer in (THROTTLED, SILENT, report, THROTTLED, SILENT):
        await health.record_result(account, GatewayChannel.SESSIONS, answer)
    await health.record_result(account, GatewayChannel.REFUNDS, THROTTLED)
    increases = {channel: throttled(channel) - before[channel] for channel in GatewayChannel}
    assert increases == {GatewayChannel.SESSIONS: 2, GatewayChannel.REFUNDS: 1}


async def test_throttling_does_not_hide_timeouts(world: World) -> None:
    health = GatewayHealth(world.database)
    for _ in range(FAILURES_MAX):
        await health.record_result(world.account_id, GatewayChannel.SESSIONS, THROTTLED)
        await health.record_result(world.account_id, GatewayChannel.SESSIONS, SILENT)
    assert len(await world.rows("SELECT 1 FROM gateway_outage")) == 1


async def test_a_throttled_buyer_does_not_disable_the_method_for_other_buyers(world: World) -> None:
    world.gateway.answer_create = lambda _: THROTTLED
    payment = await world.create()
    for _ in range(FAILURES_MAX + 1):
        with pytest.raises(RefusedError) as refused:
            await world.select(payment)
        assert refused.value.code is ErrorCode.PG_UPSTREAM_ERROR
    world.gateway.answer_inquire = SessionReport(state=GatewaySessionState.OPEN)
    methods = await world.health.get_unavailable_channels()
    assert methods == frozenset()
