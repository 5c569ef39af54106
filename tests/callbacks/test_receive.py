"""Callbacks that arrive once, late, twice, out of order, early, or from the wrong account."""

import asyncio
from dataclasses import replace
from uuid import UUID, uuid4

import msgspec
import pytest

from payintent.callbacks import store as callback_store
from payintent.callbacks.receive import CallbackResult, apply_deferred_callbacks
from payintent.core.errors import RefusedError
from payintent.gateways.port import (
    Capture,
    FailureReason,
    GatewaySessionState,
    NotContacted,
    OutcomeUnknown,
    SessionRejected,
    SessionReport,
    VerifiedCallback,
)
from payintent.payments import store as payment_store
from payintent.payments.model import Payment
from payintent.worker import prune
from tests.payments.test_expire import sweep
from tests.refunds.refund_setup import set_auto_refund
from tests.support.fakes import captured, declined
from tests.support.race_staging import hold_transaction, wait_until_blocked
from tests.support.world import World

EXACT = captured(159000)
_COPIED = (
    *("account_id", "payment_method_id", "provider", "provider_name", "kind", "label", "country"),
    *("currency", "amount", "fee_mode", "fee_rate", "fee_amount", "estimated_tax", "total_amount"),
    "total_minor",
)


async def tell(
    world: World,
    session_id: UUID | None,
    report: SessionReport | None = EXACT,
    *,
    name: str | None = None,
    account_id: int | None = None,
) -> CallbackResult:
    """Receive a callback, by default with a new id."""
    callback = VerifiedCallback(id=name or uuid4().hex, session_id=session_id, report=report)
    service = world.service
    account_id = account_id or world.account_id
    return await service.callback_receiver.receive(account_id, callback, b"raw body")


async def selected(world: World) -> tuple[Payment, UUID]:
    payment = await world.create()
    return payment, (await world.select(payment)).session.id


async def add_account(world: World) -> int:
    credentials = {"signing_secret": "another"}
    return await world.add_account("http://other.test", **credentials)


async def copy_session(world: World, existing: UUID, session_id: UUID, payment: Payment) -> None:
    """Copy a session with a new id and payment; the copy is `opening`."""
    [row] = await world.rows(f"SELECT {', '.join(_COPIED)} FROM session WHERE id = $1", existing)
    values = ", ".join(f"${n}" for n in range(1, len(_COPIED) + 3))
    await world.rows(
        f"INSERT INTO session (id, payment_id, {', '.join(_COPIED)}) VALUES ({values})",
        *(session_id, payment.id, *row),
    )


async def add_session(world: World, session_id: UUID) -> Payment:
    """Create a session whose id a provider has already reported."""
    payment, existing = await selected(world)
    await copy_session(world, existing, session_id, payment)
    return payment


async def test_a_callback_is_stored_unchanged_and_applied_in_one_transaction(world: World) -> None:
    payment, session_id = await selected(world)
    assert await tell(world, session_id, name="one") == CallbackResult(True, payment.id)
    assert await world.status(payment) == "PAID"
    [row] = await world.rows("SELECT * FROM callback")
    assert (row["callback_id"], row["body"]) == ("one", b"raw body")
    assert row["applied_at"] is not None


async def test_a_duplicate_callback_has_no_effect_whatever_its_content(world: World) -> None:
    payment, session_id = await selected(world)
    await tell(world, session_id, declined(), name="one")
    assert (await tell(world, session_id, EXACT, name="one")).is_new is False
    assert await world.status(payment) == "FAILED"
    assert await world.rows("SELECT 1 FROM capture") == []


async def test_the_same_capture_with_another_callback_id_has_no_effect(world: World) -> None:
    payment, session_id = await selected(world)
    for _ in range(3):
        assert (await tell(world, session_id)).is_new
    assert await world.events(payment) == ["payment.completed"]
    assert await world.cases(payment) == []
    assert len(await world.rows("SELECT 1 FROM capture")) == 1


