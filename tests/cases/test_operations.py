"""Final receipts open on-chain cases, which a person can list, view, and close once."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from payintent.cases.model import CaseKind
from payintent.cases.operations import ListCases, ShowCase
from payintent.core import ids
from payintent.core.errors import ErrorCode, RefusedError
from payintent.operators.operation import Actor
from payintent.payments.model import Payment, Session
from payintent.refunds.resolve_case import ResolveCase
from payintent.runtime.settings import Settings
from payintent.service import Service
from tests.support.contracts import (
    PAYER,
    USDT,
    bill,
    contract_service,
    log_of,
    offer_tokens,
    record_final_logs,
)
from tests.support.fakes import FakeGateway
from tests.support.world import Api, World

_GRACE = Actor("Grace", "ticket 9")


@pytest.fixture
async def service(settings: Settings, gateway: FakeGateway) -> AsyncIterator[Service]:
    async with contract_service(settings, gateway) as service:
        yield service


@pytest.fixture
async def paid(world: World) -> tuple[Payment, Session]:
    """A payment with exact, repeated and smaller transfers, and a transfer without a payment."""
    payment, session = await bill(world, (await offer_tokens(world))["NATIVED"])
    await record_final_logs(
        world,
        log_of(session),
        log_of(session, block_number=8),
        log_of(session, block_number=9, amount=17),
        log_of(session, block_number=10, uuid=bytes(16), token=bytes.fromhex(USDT[2:])),
    )
    return payment, session


async def _kinds(world: World, **filters: Any) -> list[str]:
    return [item.kind for item in await world.perform(ListCases(**filters))]


async def test_cases_are_listed_newest_first_and_can_be_filtered(
    world: World, paid: tuple[Payment, Session]
) -> None:
    await world.add_merchant()
    double, unknown = "DOUBLE_PAYMENT", "UNKNOWN_REFERENCE"
    assert sorted(await _kinds(world)) == [double, double, unknown]
    assert await _kinds(world, kind=CaseKind(unknown)) == [unknown]
    assert await _kinds(world, merchant_id=world.merchant_id) == [double, double]
    assert await _kinds(world, merchant_id=world.merchant_id + 1) == []
    assert len(await _kinds(world, limit=2)) == 2
    ordered = [item.id for item in await world.perform(ListCases())]
    assert [ids.parse_id(ids.CASE, item) for item in ordered] == sorted(
        (ids.parse_id(ids.CASE, item) for item in ordered), reverse=True
    )


async def test_a_case_shows_the_received_amount_and_its_sender(
    world: World, paid: tuple[Payment, Session]
) -> None:
    payment, session = paid
    [unknown] = await world.perform(ListCases(kind=CaseKind.UNKNOWN_REFERENCE))
    case = await world.perform(ShowCase(case_id=unknown.id))
    assert case == unknown
    assert (case.received.text, case.expected) == ("25.5 USDT on native", None)
    assert (case.merchant_id, case.payment_id, case.session_id) == (None, None, None)
    assert (case.chain, case.payer, case.token) == ("native", PAYER, USDT)
    assert (case.amount_minor, len(case.tx_hash)) == (str(session.quote.total_minor), 66)
    doubles = await world.perform(ListCases(kind=CaseKind.DOUBLE_PAYMENT))
    assert {double.payment_id for double in doubles} == {ids.format_id(ids.PAYMENT, payment.id)}
    assert {(double.currency, double.amount_minor) for double in doubles} == {
        ("NATIVED", "17"),
        ("NATIVED", str(session.quote.total_minor)),
    }


async def test_a_case_is_closed_once_and_nothing_else_changes(
    world: World, paid: tuple[Payment, Session]
) -> None:
    payment, _ = paid
    first, second, _ = await world.perform(ListCases())
    closing = ResolveCase(case_id=first.id, resolution="accept", note="kept, they asked for it")
    closed = await world.service.run_operation(closing, _GRACE)
    assert (closed.status, closed.closed_by, closed.note) == (
        "ACCEPTED",
        "Grace",
        "kept, they asked for it",
    )
    assert closed.closed_at >= closed.opened_at
    with pytest.raises(RefusedError, match="the case is already ACCEPTED") as refused:
        await world.perform(ResolveCase(case_id=first.id, resolution="dismiss", note="no"))
    assert refused.value.code is ErrorCode.CONFLICT
    dismissal = ResolveCase(case_id=second.id, resolution="dismiss", note="a test of ours")
    assert (await world.perform(dismissal)).status == "DISMISSED"
    assert len(await _kinds(world)) == 1
    assert len(await _kinds(world, status="ALL")) == 3
    assert await _kinds(world, status="DISMISSED") == [second.kind]
    assert await world.status(payment) == "PAID"
    assert await world.events(payment) == ["payment.completed"]
    lines = await world.rows("SELECT who, why FROM audit WHERE action = 'case.resolve' ORDER BY id")
    assert (lines[0]["who"], lines[0]["why"], len(lines)) == ("Grace", "ticket 9", 2)


async def test_an_operator_sees_the_sessions_receipts_and_cases_of_a_payment(
    operator: Api, world: World, paid: tuple[Payment, Session]
) -> None:
    payment, session = paid
    token = operator.bearer(await world.operator_token())
    path = f"/operator/payments/{ids.format_id(ids.PAYMENT, payment.id)}"
    response = (await operator.send("GET", path, headers=token)).json
    [its] = response["sessions"]
    assert (its["id"], its["reference"]) == (
        ids.format_id(ids.SESSION, session.id),
        session.reference,
    )
    assert [its[name] for name in ("provider", "chain", "token", "life", "outcome")] == [
        *("gateway_contract", "native", "NATIVED", "ended", "captured"),
    ]
    receipts = [(receipt["disposition"], receipt["block"]) for receipt in response["receipts"]]
    assert receipts == [("credited", 7), ("duplicate", 8), ("duplicate", 9)]
    assert [case["kind"] for case in response["cases"]] == ["DOUBLE_PAYMENT", "DOUBLE_PAYMENT"]
    assert response["provider"] == "gateway_contract"
    assert payment.checkout_id not in str(response)
