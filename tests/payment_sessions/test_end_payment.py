"""A payment on a chain that is no longer watched can be ended only by two people."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from payintent.approvals.operations import Approve, ShowApproval
from payintent.chains import watch_store as chain_watch_store
from payintent.core import ids
from payintent.core.access import Role
from payintent.core.errors import ErrorCode, RefusedError
from payintent.operators.operation import Actor
from payintent.operators.proposals_store import Proposal
from payintent.payment_sessions.operations import EndPayment
from payintent.payments import sessions_store as session_store
from payintent.payments.model import Payment, Session
from payintent.runtime.settings import Settings
from payintent.service import Service
from tests.support.contracts import bill, contract_service, log_of, offer_tokens, record_final_logs
from tests.support.fakes import FakeGateway, captured
from tests.support.operation_examples import ADA, ALAN
from tests.support.world import World

TTL_S = 1800
DAY_S = 24 * 3600


@pytest.fixture
async def service(settings: Settings, gateway: FakeGateway) -> AsyncIterator[Service]:
    async with contract_service(settings, gateway) as service:
        yield service


@pytest.fixture
async def stranded(world: World) -> tuple[Payment, Session]:
    """A payment past its deadline, on an unwatched chain."""
    for name in ("Ada", "Alan"):
        await world.operator_token(name)
    methods = await offer_tokens(world)
    waiting = await bill(world, methods["NATIVED"])
    await world.rows("UPDATE chain_cursor SET watched_until = clock()")
    await world.move_clock(TTL_S)
    return waiting


def end(payment: Payment) -> EndPayment:
    return EndPayment(payment_id=ids.format_id(ids.PAYMENT, payment.id))


async def propose(world: World, payment: Payment) -> str:
    proposal = await world.service.submit(end(payment), ADA)
    assert isinstance(proposal, Proposal)
    return ids.format_id(ids.APPROVAL, proposal.id)


async def end_by_two(world: World, payment: Payment) -> Any:
    """Let Ada propose and Alan approve; return the result."""
    approval = Approve(approval_id=await propose(world, payment))
    return (await world.service.run_operation(approval, ALAN)).result


async def refusal(world: World, payment: Payment) -> str:
    with pytest.raises(RefusedError) as refused:
        await world.service.submit(end(payment), ADA)
    assert refused.value.code is ErrorCode.CONFLICT
    return refused.value.message


async def inquire_all(world: World) -> None:
    """Run an inquiry for every session that has not ended."""
    await world.rows("UPDATE session SET inquire_at = clock() WHERE inquire_at IS NOT NULL")
    for ask in await session_store.claim_due(world.database, 100, 60.0, []):
        await world.service.session_inquirer.inquire(ask)


async def test_two_people_end_a_payment_with_an_event_and_a_case(
    world: World, stranded: tuple[Payment, Session]
) -> None:
    payment, session = stranded
    waiting = await propose(world, payment)
    assert await world.status(payment) == "PROCESSING"
    with pytest.raises(RefusedError, match="an operator other than 'Ada'"):
        await world.service.run_operation(Approve(approval_id=waiting), ADA)
    assert await world.events(payment) == []
    approval = await world.service.run_operation(ShowApproval(approval_id=waiting), ALAN)
    assert "changes from PROCESSING to EXPIRED" in approval.changes[0]
    assert approval.changes[1].startswith(
        "native is not watched: 0 detected or posted transactions"
    )
    approved = await world.service.run_operation(Approve(approval_id=waiting), ALAN)
    assert approved.result["status"] == await world.status(payment) == "EXPIRED"
    assert await world.events(payment) == ["payment.expired"]
    [case] = await world.rows("SELECT id, kind, status, merchant_id FROM money_case")
    assert approved.result["case_id"] == ids.format_id(ids.CASE, case["id"])
    assert (case["kind"], case["status"], case["merchant_id"]) == (
        *("UNDECIDED", "OPEN", world.merchant_id),
    )
    assert (await world.session(session.id))["life"] == "closing"


async def test_the_audit_log_names_both_people(
    world: World, stranded: tuple[Payment, Session]
) -> None:
    payment, _ = stranded
    await end_by_two(world, payment)
    [line] = await world.rows(
        "SELECT who, merchant_id, details::text AS details FROM audit WHERE action = 'payment.end'"
    )
    assert (line["who"], line["merchant_id"]) == ("Ada", world.merchant_id)
    details = json.loads(line["details"])
    assert details["payment_id"] == ids.format_id(ids.PAYMENT, payment.id)
    assert details["approved_by"] == "Alan"


async def test_ending_a_payment_needs_the_finance_role(
    world: World, stranded: tuple[Payment, Session]
) -> None:
    payment, _ = stranded
    with pytest.raises(RefusedError, match="requires the finance role") as refused:
        await world.service.submit(end(payment), Actor("Ada", "ticket 7", Role.SUPPORT))
    assert refused.value.code is ErrorCode.FORBIDDEN


async def test_a_payment_on_a_halted_chain_can_be_ended(
    world: World, stranded: tuple[Payment, Session]
) -> None:
    await chain_watch_store.mark_watched(world.database, "native", 0, 60)
    await world.rows("UPDATE chain_cursor SET halted = 'a person must look'")
    assert (await end_by_two(world, stranded[0]))["status"] == "EXPIRED"


async def test_ending_is_refused_if_the_chain_is_watched(
    world: World, stranded: tuple[Payment, Session]
) -> None:
    """The watcher may also have come back between the proposal and the approval."""
    payment, _ = stranded
    waiting = await propose(world, payment)
    await chain_watch_store.mark_watched(world.database, "native", 0, 60)
    assert "native is watched" in await refusal(world, payment)
    with pytest.raises(RefusedError, match="native is watched"):
        await world.service.run_operation(Approve(approval_id=waiting), ALAN)
    assert await world.status(payment) == "PROCESSING"


async def test_ending_is_refused_before_the_deadline(world: World) -> None:
    methods = await offer_tokens(world)
    payment, _ = await bill(world, methods["NATIVED"])
    await world.rows("UPDATE chain_cursor SET watched_until = clock()")
    assert "the payment's deadline is" in await refusal(world, payment)


async def test_ending_is_refused_if_the_gateway_responds(world: World) -> None:
    payment = await world.create()
    await world.select(payment)
    await world.move_clock(TTL_S)
    assert "account 1 at fake is responding" in await refusal(world, payment)


_GONE = {
    "its account is off": "UPDATE provider_account SET enabled = false",
    "its provider is off": "UPDATE provider SET enabled = false",
    "its circuit is open": "INSERT INTO gateway_outage (account_id, channel, until) "
    "SELECT account_id, 'sessions', clock() FROM session",
    "it does not close the session": "UPDATE session SET life = 'closing', closing_at = clock(), "
    "silent_since = clock()",
    "there is no adapter": "UPDATE session SET provider = 'gone'",
}


@pytest.mark.parametrize("gone", _GONE)
async def test_two_people_end_a_payment_at_an_unreachable_gateway_with_a_case(
    world: World, gone: str
) -> None:
    for name in ("Ada", "Alan"):
        await world.operator_token(name)
    payment = await world.create()
    session = (await world.select(payment)).session
    assert "is responding" in await refusal(world, payment)
    if gone == "there is no adapter":  # quotes cannot be changed without this
        await world.rows("ALTER TABLE session DISABLE TRIGGER session_quote_frozen")
    await world.rows(_GONE[gone])
    waiting = await propose(world, payment)
    assert await world.status(payment) == "PROCESSING"
    approval = await world.service.run_operation(ShowApproval(approval_id=waiting), ALAN)
    assert "fake" in approval.changes[1] or "gone" in approval.changes[1]
    approved = await world.service.run_operation(Approve(approval_id=waiting), ALAN)
    assert approved.result["status"] == await world.status(payment) == "EXPIRED"
    assert await world.events(payment) == ["payment.expired"]
    [case] = await world.rows("SELECT id, kind, status, note FROM money_case")
    assert approved.result["case_id"] == ids.format_id(ids.CASE, case["id"])
    assert (case["kind"], case["status"]) == ("UNDECIDED", "OPEN")
    assert case["note"] == f"ended manually: {approval.changes[1]}"
    assert (await world.session(session.id))["life"] == "closing"


async def test_a_later_capture_at_a_recovered_gateway_belongs_to_the_case(world: World) -> None:
    for name in ("Ada", "Alan"):
        await world.operator_token(name)
    payment = await world.create()
    session = (await world.select(payment)).session
    await world.rows("UPDATE provider_account SET enabled = false")
    await end_by_two(world, payment)
    await world.report(payment, session.id, captured(159_000))
    assert await world.status(payment) == "EXPIRED"
    assert await world.events(payment) == ["payment.expired"]
    [case] = await world.rows("SELECT kind, capture_id FROM money_case")
    assert case["kind"] == "LATE_PAYMENT"
    assert case["capture_id"] is not None


async def test_ending_is_refused_if_the_gateway_recovers_before_the_approval(world: World) -> None:
    for name in ("Ada", "Alan"):
        await world.operator_token(name)
    payment = await world.create()
    await world.select(payment)
    await world.rows("UPDATE provider_account SET enabled = false")
    waiting = await propose(world, payment)
    await world.rows("UPDATE provider_account SET enabled = true")
    with pytest.raises(RefusedError, match="is responding"):
        await world.service.run_operation(Approve(approval_id=waiting), ALAN)
    assert await world.status(payment) == "PROCESSING"


async def test_ending_is_refused_if_the_payment_is_not_processing(world: World) -> None:
    pending, paid = await world.create(), await world.create()
    session = (await world.select(paid)).session
    await world.report(paid, session.id, captured(159000))
    await world.move_clock(TTL_S)
    assert "is PENDING" in await refusal(world, pending)
    assert "is PAID" in await refusal(world, paid)


async def test_ending_is_refused_if_the_session_has_ended(
    world: World, stranded: tuple[Payment, Session]
) -> None:
    payment, session = stranded
    ended = "UPDATE session SET life = 'ended', ended_at = clock(), outcome = 'closed' "
    await world.rows(ended + "WHERE id = $1", session.id)
    assert "session has ended" in await refusal(world, payment)
    assert await world.status(payment) == "PROCESSING"


async def test_ending_is_refused_a_second_time(
    world: World, stranded: tuple[Payment, Session]
) -> None:
    first, second = await propose(world, stranded[0]), await propose(world, stranded[0])
    await world.service.run_operation(Approve(approval_id=first), ALAN)
    with pytest.raises(RefusedError, match="is EXPIRED"):
        await world.service.run_operation(Approve(approval_id=second), ALAN)
    assert await world.events(stranded[0]) == ["payment.expired"]


async def test_ending_an_unknown_payment_is_not_proposed(world: World) -> None:
    with pytest.raises(RefusedError, match="no payment") as refused:
        await world.service.submit(EndPayment(payment_id="pay_0351NDickobV3yYH8omp8v"), ADA)
    assert refused.value.code is ErrorCode.NOT_FOUND


async def test_a_later_transfer_on_the_chain_belongs_to_the_case(
    world: World, stranded: tuple[Payment, Session]
) -> None:
    payment, session = stranded
    case_id = ids.parse_id(ids.CASE, (await end_by_two(world, payment))["case_id"])
    await world.rows("UPDATE merchant SET auto_refund = false")
    await record_final_logs(world, log_of(session), log_of(session, block_number=8))
    assert await world.status(payment) == "EXPIRED"
    assert await world.events(payment) == ["payment.expired"]
    first, second = await world.rows(
        """
        SELECT m.id, m.kind, m.status, c.credited
        FROM chain_receipt r
        JOIN capture c ON c.receipt_id = r.id
        JOIN money_case m ON m.capture_id = c.id AND m.receipt_id = r.id
        ORDER BY r.block
        """
    )
    assert first["id"] == case_id != second["id"]
    for case in (first, second):
        assert (case["kind"], case["status"], case["credited"]) == ("LATE_PAYMENT", "OPEN", False)
    assert len(await world.cases(payment)) == 2


async def test_a_later_transfer_is_refunded_if_the_merchant_refunds_automatically(
    world: World, stranded: tuple[Payment, Session]
) -> None:
    payment, session = stranded
    await end_by_two(world, payment)
    await world.rows("UPDATE merchant SET auto_refund = true")
    await record_final_logs(world, log_of(session))
    [case] = await world.rows("SELECT id FROM money_case")
    [refund] = await world.rows("SELECT case_id FROM refund")
    assert refund["case_id"] == case["id"]


async def test_the_session_is_queried_until_the_chain_is_read_again(
    world: World, stranded: tuple[Payment, Session]
) -> None:
    payment, session = stranded
    await end_by_two(world, payment)
    await world.move_clock(9 * DAY_S)
    await inquire_all(world)
    assert await world.cases(payment) == ["UNDECIDED"]
    assert (await world.session(session.id))["inquire_at"] is not None
    await chain_watch_store.mark_watched(world.database, "native", 0, 60)
    await world.rows("UPDATE chain_cursor SET at = clock()")
    await inquire_all(world)
    assert (await world.session(session.id))["life"] == "ended"
    [case] = await world.rows("SELECT kind, status FROM money_case")
    assert (case["kind"], case["status"]) == ("UNDECIDED", "DISMISSED")
    assert await world.events(payment) == ["payment.expired"]