async def test_a_second_capture_is_a_double_payment(world: World) -> None:
    payment, session_id = await selected(world)
    await tell(world, session_id)
    await tell(world, session_id, captured(159000, reference="cap-2"))
    assert await world.events(payment) == ["payment.completed"]
    assert await world.cases(payment) == ["DOUBLE_PAYMENT"]


@pytest.mark.parametrize("order", [("inv.", "inv.7"), ("inv.7", "inv."), ("inv.", "inv.")])
async def test_a_partial_reference_identifies_the_same_capture(
    world: World, order: tuple[str, str]
) -> None:
    payment, session_id = await selected(world)
    for reference in (*order, "inv.7"):
        await tell(world, session_id, captured(159000, reference=reference))
    assert await world.events(payment) == ["payment.completed"]
    assert await world.cases(payment) == []
    assert [row["reference"] for row in await world.rows("SELECT reference FROM capture")] == [
        "inv.7"
    ]
    await tell(world, session_id, captured(159000, reference="inv.8"))
    assert await world.cases(payment) == ["DOUBLE_PAYMENT"]


async def test_a_partial_reference_does_not_match_captures_of_other_sessions(
    world: World,
) -> None:
    for _ in range(2):
        payment, session_id = await selected(world)
        await tell(world, session_id, captured(159000, reference=f"{session_id.hex[:12]}."))
        assert await world.status(payment) == "PAID"
    payment, session_id = await selected(world)
    await tell(world, session_id, captured(159000, reference="inv."))
    other, other_id = await selected(world)
    await tell(world, other_id, captured(159000, reference="inv.7"))
    assert await world.status(other) == "PAID"
    assert len(await world.rows("SELECT 1 FROM capture")) == 4


async def test_a_capture_after_a_decline_is_a_late_payment(world: World) -> None:
    payment, session_id = await selected(world)
    await tell(world, session_id, declined(FailureReason.UNKNOWN))
    await tell(world, session_id)
    assert await world.status(payment) == "FAILED"
    assert await world.events(payment) == ["payment.failed"]
    assert await world.cases(payment) == ["LATE_PAYMENT"]


FINER = replace(
    EXACT,
    capture=Capture(reference="f", amount_minor=159000, currency="THB", verbatim="1590.001 THB"),
)


OTHERWISE = replace(
    EXACT,
    capture=Capture(
        reference="o",
        amount_minor=159000,
        currency="THB",
        verbatim="1590.00 THB, response 5016",
        uncertain=True,
    ),
)


async def test_a_capture_that_its_gateway_holds_for_review_opens_a_case_immediately(
    world: World,
) -> None:
    await set_auto_refund(world, on=True)
    payment, session_id = await selected(world)
    await tell(world, session_id, OTHERWISE)
    assert await world.status(payment) == "FAILED"
    assert await world.cases(payment) == ["AMOUNT_MISMATCH"]
    [case] = await world.rows("SELECT note FROM money_case")
    assert case["note"] == "the provider reported 1590.00 THB, response 5016"
    assert await world.rows("SELECT 1 FROM refund") == []


async def test_a_capture_under_review_stays_under_review_until_its_session_appears(
    world: World,
) -> None:
    await set_auto_refund(world, on=True)
    session_id = world.id_generator.new_session_id()
    await tell(world, session_id, OTHERWISE)
    payment = await add_session(world, session_id)
    await apply_deferred_callbacks(world.database, 10)
    assert await world.cases(payment) == ["AMOUNT_MISMATCH"]
    assert await world.rows("SELECT 1 FROM refund") == []


@pytest.mark.parametrize("report", [captured(159000, "EUR"), FINER])
async def test_a_capture_that_differs_from_the_request_fails_the_payment(
    world: World, report: SessionReport
) -> None:
    payment, session_id = await selected(world)
    await tell(world, session_id, report)
    stored_payment = (await world.read(payment)).payment
    assert (stored_payment.status, stored_payment.failure_reason) == ("FAILED", "AMOUNT_MISMATCH")
    assert await world.cases(payment) == ["AMOUNT_MISMATCH"]
    assert len(await world.rows("SELECT 1 FROM capture")) == 1
    [case] = await world.rows("SELECT note FROM money_case")
    assert report.capture is not None
    assert case["note"] == (
        f"the provider reported {FINER.capture.verbatim}" if report is FINER else ""
    )


