"""What buyers can make us ask of a gateway is bounded, and holds up nobody else."""

from uuid import UUID

import pytest
from prometheus_client import REGISTRY

from payintent.domain.errors import ErrorCode, RefusedError
from payintent.domain.gateway import GatewaySessionState, OutcomeUnknown, SessionReport
from payintent.domain.rate_limit import RateLimit
from payintent.payments.buyer_calls import BuyerCalls
from payintent.payments.gateway_health import FAILURES_MAX, GatewayChannel, GatewayHealth
from payintent.payments.inquire_sessions import ask_on_return
from payintent.payments.open_session import SELECTIONS_MAX
from payintent.storage import sessions
from payintent.storage.cells import ByCell
from tests.payments.test_expire import ask_all
from tests.support.clock import StoppedClock
from tests.support.fakes import captured
from tests.support.world import World

THROTTLED = OutcomeUnknown(detail="status 429", throttled=True)
SILENT = OutcomeUnknown(detail="no answer")


async def come_back(world: World, session_id: UUID) -> int:
    """Let the buyer open the address of return; gives how many are asked about then."""
    service = world.service
    session = await sessions.get(world.database, session_id)
    assert session is not None
    await ask_on_return(world.database, service.accounts, session)
    return await ask_all(world)


def two_calls_at_once(world: World) -> None:
    """Let buyers make us call each account twice, and then once a second."""
    accounts = world.service.accounts
    accounts.buyer_calls = ByCell(BuyerCalls(world.database, RateLimit(1, 2), frozenset()))


async def test_a_buyer_who_reloads_the_way_back_has_the_gateway_asked_every_five_seconds(
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


async def test_the_way_back_asks_nobody_while_the_account_has_no_call_left(world: World) -> None:
    two_calls_at_once(world)
    first, second = [(await world.select(await world.create())).session for _ in range(2)]
    assert [await come_back(world, one.id) for one in (first, second)] == [0, 0]
    assert world.gateway.inquired == []


async def test_a_payment_is_selected_so_often_and_can_be_paid_as_it_is(world: World) -> None:
    payment = await world.create()
    for number in range(SELECTIONS_MAX):
        selected = await world.select(payment, (world.card, world.transfer)[number % 2])
    asked = len(world.gateway.inquired)
    for _ in range(2):
        with pytest.raises(RefusedError, match="selected 20 times") as refused:
            await world.select(payment)
        assert refused.value.code is ErrorCode.RATE_LIMITED
        assert 1 <= (refused.value.retry_after_s or 0) <= 1800
    assert len(world.gateway.created) == SELECTIONS_MAX
    assert len(world.gateway.inquired) == asked
    await world.report(payment, selected.session.id, captured(159000))
    assert await world.status(payment) == "PAID"


async def test_a_selection_without_a_call_left_leaves_nothing_and_calls_nobody(
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
    other = await world.other_account("http://other.test", signing_secret="another")
    await world.rows("UPDATE payment_method SET account_id = $1 WHERE id = $2", other, world.card)
    assert (await world.select(payment)).payment.status == "PROCESSING"


async def test_a_change_of_method_spends_the_question_about_the_present_one(world: World) -> None:
    two_calls_at_once(world)
    payment = await world.create()
    await world.select(payment)
    with pytest.raises(RefusedError) as refused:
        await world.select(payment, world.transfer)
    assert refused.value.code is ErrorCode.RATE_LIMITED
    assert (len(world.gateway.created), len(world.gateway.inquired)) == (1, 1)


async def test_all_processes_spend_from_one_bucket_which_fills_again(world: World) -> None:
    clock = await StoppedClock(world).stop()
    database, account = world.database, world.account_id
    first, second = (BuyerCalls(database, RateLimit(2, 4), {"local"}) for _ in range(2))

    async def allowed() -> list[bool]:
        return [await one.allow(account, "fake") for one in (first, second, first)]

    assert await allowed() == [True, True, True]
    assert await allowed() == [True, False, False]
    await clock.move(499)
    assert await allowed() == [False, False, False]
    await clock.move(1)
    assert await allowed() == [True, False, False]
    await clock.move(3_600_000)
    assert [*await allowed(), *await allowed()] == [True] * 4 + [False] * 2
    assert await first.allow(account + 1, "fake")
    assert await first.allow(account, "local")
    assert await BuyerCalls(database, None, ()).allow(account, "fake")


@pytest.mark.parametrize(
    ("cells", "share"), [(1, RateLimit(100, 500)), (3, RateLimit(33, 166)), (900, RateLimit(1, 1))]
)
def test_cells_share_an_accounts_limit(cells: int, share: RateLimit) -> None:
    assert RateLimit(100, 500).shared_by(cells) == share


async def test_who_holds_us_back_is_in_no_outage_however_often(world: World) -> None:
    health = GatewayHealth(world.database)
    for _ in range(3 * FAILURES_MAX):
        await health.record_answer(world.account_id, GatewayChannel.SESSIONS, THROTTLED)
    assert await health.unavailable_channels() == frozenset()
    assert await world.rows("SELECT 1 FROM gateway_outage") == []


def throttled(channel: GatewayChannel) -> float:
    name = "payintent_gateway_throttled_total"
    return REGISTRY.get_sample_value(name, {"channel": channel}) or 0


async def test_calls_that_are_held_back_are_counted_by_channel_and_silence_is_not(
    world: World,
) -> None:
    health = GatewayHealth(world.database)
    before = {channel: throttled(channel) for channel in GatewayChannel}
    account, said = world.account_id, SessionReport(state=GatewaySessionState.OPEN)
    for answer in (THROTTLED, SILENT, said, THROTTLED, SILENT):
        await health.record_answer(account, GatewayChannel.SESSIONS, answer)
    await health.record_answer(account, GatewayChannel.REFUNDS, THROTTLED)
    counted = {channel: throttled(channel) - before[channel] for channel in GatewayChannel}
    assert counted == {GatewayChannel.SESSIONS: 2, GatewayChannel.REFUNDS: 1}


async def test_being_held_back_hides_no_silence(world: World) -> None:
    health = GatewayHealth(world.database)
    for _ in range(FAILURES_MAX):
        await health.record_answer(world.account_id, GatewayChannel.SESSIONS, THROTTLED)
        await health.record_answer(world.account_id, GatewayChannel.SESSIONS, SILENT)
    assert len(await world.rows("SELECT 1 FROM gateway_outage")) == 1


async def test_one_buyer_whom_the_gateway_holds_back_takes_it_from_nobody(world: World) -> None:
    world.gateway.answer_create = lambda _: THROTTLED
    payment = await world.create()
    for _ in range(FAILURES_MAX + 1):
        with pytest.raises(RefusedError) as refused:
            await world.select(payment)
        assert refused.value.code is ErrorCode.PG_UPSTREAM_ERROR
    world.gateway.answer_inquire = SessionReport(state=GatewaySessionState.OPEN)
    methods = await world.health.unavailable_channels()
    assert methods == frozenset()
