"""The end of an on-chain payment at its deadline, on a real chain."""

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


async def test_an_unpaid_payment_expires_when_a_final_block_passes_the_deadline(
    ground: ChainWorld,
) -> None:
    payment, _ = await ground.bill("USDT")
    await ground.pass_time(TTL_S + 2)
    await ground.turn()
    assert await ground.status(payment) == "PROCESSING"  # a single endpoint is not proof
    await ground.final()
    assert await ground.status(payment) == "EXPIRED"
    assert await ground.world.events(payment) == ["payment.expired"]


@pytest.fixture
async def witnessed(world: World, chain_url: str) -> AsyncIterator[ChainWorld]:
    """A chain that is read through two endpoints."""
    async with (
        FaultyNode(chain_url) as first,
        FaultyNode(chain_url) as second,
        chain_world(world, chain_url, endpoints=[first.url, second.url]) as ground,
    ):
        await ground.allow()
        yield ground


async def test_an_unpaid_payment_expires_immediately_if_two_endpoints_agree(
    witnessed: ChainWorld,
) -> None:
    payment, _ = await witnessed.bill("USDT")
    await witnessed.pass_time(TTL_S + 2)
    await witnessed.turn()
    assert await witnessed.status(payment) == "EXPIRED"


async def test_a_payment_with_a_posted_hash_does_not_expire_before_finality(
    witnessed: ChainWorld,
) -> None:
    payment, session = await witnessed.bill("USDT")
    await witnessed.post(session, "0x" + 64 * "7")
    await witnessed.pass_time(TTL_S + 2)
    await witnessed.turn()
    assert await witnessed.status(payment) == "PROCESSING"
    await witnessed.final()
    assert await witnessed.reason(payment) == "ONCHAIN_TIMEOUT"


async def test_a_payment_sighted_in_time_waits_for_finality_and_is_paid(
    ground: ChainWorld, api: Api
) -> None:
    payment, session = await ground.bill("USDT")
    await ground.pay(session)
    await ground.turn()
    await ground.move_clock(TTL_S + 1)
    await ground.turn()
    await ground.decide()
    response = await api.get(ids.format_id(ids.PAYMENT, payment.id))
    assert response.json["status"] == "PROCESSING"
    with pytest.raises(RefusedError, match="expired"):
        await ground.world.select(payment, ground.world.card)
    assert not (await ground.view(session))["payable"]
    await ground.final()
    assert await ground.status(payment) == "PAID"
    assert await ground.world.events(payment) == ["payment.completed"]


async def test_a_sighted_payment_that_disappears_fails_with_a_timeout(ground: ChainWorld) -> None:
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


async def test_a_payment_that_disappears_and_reappears_is_paid(ground: ChainWorld) -> None:
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


async def test_a_posted_hash_that_is_never_mined_fails_with_a_timeout(ground: ChainWorld) -> None:
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
async def test_a_payment_with_only_mismatches_fails_at_the_deadline(
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


async def test_a_payment_made_during_an_outage_counts_when_the_outage_ends(
    ground: ChainWorld,
) -> None:
    payment, session = await ground.bill("USDT")
    unpaid, _ = await ground.bill("USDT")
    await ground.turn()
    await ground.pay(session)  # the watcher does not run
    await ground.move_clock(TTL_S + 7200)
    await ground.decide()
    assert await ground.status(payment) == await ground.status(unpaid) == "PROCESSING"
    await ground.keep_time()
    await ground.final()
    assert await ground.status(payment) == "PAID"
    assert await ground.status(unpaid) == "EXPIRED"


async def test_a_payment_does_not_end_until_a_new_block_is_read(ground: ChainWorld) -> None:
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


async def test_a_chain_is_watched_after_a_poll_unless_its_head_is_old(
    ground: ChainWorld,
) -> None:
    service = ground.world.service
    strict = {"chain_watched_s": 180.0, "chain_behind_max_s": 600.0}
    ground.world.service = replace(service, settings=service.settings.model_copy(update=strict))
    await ground.world.rows("UPDATE chain_cursor SET watched_until = NULL, watched_since = NULL")
    await ground.keep_time()
    await ground.catch_up()
    assert (await ground.cursor()).watched
    await ground.move_clock(181)
    assert not (await ground.cursor()).watched
    await ground.catch_up()
    assert (await ground.cursor()).watched
    await ground.move_clock(600)
    await ground.catch_up()
    assert not (await ground.cursor()).watched, "the newest block is 13 minutes old"
    await ground.keep_time()
    await ground.catch_up()
    assert (await ground.cursor()).watched


async def test_a_payment_without_finality_raises_an_alarm_and_a_case_after_a_day(
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


async def pay_without_finality(ground: ChainWorld) -> Payment:
    """Detect a payment, and pass its deadline without making the payment final."""
    payment, session = await ground.bill("USDT")
    await ground.pay(session)
    await ground.turn()
    await ground.pass_time(TTL_S + 2)
    await ground.turn()
    assert await ground.status(payment) == "PROCESSING"
    return payment


async def test_a_payment_without_finality_on_a_watched_chain_expires_after_a_day(
    witnessed: ChainWorld,
) -> None:
    payment = await pay_without_finality(witnessed)
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


async def test_a_payment_does_not_expire_while_its_chain_is_unwatched(
    witnessed: ChainWorld,
) -> None:
    payment = await pay_without_finality(witnessed)
    await witnessed.world.rows("UPDATE chain_cursor SET watched_until = clock()")
    await witnessed.move_clock(9 * DAY_S)
    for _ in range(3):
        await witnessed.move_clock(3700)
        await witnessed.decide()
    assert await witnessed.status(payment) == "PROCESSING"
    await witnessed.final()
    assert await witnessed.status(payment) == "PAID"


async def test_a_replaced_session_ends_when_its_deadline_is_final(
    ground: ChainWorld,
) -> None:
    payment, session = await ground.bill("USDT")
    await ground.turn()
    await ground.world.select(payment, ground.world.card)
    await ground.turn()
    assert (await ground.world.session(session.id))["life"] == "closing"
    before = (await ground.world.session(session.id))["inquire_at"]
    await ground.turn()  # the inquiry does not run in every poll
    assert (await ground.world.session(session.id))["inquire_at"] == before
    await ground.pass_time(TTL_S + 2)
    await ground.final()
    assert (await ground.world.session(session.id))["life"] == "ended"