async def test_an_amount_with_too_many_decimals_is_kept_exact_until_its_session_appears(
    world: World,
) -> None:
    session_id = world.id_generator.new_session_id()
    await tell(world, session_id, FINER)
    payment = await add_session(world, session_id)
    await apply_deferred_callbacks(world.database, 10)
    assert await world.cases(payment) == ["AMOUNT_MISMATCH"]
    assert await world.status(payment) == "FAILED"


async def test_a_decline_after_a_capture_has_no_effect(world: World) -> None:
    payment, session_id = await selected(world)
    await tell(world, session_id)
    before = await world.read(payment)
    await tell(world, session_id, declined())
    assert (await world.read(payment)).payment == before.payment
    assert await world.cases(payment) == []


async def test_a_capture_after_expiry_is_a_late_payment(world: World) -> None:
    payment, session_id = await selected(world)
    await world.report(payment, session_id, SessionReport(state=GatewaySessionState.CANCELLED))
    await world.move_clock(1801)
    await sweep(world)
    await tell(world, session_id)
    assert await world.status(payment) == "EXPIRED"
    assert await world.events(payment) == ["payment.expired"]
    assert await world.cases(payment) == ["LATE_PAYMENT"]


async def test_a_decline_of_a_replaced_session_is_stored_without_effect(world: World) -> None:
    payment, first = await selected(world)
    await world.select(payment, world.transfer)
    assert (await tell(world, first, declined())).is_new
    assert await world.status(payment) == "PROCESSING"
    assert (await world.session(first))["life"] == "ended"
    await tell(world, first, captured(159000, reference="orphan"))
    assert await world.status(payment) == "PROCESSING"
    assert await world.events(payment) == []
    assert await world.cases(payment) == ["ORPHAN_CAPTURE"]


@pytest.mark.parametrize("state", ["open", "authorising", "absent"])
async def test_a_report_without_a_final_state_has_no_effect(world: World, state: str) -> None:
    payment, session_id = await selected(world)
    before = await world.read(payment)
    await tell(world, session_id, SessionReport(state=GatewaySessionState(state)))
    after = await world.read(payment)
    assert (after.payment, after.session) == (before.payment, before.session)


async def test_a_callback_without_a_session_is_only_stored(world: World) -> None:
    assert await tell(world, None, None) == CallbackResult(True, None)
    _, session_id = await selected(world)
    assert (await tell(world, session_id, None)).is_new
    assert await apply_deferred_callbacks(world.database, 10) == 0


async def test_a_callback_for_an_unknown_session_is_deferred(world: World) -> None:
    session_id = world.id_generator.new_session_id()
    assert await tell(world, session_id) == CallbackResult(True, None)
    assert (await tell(world, session_id, name="again")).is_new
    assert await apply_deferred_callbacks(world.database, 10) == 0
    payment = await add_session(world, session_id)
    assert await apply_deferred_callbacks(world.database, 10) == 2
    assert await apply_deferred_callbacks(world.database, 10) == 0
    assert await world.status(payment) == "PAID"
    assert await world.events(payment) == ["payment.completed"]
    assert (await world.read(payment)).payment.session_id == session_id


@pytest.mark.parametrize("order", [("inv.", "inv.7"), ("inv.7", "inv.")])
async def test_a_deferred_capture_with_two_references_is_not_a_double_payment(
    world: World, order: tuple[str, str]
) -> None:
    await set_auto_refund(world, on=True)
    session_id = world.id_generator.new_session_id()
    for reference in order:
        await tell(world, session_id, captured(159000, reference=reference))
        await world.move_clock(1)
    payment = await add_session(world, session_id)
    assert await apply_deferred_callbacks(world.database, 10) == 2
    assert await world.events(payment) == ["payment.completed"]
    assert await world.cases(payment) == []
    assert await world.rows("SELECT FROM refund") == []


