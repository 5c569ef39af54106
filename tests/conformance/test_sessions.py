"""Sessions are opened, paid, declined and closed, and always report their true state."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import pytest

from payintent.gateways.port import (
    FailureReason,
    GatewaySessionRef,
    GatewaySessionState,
    OutcomeUnknown,
    SessionReport,
)
from tests.conformance.arrange import create, inquire, open_paid_session, open_session, ref_to
from tests.conformance.faults import Fault
from tests.conformance.harness import Harness
from tests.conformance.traits import Call, where

pytestmark = pytest.mark.asyncio(loop_scope="module")

CLOSED, OPEN = GatewaySessionState.CLOSED, GatewaySessionState.OPEN
#: The fields of each kind of next action.
CONTENTS = {
    "redirect": {"url", "method", "fields", "expires_at"},
    "embedded_card": {"provider", "script_url", "publishable_key", "client_secret"},
    "onchain_session": {"session_id", "chain", "network_id", "url"},
}
URL_FIELDS = {"url", "script_url"}


async def test_an_opened_session_has_a_reference_and_a_next_action(
    harness: Harness,
) -> None:
    session = await open_session(harness)
    assert 0 < len(session.created.reference) <= 255
    action = session.created.next_action
    assert action["type"] == harness.action
    assert set(action) == {"type", action["type"]}
    content = action[action["type"]]
    assert set(content) == CONTENTS[action["type"]]
    assert json.loads(json.dumps(action)) == action
    assert _is_well_formed(content)
    assert not [secret for secret in harness.secrets if secret in json.dumps(action)]


def _is_well_formed(content: Mapping[str, Any]) -> bool:
    urls = [content[name] for name in URL_FIELDS & set(content)]
    assert all(url.startswith(("http://", "https://")) for url in urls)
    assert content.get("method", "GET") in {"GET", "POST"}
    fields = content.get("fields", {})
    return all(isinstance(name, str) and isinstance(fields[name], str) for name in fields)


@where(lambda adapter, **_: adapter.creates_once)
async def test_repeated_and_concurrent_creates_with_the_same_id_open_one_session(
    harness: Harness,
) -> None:
    request = harness.request()
    sessions = await asyncio.gather(*(create(harness, request) for _ in range(3)))
    again = await create(harness, request)
    assert {session.created.reference for session in sessions} == {again.created.reference}
    second_session = await open_session(harness)
    assert second_session.created.reference != again.created.reference


async def test_an_inquiry_reports_an_open_session_as_open(harness: Harness) -> None:
    session = await open_session(harness)
    assert await inquire(harness, session.ref) == SessionReport(state=OPEN)
    if harness.found_by_our_id:
        assert await inquire(harness, ref_to(session.request, None)) == SessionReport(state=OPEN)


async def test_a_closed_session_stays_closed(harness: Harness) -> None:
    session = await open_session(harness)
    expected = SessionReport(state=CLOSED if harness.can_close else OPEN)
    for _ in range(2):
        assert await harness.gateway.close_session(harness.account, session.ref) == expected
        assert await inquire(harness, session.ref) == expected


async def test_a_paid_session_reports_its_capture_even_when_it_is_closed(
    harness: Harness,
) -> None:
    session = await open_paid_session(harness)
    assert session.capture.amount_minor == harness.amount_minor
    assert session.capture.currency == harness.currency
    captured = SessionReport(state=GatewaySessionState.CAPTURED, capture=session.capture)
    assert await inquire(harness, session.ref) == captured
    assert await harness.gateway.close_session(harness.account, session.ref) == captured
    assert await inquire(harness, session.ref) == captured
    if harness.found_by_our_id:
        assert await inquire(harness, ref_to(session.request, None)) == captured


async def test_two_captures_have_different_references(harness: Harness) -> None:
    first, second = await open_paid_session(harness), await open_paid_session(harness)
    assert first.capture.reference != second.capture.reference


@where(lambda adapter, **_: adapter.declines)
async def test_a_declined_session_ends_or_can_be_paid_later(harness: Harness) -> None:
    session = await open_session(harness)
    await harness.decline(session.created, session.request)
    report = await inquire(harness, session.ref)
    assert report.capture is None
    if harness.ends_on_decline:
        assert report.state is GatewaySessionState.DECLINED
        assert isinstance(report.reason, FailureReason)
        return
    assert report.state is OPEN
    await harness.pay(session.created, session.request)
    assert (await inquire(harness, session.ref)).state is GatewaySessionState.CAPTURED


async def test_a_session_that_was_never_opened_is_absent(harness: Harness) -> None:
    request = harness.request(session_id=uuid4())
    absent = SessionReport(state=GatewaySessionState.ABSENT)
    if harness.unknown_reference is not None:
        assert await inquire(harness, ref_to(request, harness.unknown_reference)) == absent
    report = await harness.gateway.inquire(harness.account, ref_to(request, None))
    expected = SessionReport(state=OPEN) if harness.inquiry_opens else absent
    assert report == expected if harness.found_by_our_id else isinstance(report, OutcomeUnknown)


@where(lambda adapter, **_: adapter.uses_http)  # otherwise, accounts have no credentials
async def test_a_session_of_another_account_is_not_reported(harness: Harness) -> None:
    session = await open_paid_session(harness)
    report = await harness.gateway.inquire(harness.other_account, session.ref)
    assert _reports_no_money(report)
    report = await harness.gateway.close_session(harness.other_account, session.ref)
    assert _reports_no_money(report)


def _reports_no_money(report: SessionReport | OutcomeUnknown) -> bool:
    return isinstance(report, OutcomeUnknown) or report.state is GatewaySessionState.ABSENT


@where(lambda adapter, **_: adapter.uses_http)  # otherwise, the adapter reads our own ledger
async def test_a_response_about_a_different_session_is_ignored(
    harness: Harness,
) -> None:
    theirs, ours = await open_paid_session(harness), await open_session(harness)
    mixed = GatewaySessionRef(
        session_id=ours.request.session_id,
        reference=theirs.created.reference,
        amount_minor=ours.request.amount_minor,
        currency=ours.request.currency,
        opened_at=ours.request.opened_at,
    )
    assert _reports_no_money_or_is_open(await harness.gateway.inquire(harness.account, mixed))


def _reports_no_money_or_is_open(report: SessionReport | OutcomeUnknown) -> bool:
    return _reports_no_money(report) or report == SessionReport(state=OPEN)


@where(lambda adapter, **_: adapter.uses_http and Call.CREATE in adapter.calls)
async def test_a_session_whose_create_response_was_lost_can_be_created_again(
    harness: Harness,
) -> None:
    assert harness.faults is not None
    request = harness.request()
    async with harness.faults.fault(Fault.CUT):
        answer = await harness.gateway.create_session(harness.account, request)
    assert isinstance(answer, OutcomeUnknown)
    report = await harness.gateway.inquire(harness.account, ref_to(request, None))
    if harness.found_by_our_id:
        assert report == SessionReport(state=OPEN)
    else:
        assert isinstance(report, OutcomeUnknown)
    session = await create(harness, request)
    assert await inquire(harness, session.ref) == SessionReport(state=OPEN)
