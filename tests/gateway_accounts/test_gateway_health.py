"""The circuit breaker: all processes avoid an unresponsive gateway, and one process retries it."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import pytest

from payintent.core.errors import ErrorCode, RefusedError
from payintent.gateway_accounts.calls import GatewayCall, GatewayRequestKind
from payintent.gateway_accounts.health import (
    BUSY_CALLS_MIN,
    FAILURES_MAX,
    PAUSE_S,
    SLOW_S,
    SLOW_WHEN_BUSY_S,
    GatewayChannel,
    GatewayHealth,
    is_too_slow,
    open_circuit,
)
from payintent.gateways.port import (
    GatewaySessionState,
    NotContacted,
    OutcomeUnknown,
    SessionRejected,
    SessionReport,
)
from payintent.payments.model import Payment
from payintent.quotes.list_quotes import QuoteQuery, list_quotes
from payintent.refunds.send import UNSENT_DELAY_MAX_S
from payintent.runtime.settings import Settings
from payintent.service import Service, open_service
from tests.payments.test_expire import inquire_all
from tests.refunds.refund_gateway import NOT_CONTACTED, TIMED_OUT
from tests.refunds.refund_setup import (
    create_paid_payment,
    process_due_refunds,
    request_refund,
    set_auto_refund,
)
from tests.support.clock import StoppedClock
from tests.support.fakes import FakeGateway, accept
from tests.support.race_staging import hold_transaction, wait_until_blocked
from tests.support.timeouts import PATIENCE_S, wait_until
from tests.support.world import World

SESSIONS, REFUNDS = GatewayChannel.SESSIONS, GatewayChannel.REFUNDS
ANSWER = SessionReport(state=GatewaySessionState.OPEN)
PROBE_S = 20
KNOWN_S = 1.001


@dataclass
class Processes:
    """Two processes with one database, and a clock that the test advances for both."""

    world: World
    clock: StoppedClock
    first: GatewayHealth
    second: GatewayHealth

    async def move(self, seconds: float) -> None:
        """Advance the clock."""
        await self.clock.move(round(seconds * 1000))

    async def fail(self, health: GatewayHealth, times: int = 1, answer: object = TIMED_OUT) -> None:
        for _ in range(times):
            await health.record_result(self.world.account_id, SESSIONS, answer)

    async def trip(self) -> None:
        """Start an outage that both processes know about."""
        await self.fail(self.first, FAILURES_MAX)
        await self.move(1)

    async def admitted(self, health: GatewayHealth, channel: GatewayChannel = SESSIONS) -> bool:
        return await health.allows_request(self.world.account_id, channel)

    async def is_down(self, channel: GatewayChannel = SESSIONS) -> tuple[bool, bool]:
        """Return whether each process knows that no attempt is permitted."""
        await self.move(KNOWN_S)  # their cache is at most a second old
        key = (self.world.account_id, channel)
        return (
            key in await self.first.get_unavailable_channels(),
            key in await self.second.get_unavailable_channels(),
        )


@pytest.fixture
async def clock(world: World) -> StoppedClock:
    return await StoppedClock(world).stop()


@pytest.fixture
def processes(world: World, clock: StoppedClock) -> Processes:
    database = world.database
    first, second = (GatewayHealth(database, clock.monotonic) for _ in range(2))
    return Processes(world, clock, first, second)


@pytest.fixture
async def other(settings: Settings, gateway: FakeGateway, world: World) -> AsyncIterator[Service]:
    """Another process with the same gateway."""
    del world
    service = await open_service(settings, {"fake": gateway})
    yield service
    await service.close()


async def test_five_consecutive_timeouts_are_an_outage_for_every_process(
    processes: Processes,
) -> None:
    await processes.fail(processes.first, FAILURES_MAX - 1)
    assert await processes.is_down() == (False, False)
    await processes.fail(processes.first)
    assert await processes.is_down() == (True, True)
    assert not await processes.admitted(processes.second)


async def test_a_response_resets_the_count(processes: Processes) -> None:
    for _ in range(3):
        await processes.first.record_result(processes.world.account_id, SESSIONS, ANSWER)
        await processes.fail(processes.first, FAILURES_MAX - 1)
        assert await processes.is_down() == (False, False)


async def test_timeouts_a_minute_apart_are_not_an_outage(processes: Processes) -> None:
    for _ in range(3 * FAILURES_MAX):
        await processes.fail(processes.first)
        await processes.move(16)
    assert await processes.is_down() == (False, False)


@pytest.mark.parametrize(
    ("answer", "counts"),
    [
        (OutcomeUnknown(detail="timeout"), True),
        (NotContacted(detail="no connection"), True),
        (NotContacted(detail="it closes the day", is_skipped=True), False),
        (OutcomeUnknown(detail="it cannot be asked", is_skipped=True), False),
        (OutcomeUnknown(detail="an undocumented code", has_responded=True), False),
        (SessionRejected(detail="no"), False),
        (ANSWER, False),
    ],
)
async def test_only_missing_responses_count(
    processes: Processes, answer: object, counts: bool
) -> None:
    await processes.fail(processes.first, FAILURES_MAX, answer)
    assert await processes.is_down() == (counts, counts)


async def test_late_responses_are_an_outage_until_a_response_arrives_in_time(
    processes: Processes,
) -> None:
    for _ in range(FAILURES_MAX):
        await processes.first.record_result(processes.world.account_id, SESSIONS, ANSWER, 3.5)
    assert await processes.is_down() == (True, True)
    [row] = await processes.world.rows("SELECT detail FROM gateway_outage")
    assert row["detail"] == "responded after 3.5 s"
    await processes.move(PAUSE_S)
    assert await processes.admitted(processes.second)
    await processes.first.record_result(processes.world.account_id, SESSIONS, ANSWER, 3.5)
    assert await processes.is_down() == (True, True)
    await processes.move(2 * PAUSE_S)
    await processes.first.record_result(processes.world.account_id, SESSIONS, ANSWER)
    assert await processes.is_down() == (False, False)


@pytest.mark.parametrize(
    ("took_s", "others", "counts"),
    [
        (SLOW_WHEN_BUSY_S - 0.1, 100, False),
        (SLOW_WHEN_BUSY_S, BUSY_CALLS_MIN, True),
        (SLOW_WHEN_BUSY_S, BUSY_CALLS_MIN - 1, False),
        (SLOW_S, 0, True),
    ],
)
def test_a_response_is_late_if_callers_queue_up_or_almost_no_slots_are_left(
    took_s: float, others: int, counts: bool
) -> None:
    assert is_too_slow(took_s, others) is counts


async def test_late_responses_under_load_are_an_outage_even_if_every_call_succeeds(
    world: World, gateway: FakeGateway, clock: StoppedClock
) -> None:
    gateway.hold = asyncio.Event()
    world.service.accounts.log._monotonic = clock.monotonic
    payments = [await world.create() for _ in range(BUSY_CALLS_MIN + FAILURES_MAX)]
    selecting = [asyncio.create_task(world.select(payment)) for payment in payments]
    await wait_until(lambda: len(gateway.created) == len(payments), "all wait for the gateway")
    await clock.move(round(SLOW_WHEN_BUSY_S * 1000))
    gateway.hold.set()
    await asyncio.gather(*selecting)  # every selection got a response and succeeded
    assert len(await world.rows("SELECT 1 FROM gateway_outage")) == 1
    with pytest.raises(RefusedError) as refused:
        await world.select(await world.create())
    assert refused.value.code is ErrorCode.PG_NOT_AVAILABLE


async def test_an_authentic_but_inconclusive_response_ends_an_outage(
    processes: Processes,
) -> None:
    undecided = OutcomeUnknown(detail="an undocumented code", has_responded=True)
    await processes.fail(processes.first, FAILURES_MAX - 1)
    await processes.fail(processes.first, 1, undecided)
    await processes.fail(processes.first)
    assert await processes.is_down() == (False, False)
    await processes.trip()
    await processes.fail(processes.first, 1, undecided)
    assert not (await processes.is_down())[0]


async def test_slow_refund_responses_are_not_an_outage(
    world: World, gateway: FakeGateway, clock: StoppedClock
) -> None:
    world.service.accounts.log._monotonic = clock.monotonic

    async def slowly(*_: object) -> object:
        await clock.move(round(SLOW_S * 1000))
        return gateway.answer_inquire_refund

    for kind, outages in ((GatewayRequestKind.INQUIRE_REFUND, 0), (GatewayRequestKind.INQUIRE, 1)):
        call = GatewayCall(
            account_id=world.account_id,
            provider="fake",
            kind=kind,
            subject_id=world.id_generator.new_id(),
            payment_id=None,
        )
        for _ in range(FAILURES_MAX):
            await world.service.accounts.call(call, lambda *_: slowly())
        assert len(await world.rows("SELECT 1 FROM gateway_outage")) == outages


async def test_a_call_that_was_not_sent_does_not_reset_the_count(processes: Processes) -> None:
    await processes.fail(processes.first, FAILURES_MAX - 1)
    await processes.fail(processes.first, 1, NotContacted(detail="at rest", is_skipped=True))
    assert await processes.is_down() == (False, False)
    await processes.fail(processes.first)
    assert await processes.is_down() == (True, True)


async def test_accounts_and_channels_fail_independently(processes: Processes) -> None:
    await processes.trip()
    assert await processes.is_down(REFUNDS) == (False, False)
    assert await processes.admitted(processes.first, REFUNDS)
    other = await processes.world.add_account("http://other.test", signing_secret="another")
    assert await processes.first.allows_request(other, SESSIONS)
    for _ in range(FAILURES_MAX):
        await processes.second.record_result(processes.world.account_id, REFUNDS, TIMED_OUT)
    await processes.first.record_result(processes.world.account_id, SESSIONS, ANSWER)
    assert await processes.is_down() == (False, False)
    assert await processes.is_down(REFUNDS) == (True, True)


async def test_after_the_pause_a_single_caller_probes_while_the_rest_wait(
    processes: Processes,
) -> None:
    await processes.trip()
    await processes.move(PAUSE_S)
    tries = [processes.admitted(item) for item in (processes.first, processes.second) * 4]
    assert sum(await asyncio.gather(*tries)) == 1
    assert await processes.is_down() == (True, True)
    await processes.move(PROBE_S)  # the prober has died
    tries = [processes.admitted(item) for item in (processes.first, processes.second) * 4]
    assert sum(await asyncio.gather(*tries)) == 1


async def test_a_response_ends_the_outage_for_all_processes(processes: Processes) -> None:
    await processes.trip()
    await processes.move(PAUSE_S)
    assert await processes.admitted(processes.second)
    await processes.second.record_result(processes.world.account_id, SESSIONS, ANSWER)
    assert await processes.is_down() == (False, False)
    assert await processes.world.rows("SELECT 1 FROM gateway_outage") == []
    tries = [processes.admitted(item) for item in (processes.first, processes.second) * 4]
    assert all(await asyncio.gather(*tries))


async def test_pauses_double_up_to_a_maximum_and_reset_after_a_response(
    processes: Processes,
) -> None:
    await processes.fail(processes.first, FAILURES_MAX)
    pauses = []
    for _ in range(7):
        pauses.append(await _pause_s(processes))
        await processes.move(pauses[-1])
        assert await processes.admitted(processes.second)
        await processes.fail(processes.second)
    assert pauses == [15, 30, 60, 120, 240, 300, 300]
    await processes.second.record_result(processes.world.account_id, SESSIONS, ANSWER)
    await processes.move(KNOWN_S)
    await processes.fail(processes.first, FAILURES_MAX)
    assert await _pause_s(processes) == PAUSE_S


async def _pause_s(processes: Processes) -> float:
    """Return the time from the start of the outage until the next permitted attempt."""
    [row] = await processes.world.rows(
        "SELECT extract(epoch FROM until - clock())::float8 AS pause FROM gateway_outage"
    )
    return row["pause"]


async def test_timeouts_during_the_pause_do_not_extend_it(processes: Processes) -> None:
    await processes.trip()
    before = await processes.world.rows("SELECT until, trips FROM gateway_outage")
    await processes.fail(processes.first, 3 * FAILURES_MAX)
    await processes.fail(processes.second, 3 * FAILURES_MAX)
    assert await processes.world.rows("SELECT until, trips FROM gateway_outage") == before


async def test_concurrent_timeouts_in_a_process_are_a_single_outage(processes: Processes) -> None:
    await asyncio.gather(*(processes.fail(processes.first) for _ in range(5 * FAILURES_MAX)))
    [row] = await processes.world.rows("SELECT trips FROM gateway_outage")
    assert row["trips"] == 1


async def test_two_processes_that_detect_an_outage_concurrently_record_it_once(
    processes: Processes,
) -> None:
    both = (processes.first, processes.second)
    await asyncio.gather(*(processes.fail(item, FAILURES_MAX) for item in both))
    [row] = await processes.world.rows("SELECT trips FROM gateway_outage")
    assert row["trips"] == 1


async def test_a_process_knows_of_its_outage_once_it_is_stored(processes: Processes) -> None:
    """Staged: other calls read the circuits while the outage waits for another transaction."""
    world, key = processes.world, (processes.world.account_id, SESSIONS)
    await processes.fail(processes.first, FAILURES_MAX - 1)
    async with hold_transaction(
        world, lambda tx: open_circuit(tx, world.account_id, SESSIONS, "rolled back")
    ):
        failing = asyncio.create_task(processes.fail(processes.first))
        await wait_until_blocked(world, failing)
        assert key not in await processes.first.get_unavailable_channels()
    await failing
    assert key in await processes.first.get_unavailable_channels()


# In the service


async def quoted(service: Service, world: World, payment: Payment) -> list[int]:
    stored = await world.read(payment)
    ask = QuoteQuery(restrictions=await service.policies.get_restrictions())
    quote_list = await list_quotes(
        service.database, service.merchants, service.accounts, stored, ask
    )
    return [quote.payment_method_id for quote in quote_list.quotes]


async def silent_selections(world: World) -> None:
    """Let enough buyers select to open the circuit breaker."""
    world.gateway.answer_create = lambda _: TIMED_OUT
    for _ in range(FAILURES_MAX):
        with pytest.raises(RefusedError) as refused:
            await world.select(await world.create())
        assert refused.value.code is ErrorCode.PG_UPSTREAM_ERROR


async def until_known(service: Service) -> None:
    """Wait until a process knows of an outage, which it polls once per second."""
    async with asyncio.timeout(PATIENCE_S):
        while not await service.accounts.health.get_unavailable_channels():
            await asyncio.sleep(0.02)


@pytest.mark.usefixtures("clock")
async def test_an_outage_hides_the_method_and_refuses_its_selection(
    world: World, other: Service
) -> None:
    payment = await world.create()
    assert await quoted(other, world, payment) == [world.card, world.transfer]
    await silent_selections(world)
    await until_known(other)
    for service in (world.service, other):
        assert await quoted(service, world, payment) == []
    asked_before = len(world.gateway.created)
    with pytest.raises(RefusedError) as refused:
        await world.select(payment)
    assert refused.value.code is ErrorCode.PG_NOT_AVAILABLE
    assert len(world.gateway.created) == asked_before
    assert await world.status(payment) == "PENDING"


async def test_after_the_pause_one_buyer_probes_and_the_rest_are_refused_without_a_call(
    world: World, clock: StoppedClock
) -> None:
    world.service.accounts.health = GatewayHealth(world.database, clock.monotonic)
    await silent_selections(world)
    payments = [await world.create() for _ in range(4)]
    await clock.move(PAUSE_S * 1000)
    world.gateway.created.clear()
    world.gateway.asked.clear()
    world.gateway.answer_create, world.gateway.hold = accept, asyncio.Event()
    tasks = [asyncio.create_task(world.select(item)) for item in payments]
    await world.gateway.asked.wait()
    done, waiting = await asyncio.wait(
        tasks, timeout=PATIENCE_S, return_when=asyncio.FIRST_EXCEPTION
    )
    while len(waiting) > 1:
        more, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_EXCEPTION)
        done |= more
    errors = [item.exception() for item in done]
    assert [getattr(error, "code", None) for error in errors] == [ErrorCode.PG_NOT_AVAILABLE] * 3
    world.gateway.hold.set()
    [first] = waiting
    assert (await first).payment.status == "PROCESSING"
    assert len(world.gateway.created) == 1
    assert (
        await world.select(payments[-1] if first is tasks[0] else payments[0])
    ).payment.session_id


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize("remote", [True, False])
async def test_only_a_session_that_the_gateway_has_created_ends_an_outage(
    world: World, clock: StoppedClock, remote: bool
) -> None:
    world.service.accounts.health = GatewayHealth(world.database, clock.monotonic)
    await silent_selections(world)
    world.gateway.capabilities = replace(FakeGateway.capabilities, remote_creation=remote)
    world.gateway.answer_create = accept
    await clock.move(PAUSE_S * 1000)
    await world.select(await world.create())
    assert len(await world.rows("SELECT FROM gateway_outage")) == (0 if remote else 1)
    calls = await recorded_calls(world)
    assert calls == ["unknown"] * FAILURES_MAX + ["answered"] * remote


async def recorded_calls(world: World) -> list[str]:
    await world.service.accounts.log.flush()
    rows = await world.rows("SELECT outcome FROM gateway_call ORDER BY outcome DESC")
    return [row["outcome"] for row in rows]


async def test_another_account_stays_available_during_an_outage(world: World) -> None:
    account_id = await world.add_account("http://other.test", signing_secret="another")
    await world.rows(
        "UPDATE payment_method SET account_id = $1 WHERE id = $2", account_id, world.transfer
    )
    await silent_selections(world)
    payment = await world.create()
    assert await quoted(world.service, world, payment) == [world.transfer]
    world.gateway.answer_create = accept
    assert (await world.select(payment, world.transfer)).payment.status == "PROCESSING"


async def test_the_worker_keeps_inquiring_and_its_first_response_restores_the_method(
    world: World, clock: StoppedClock
) -> None:
    payment = await world.create(expires_in_s=86_400)
    await silent_selections(world)
    assert await quoted(world.service, world, payment) == []
    await clock.move(31_000)
    assert await inquire_all(world) >= 1  # the gateway responds again
    assert await quoted(world.service, world, payment) == [world.card, world.transfer]


async def test_refunds_wait_during_an_outage_and_continue_after_it(
    world: World, clock: StoppedClock
) -> None:
    await set_auto_refund(world, on=False)
    payments = [await create_paid_payment(world) for _ in range(FAILURES_MAX + 2)]
    for payment in payments:
        await request_refund(world, payment)
    world.gateway.answer_refund = NOT_CONTACTED
    await process_due_refunds(world)
    assert len(world.gateway.refunds) == FAILURES_MAX  # the other refunds have not been sent
    world.gateway.answer_refund = FakeGateway().answer_refund
    # This process checks once per second whether the outage is over.
    async with asyncio.timeout(PATIENCE_S):
        while {await world.status(payment) for payment in payments} != {"REFUNDED"}:
            await clock.move(round(UNSENT_DELAY_MAX_S * 1000) + 1)
            await process_due_refunds(world)
    assert len({refund.refund_id for refund in world.gateway.refunds[FAILURES_MAX:]}) == len(
        payments
    )
