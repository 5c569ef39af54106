"""The end of an on-chain payment at its deadline: each row of the table, on a real chain."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from payintent.core import ids
from payintent.core.errors import RefusedError
from payintent.onchain.pending_transfers import OVERDUE
from payintent.payments.model import Payment
from tests.support.fault_rpc import FaultyNode
from tests.support.onchain import ChainWorld, chain_world
from tests.support.world import Api, World

pytestmark = pytest.mark.full

TTL_S = 1800
DAY_S = 24 * 3600


async def test_nothing_seen_expires_when_final_blocks_are_past_the_time(
    ground: ChainWorld,
) -> None:
    payment, _ = await ground.bill("USDT")
    await ground.pass_time(TTL_S + 2)
    await ground.turn()
    assert await ground.status(payment) == "PROCESSING"  # the one endpoint is no proof
    await ground.final()
    assert await ground.status(payment) == "EXPIRED"
    assert await ground.world.events(payment) == ["payment.expired"]


@pytest.fixture
async def witnessed(world: World, chain_url: str) -> AsyncIterator[ChainWorld]:
    """A chain that is read through two endpoints."""
    async with (
        FaultyNode(chain_url) as one,
        FaultyNode(chain_url) as other,
        chain_world(world, chain_url, endpoints=[one.url, other.url]) as ground,
    ):
        await ground.allow()
        yield ground


async def test_nothing_seen_by_two_endpoints_expires_at_once(witnessed: ChainWorld) -> None:
    payment, _ = await witnessed.bill("USDT")
    await witnessed.pass_time(TTL_S + 2)
    await witnessed.turn()
    assert await witnessed.status(payment) == "EXPIRED"


async def test_two_endpoints_do_not_hurry_a_payment_that_has_left_a_trace(
    witnessed: ChainWorld,
) -> None:
    payment, session = await witnessed.bill("USDT")
    await witnessed.post(session, "0x" + 64 * "7")
    await witnessed.pass_time(TTL_S + 2)
    await witnessed.turn()
    assert await witnessed.status(payment) == "PROCESSING"
    await witnessed.final()
    assert await witnessed.reason(payment) == "ONCHAIN_TIMEOUT"


async def test_what_was_seen_in_time_waits_for_finality_and_is_paid(
    ground: ChainWorld, api: Api
) -> None:
    payment, session = await ground.bill("USDT")
    await ground.pay(session)
    await ground.turn()
    await ground.move_clock(TTL_S + 1)
    await ground.turn()
    await ground.decide()
    told = await api.get(ids.format_id(ids.PAYMENT, payment.id))
    assert told.json["status"] == "PROCESSING"
    with pytest.raises(RefusedError, match="expired"):
        await ground.world.select(payment, ground.world.card)
    assert not (await ground.view(session))["payable"]
    await ground.final()
    assert await ground.status(payment) == "PAID"
    assert await ground.world.events(payment) == ["payment.completed"]


async def test_what_was_seen_and_is_gone_for_good_is_a_timeout(ground: ChainWorld) -> None:
    payment, session = await ground.bill("USDT")
    await ground.turn()
    await ground.pay(session)
    await ground.turn()
    assert (await ground.view(session))["status"] in {"detected", "confirming"}
    await ground.reorg(1)
    await ground.turn()
    assert (await ground.view(session))["status"] in {"detected", "confirming"}  # no proof yet
    await ground.final()
    assert (await ground.view(session))["status"] == "awaiting_payment"
    await ground.pass_time(TTL_S + 2)
    await ground.final()
    assert await ground.status(payment) == "FAILED"
    assert await ground.reason(payment) == "ONCHAIN_TIMEOUT"
    assert await ground.world.events(payment) == ["payment.failed"]


async def test_what_is_gone_and_comes_back_is_paid(ground: ChainWorld) -> None:
    payment, session = await ground.bill("USDT")
    await ground.turn()
    await ground.pay(session)
    await ground.turn()
    await ground.reorg(1)
    await ground.final()
    await ground.pay(session)
    await ground.turn()
    assert (await ground.view(session))["status"] in {"detected", "confirming"}
    await ground.final()
    assert await ground.status(payment) == "PAID"
    assert await ground.dispositions() == ["credited"]


async def test_a_hash_that_is_never_mined_is_a_timeout(ground: ChainWorld) -> None:
    payment, session = await ground.bill("USDT")
    await ground.post(session, "0x" + 64 * "7")
    await ground.turn()
    assert (await ground.view(session))["status"] == "submitted"
    await ground.pass_time(TTL_S + 2)
    await ground.turn()
    assert await ground.status(payment) == "PROCESSING"
    await ground.final()
    assert await ground.reason(payment) == "ONCHAIN_TIMEOUT"
    assert await ground.world.events(payment) == ["payment.failed"]


@pytest.mark.parametrize(
    ("token", "reason"), [("USDT", "AMOUNT_MISMATCH"), ("NATIVED", "TOKEN_MISMATCH")]
)
async def test_mismatches_alone_fail_when_the_time_is_over(
    ground: ChainWorld, token: str, reason: str
) -> None:
    payment, session = await ground.bill("USDT")
    await ground.pay_otherwise(session, token=token, amount=10**17)
    await ground.final()
    await ground.pass_time(TTL_S + 2)
    await ground.turn()
    assert await ground.status(payment) == "PROCESSING"
    await ground.final()
    assert await ground.status(payment) == "FAILED"
    assert await ground.reason(payment) == reason
    assert await ground.cases() == [reason]


async def test_an_outage_over_the_time_is_waited_for_and_what_was_paid_meanwhile_counts(
    ground: ChainWorld,
) -> None:
    paid, session = await ground.bill("USDT")
    unpaid, _ = await ground.bill("USDT")
    await ground.turn()
    await ground.pay(session)  # nobody looks
    await ground.move_clock(TTL_S + 7200)
    await ground.decide()
    assert await ground.status(paid) == await ground.status(unpaid) == "PROCESSING"
    await ground.keep_time()
    await ground.final()
    assert await ground.status(paid) == "PAID"
    assert await ground.status(unpaid) == "EXPIRED"


async def test_nothing_ends_without_a_block_having_been_read(ground: ChainWorld) -> None:
    payment, _ = await ground.bill("USDT")
    await ground.turn()
    for passed_s in (TTL_S + 1, DAY_S, 9 * DAY_S):
        await ground.move_clock(passed_s)
        await ground.world.rows("UPDATE session SET inquire_at = clock() WHERE life <> 'ended'")
        await ground.turn()
        assert await ground.status(payment) == "PROCESSING"
    await ground.keep_time()
    await ground.final()
    assert await ground.status(payment) == "EXPIRED"


async def test_a_chain_is_watched_from_a_look_on_and_not_while_its_head_is_old(
    ground: ChainWorld,
) -> None:
    service = ground.world.service
    strict = {"chain_watched_s": 180.0, "chain_behind_max_s": 600.0}
    ground.world.service = replace(service, settings=service.settings.model_copy(update=strict))
    await ground.world.rows("UPDATE chain_cursor SET watched_until = NULL, watched_since = NULL")
    await ground.keep_time()
    await ground.look()
    assert (await ground.cursor()).watched
    await ground.move_clock(181)
    assert not (await ground.cursor()).watched
    await ground.look()
    assert (await ground.cursor()).watched
    await ground.move_clock(600)
    await ground.look()
    assert not (await ground.cursor()).watched, "the newest block is 13 minutes old"
    await ground.keep_time()
    await ground.look()
    assert (await ground.cursor()).watched


async def test_a_payment_that_never_becomes_final_alarms_and_after_a_day_is_a_case(
    ground: ChainWorld,
) -> None:
    payment, session = await ground.bill("USDT")
    await ground.pay(session)
    await ground.turn()
    waiting = OVERDUE.labels("native")
    for passed_s, overdue, cases in (
        (TTL_S + 1, 0, []),
        (600, 1, []),
        (DAY_S, 1, ["RECONCILIATION"]),
        (DAY_S, 1, ["RECONCILIATION"]),
    ):
        await ground.move_clock(passed_s)
        await ground.turn()
        assert waiting._value.get() == overdue
        assert await ground.cases() == cases
        assert await ground.status(payment) == "PROCESSING"
    await ground.final()
    assert await ground.status(payment) == "PAID"
    assert waiting._value.get() == 0


async def seen_past_its_time(ground: ChainWorld) -> Payment:
    """Let a payment be seen, and mine more blocks without making it final."""
    payment, session = await ground.bill("USDT")
    await ground.pay(session)
    await ground.turn()
    await ground.pass_time(TTL_S + 2)
    await ground.turn()
    assert await ground.status(payment) == "PROCESSING"
    return payment


async def test_finality_that_a_watched_chain_never_reaches_is_waited_for_a_day(
    witnessed: ChainWorld,
) -> None:
    payment = await seen_past_its_time(witnessed)
    await witnessed.move_clock(DAY_S)
    await witnessed.turn()
    await witnessed.move_clock(60)
    await witnessed.turn()
    assert await witnessed.status(payment) == "EXPIRED"
    assert "UNDECIDED" in await witnessed.cases()
    await witnessed.final()
    assert await witnessed.world.events(payment) == ["payment.expired"]
    assert await witnessed.dispositions() == ["late"]
    assert "LATE_PAYMENT" in await witnessed.cases()


async def test_nothing_expires_by_the_wait_while_nobody_watches_the_chain(
    witnessed: ChainWorld,
) -> None:
    payment = await seen_past_its_time(witnessed)
    await witnessed.world.rows("UPDATE chain_cursor SET watched_until = clock()")
    await witnessed.move_clock(9 * DAY_S)
    for _ in range(3):
        await witnessed.move_clock(3700)
        await witnessed.decide()
    assert await witnessed.status(payment) == "PROCESSING"
    await witnessed.final()
    assert await witnessed.status(payment) == "PAID"


async def test_a_replaced_session_ends_when_nothing_can_come_of_it_any_more(
    ground: ChainWorld,
) -> None:
    payment, session = await ground.bill("USDT")
    await ground.turn()
    await ground.world.select(payment, ground.world.card)
    await ground.turn()
    assert (await ground.world.session(session.id))["life"] == "closing"
    before = (await ground.world.session(session.id))["inquire_at"]
    await ground.turn()  # it is not asked about at every look
    assert (await ground.world.session(session.id))["inquire_at"] == before
    await ground.pass_time(TTL_S + 2)
    await ground.final()
    assert (await ground.world.session(session.id))["life"] == "ended"