async def test_two_processes_apply_each_deferred_callback_once(world: World) -> None:
    session_id = world.id_generator.new_session_id()
    await tell(world, session_id)
    payment = await add_session(world, session_id)
    async with hold_transaction(world, lambda tx: payment_store.lock(tx, [payment.id])) as first:
        both = [asyncio.create_task(apply_deferred_callbacks(world.database, 10)) for _ in range(2)]
        await wait_until_blocked(world, *both)
        await first.commit()
        assert sorted(await asyncio.gather(*both)) == [0, 1]
    assert await world.events(payment) == ["payment.completed"]


async def test_a_deferred_callback_that_cannot_be_applied_does_not_delay_the_rest(
    world: World,
) -> None:
    first_id, second_id = (world.id_generator.new_session_id() for _ in range(2))
    await tell(world, first_id, name="from a later version")
    await world.move_clock(1)
    await tell(world, second_id)
    await world.rows(
        """UPDATE callback SET report = '{"state": "unheard"}' WHERE callback_id = $1""",
        "from a later version",
    )
    waiting, paid = await add_session(world, first_id), await add_session(world, second_id)
    with pytest.raises(msgspec.ValidationError):  # so that the worker logs it
        await apply_deferred_callbacks(world.database, 10)
    assert await world.status(waiting) == "PROCESSING"
    assert await world.status(paid) == "PAID"


async def test_a_deferred_callback_keeps_every_field_of_its_report(world: World) -> None:
    session_id = world.id_generator.new_session_id()
    await tell(world, session_id, declined(FailureReason.UNKNOWN))
    payment = await add_session(world, session_id)
    await apply_deferred_callbacks(world.database, 10)
    stored_payment = (await world.read(payment)).payment
    assert (stored_payment.status, stored_payment.failure_reason) == ("FAILED", "UNKNOWN")


async def test_a_session_of_another_account_is_unknown(world: World) -> None:
    payment, session_id = await selected(world)
    other = await add_account(world)
    assert await tell(world, session_id, account_id=other) == CallbackResult(True, None)
    assert await apply_deferred_callbacks(world.database, 10) == 0
    assert await world.status(payment) == "PROCESSING"
    assert await world.cases(payment) == []
    [capture] = await world.rows("SELECT account_id, payment_id FROM capture")
    assert (capture["account_id"], capture["payment_id"]) == (other, None)


async def test_the_same_callback_id_at_two_accounts_means_two_callbacks(world: World) -> None:
    payment, session_id = await selected(world)
    await tell(
        world, world.id_generator.new_session_id(), name="one", account_id=await add_account(world)
    )
    assert (await tell(world, session_id, name="one")).is_new
    assert await world.status(payment) == "PAID"


async def test_the_same_reference_at_two_accounts_means_two_captures(world: World) -> None:
    payment, session_id = await selected(world)
    other = await add_account(world)
    await world.rows("UPDATE payment_method SET account_id = $1 WHERE id = $2", other, world.card)
    second, second_session = await selected(world)
    await tell(world, session_id)
    await tell(world, second_session, account_id=other)
    assert await world.events(payment) == await world.events(second) == ["payment.completed"]


async def test_a_callback_for_an_unknown_session_is_deleted_after_a_day(world: World) -> None:
    database = world.database
    await tell(world, world.id_generator.new_session_id(), declined())
    _, session_id = await selected(world)
    await tell(world, session_id)
    await world.move_clock(24 * 3600 - 60)
    assert await callback_store.delete_unmatched(database, 24, 10) == 0
    await world.move_clock(24 * 3600 + 1)
    assert await callback_store.delete_unmatched(database, 24, 10) == 1
    assert len(await world.rows("SELECT 1 FROM callback")) == 1


