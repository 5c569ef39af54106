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
from tests.conformance.arrange import create, inquired, opened, paid, ref_to
from tests.conformance.faults import Fault
from tests.conformance.harness import Harness
from tests.conformance.traits import Call, where

pytestmark = pytest.mark.asyncio(loop_scope="module")

CLOSED, OPEN = GatewaySessionState.CLOSED, GatewaySessionState.OPEN
#: What each kind of next action consists of.
CONTENTS = {
    "redirect": {"url", "method", "fields", "expires_at"},
    "embedded_card": {"provider", "script_url", "publishable_key", "client_secret"},
    "onchain_session": {"session_id", "chain", "network_id", "url"},
}
LOCATIONS = {"url", "script_url"}


async def test_a_session_opens_under_a_name_and_tells_the_buyer_what_to_do(
    harness: Harness,
) -> None:
    session = await opened(harness)
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
    places = [content[name] for name in LOCATIONS & set(content)]
    assert all(place.startswith(("http://", "https://")) for place in places)
    assert content.get("method", "GET") in {"GET", "POST"}
    sent = content.get("fields", {})
    return all(isinstance(name, str) and isinstance(sent[name], str) for name in sent)


@where(lambda adapter, **_: adapter.creates_once)
async def test_opening_again_and_at_once_with_one_id_opens_no_second_session(
    harness: Harness,
) -> None:
    request = harness.request()
    ways = await asyncio.gather(*(create(harness, request) for _ in range(3)))
    again = await create(harness, request)
    assert {way.created.reference for way in ways} == {again.created.reference}
    other = await opened(harness)
    assert other.created.reference != again.created.reference


async def test_an_open_session_is_open(harness: Harness) -> None:
    session = await opened(harness)
    assert await inquired(harness, session.ref) == SessionReport(state=OPEN)
    if harness.found_by_our_id:
        assert await inquired(harness, ref_to(session.request, None)) == SessionReport(state=OPEN)


async def test_a_closed_session_stays_closed(harness: Harness) -> None:
    session = await opened(harness)
    wanted = SessionReport(state=CLOSED if harness.can_close else OPEN)
    for _ in range(2):
        assert await harness.gateway.close_session(harness.account, session.ref) == wanted
        assert await inquired(harness, session.ref) == wanted


async def test_a_paid_session_is_captured_exactly_even_when_it_is_to_be_closed(
    harness: Harness,
) -> None:
    session = await paid(harness)
    assert session.capture.amount_minor == harness.amount_minor
    assert session.capture.currency == harness.currency
    captured = SessionReport(state=GatewaySessionState.CAPTURED, capture=session.capture)
    assert await inquired(harness, session.ref) == captured
    assert await harness.gateway.close_session(harness.account, session.ref) == captured
    assert await inquired(harness, session.ref) == captured
    if harness.found_by_our_id:
        assert await inquired(harness, ref_to(session.request, None)) == captured


async def test_two_captures_have_two_names(harness: Harness) -> None:
    first, second = await paid(harness), await paid(harness)
    assert first.capture.reference != second.capture.reference


@where(lambda adapter, **_: adapter.declines)
async def test_a_declined_session_ends_or_can_still_be_paid(harness: Harness) -> None:
    session = await opened(harness)
    await harness.decline(session.created, session.request)
    report = await inquired(harness, session.ref)
    assert report.capture is None
    if harness.ends_on_decline:
        assert report.state is GatewaySessionState.DECLINED
        assert isinstance(report.reason, FailureReason)
        return
    assert report.state is OPEN
    await harness.pay(session.created, session.request)
    assert (await inquired(harness, session.ref)).state is GatewaySessionState.CAPTURED


async def test_a_session_that_nobody_opened_is_absent(harness: Harness) -> None:
    request = harness.request(session_id=uuid4())
    absent = SessionReport(state=GatewaySessionState.ABSENT)
    if harness.unknown_reference is not None:
        assert await inquired(harness, ref_to(request, harness.unknown_reference)) == absent
    unnamed = await harness.gateway.inquire(harness.account, ref_to(request, None))
    found = SessionReport(state=OPEN) if harness.asking_opens else absent
    assert unnamed == found if harness.found_by_our_id else isinstance(unnamed, OutcomeUnknown)


@where(lambda adapter, **_: adapter.uses_http)  # else an account opens no doors
async def test_another_accounts_session_is_none_of_ours(harness: Harness) -> None:
    session = await paid(harness)
    report = await harness.gateway.inquire(harness.other_account, session.ref)
    assert _tells_of_no_money(report)
    report = await harness.gateway.close_session(harness.other_account, session.ref)
    assert _tells_of_no_money(report)


def _tells_of_no_money(report: SessionReport | OutcomeUnknown) -> bool:
    return isinstance(report, OutcomeUnknown) or report.state is GatewaySessionState.ABSENT


@where(lambda adapter, **_: adapter.uses_http)  # else what is asked is our own ledger
async def test_an_answer_is_believed_only_about_the_session_that_was_asked_for(
    harness: Harness,
) -> None:
    theirs, ours = await paid(harness), await opened(harness)
    mixed = GatewaySessionRef(
        session_id=ours.request.session_id,
        reference=theirs.created.reference,
        amount_minor=ours.request.amount_minor,
        currency=ours.request.currency,
        opened_at=ours.request.opened_at,
    )
    assert _tells_of_no_money_or_is_open(await harness.gateway.inquire(harness.account, mixed))


def _tells_of_no_money_or_is_open(report: SessionReport | OutcomeUnknown) -> bool:
    return _tells_of_no_money(report) or report == SessionReport(state=OPEN)


@where(lambda adapter, **_: adapter.uses_http and Call.CREATE in adapter.calls)
async def test_a_session_whose_opening_went_unanswered_is_found_and_opened_again(
    harness: Harness,
) -> None:
    assert harness.faults is not None
    request = harness.request()
    async with harness.faults.fault(Fault.CUT):
        answer = await harness.gateway.create_session(harness.account, request)
    assert isinstance(answer, OutcomeUnknown)
    unnamed = await harness.gateway.inquire(harness.account, ref_to(request, None))
    if harness.found_by_our_id:
        assert unnamed == SessionReport(state=OPEN)
    else:
        assert isinstance(unnamed, OutcomeUnknown)
    session = await create(harness, request)
    assert await inquired(harness, session.ref) == SessionReport(state=OPEN)