async def test_card_data_is_masked_in_stored_callbacks(world: World) -> None:
    service = world.service
    reports = [
        (None, b'{"cardNo":"4111111111111111","amount":"1.00"}'),
        (b'{"cardToken":"tok","amount":"1.00"}', b"eyJ.wrapped.up"),
    ]
    new_ids = world.id_generator
    for number, (facts, body) in enumerate(reports):
        callback = VerifiedCallback(
            id=f"{number}", session_id=new_ids.new_session_id(), stored_body=facts
        )
        await service.callback_receiver.receive(world.account_id, callback, body)
        of_refund = VerifiedCallback(
            id=f"{number} of a refund", refund_id=new_ids.new_id(), stored_body=facts
        )
        await service.callback_receiver.receive(world.account_id, of_refund, body)
    rows = await world.rows("SELECT body FROM callback ORDER BY callback_id")
    assert [row["body"] for row in rows] == [
        *[b'{"cardNo":"411111******1111","amount":"1.00"}'] * 2,
        *[b'{"cardToken":"***","amount":"1.00"}'] * 2,
    ]


async def test_bodies_of_applied_callbacks_are_deleted_after_a_month(world: World) -> None:
    database = world.database
    payment, session_id = await selected(world)
    await tell(world, session_id, name="applied")
    await tell(
        world, world.id_generator.new_session_id(), captured(1, reference="waits"), name="waits"
    )

    async def bodies() -> dict[str, bytes | None]:
        rows = await world.rows("SELECT callback_id, body FROM callback")
        return {row["callback_id"]: row["body"] for row in rows}

    await world.move_clock(30 * 24 * 3600 - 60)
    await prune(world.service.database, world.service.settings)
    assert await bodies() == {"applied": b"raw body", "waits": b"raw body"}
    await world.move_clock(30 * 24 * 3600 + 1)
    await prune(world.service.database, world.service.settings)
    assert await bodies() == {"applied": None, "waits": b"raw body"}
    assert await callback_store.prune_bodies(database, 30, 10) == 0
    assert (await tell(world, session_id, declined(), name="applied")).is_new is False
    assert await world.status(payment) == "PAID"


async def test_a_buyer_who_cancels_at_the_gateway_can_select_again(world: World) -> None:
    payment, session_id = await selected(world)
    await tell(world, session_id, SessionReport(state=GatewaySessionState.CANCELLED))
    assert await world.status(payment) == "PROCESSING"
    again = await world.select(payment, world.transfer)
    assert again.payment.session_id == again.session.id != session_id
    assert await world.events(payment) == []


@pytest.mark.parametrize(
    ("answer", "life"),
    [
        (OutcomeUnknown(detail="no answer"), "closing"),
        (NotContacted(detail="no connection"), "ended"),
        (SessionRejected(detail="no"), "ended"),
    ],
)
async def test_a_buyer_can_cancel_a_pending_payment_in_every_session_state(
    world: World, answer: OutcomeUnknown | SessionRejected, life: str
) -> None:
    world.gateway.answer_create = lambda _: answer
    payment = await world.create()
    with pytest.raises(RefusedError):
        await world.select(payment)
    [row] = await world.rows("SELECT id, life FROM session")
    assert row["life"] == life
    for _ in range(2):
        await tell(world, row["id"], SessionReport(state=GatewaySessionState.CANCELLED))
    assert await world.status(payment) == "CANCELLED"
    assert await world.events(payment) == []
    assert (await world.session(row["id"]))["life"] == "ended"


async def test_a_cancellation_before_the_gateway_responds_ends_the_payment_without_an_event(
    world: World,
) -> None:
    session_id = world.id_generator.new_session_id()
    payment = await world.create()
    _, existing = await selected(world)
    await copy_session(world, existing, session_id, payment)
    await tell(world, session_id, SessionReport(state=GatewaySessionState.CANCELLED))
    assert await world.status(payment) == "CANCELLED"
    assert await world.events(payment) == []
