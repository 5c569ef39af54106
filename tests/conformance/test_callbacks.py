"""Genuine callbacks agree with inquiries, and all others are rejected."""

import re
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from payintent.gateways.port import (
    CallbackRequest,
    Capture,
    FailureReason,
    GatewayAccount,
    GatewaySessionState,
    InvalidCallbackError,
    OutcomeUnknown,
    RefundReport,
    VerifiedCallback,
)
from tests.conformance.arrange import inquired, opened, paid, refund_of, told_of_session
from tests.conformance.harness import Harness
from tests.conformance.traits import where

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    where(lambda adapter, **_: adapter.makes_callbacks),
]

NAME_CHARS_MAX = 255
MINOR_MAX = 10**78 - 1  # what the database can hold
ENDED = (GatewaySessionState.DECLINED, GatewaySessionState.ATTEMPTED)

WORD = re.compile(rb"\w+")
PUT = (
    b"null",
    b"-1",
    b"1e400",
    b"0.5",
    b"9" * 30,
    b'"',
    b"\\u0000",
    b"\\ud800",
    b"{}",
    b"%00",
    b"",
)

headers = st.dictionaries(st.text(max_size=20).map(str.lower), st.text(max_size=60), max_size=5)
quietly = examples(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])


async def genuine(harness: Harness) -> tuple[CallbackRequest, VerifiedCallback]:
    return await told_of_session(harness, await paid(harness), GatewaySessionState.CAPTURED)


def refused(
    harness: Harness, request: CallbackRequest, account: GatewayAccount | None = None
) -> bool:
    try:
        harness.gateway.parse_callback(account or harness.account, request)
    except InvalidCallbackError as bad:
        told = str(bad)
    else:
        return False
    assert not [secret for secret in harness.secrets if secret in told]
    return True


async def test_a_callback_names_our_session_and_says_what_an_inquiry_says(
    harness: Harness,
) -> None:
    session = await paid(harness)
    _, callback = await told_of_session(harness, session, GatewaySessionState.CAPTURED)
    assert callback.report == await inquired(harness, session.ref)
    assert (callback.refund_id, callback.refund) == (None, None)
    assert _can_be_kept(callback)


@where(lambda adapter, **_: adapter.declines)
async def test_a_decline_is_called_back_with_a_reason(harness: Harness) -> None:
    session = await opened(harness)
    await harness.decline(session.created, session.request)
    _, callback = await told_of_session(harness, session, *ENDED)
    assert callback.report is not None
    assert callback.report.capture is None
    assert isinstance(callback.report.reason, FailureReason)
    declined = callback.report.state is GatewaySessionState.DECLINED
    assert declined == harness.ends_on_decline


async def test_the_same_callback_is_always_the_same_and_another_fact_has_another_id(
    harness: Harness,
) -> None:
    request, callback = await genuine(harness)
    assert harness.gateway.parse_callback(harness.account, request) == callback
    _, other = await genuine(harness)
    assert other.id != callback.id


async def test_a_callback_is_acknowledged_as_the_gateway_wants_it_and_not_repeated(
    harness: Harness,
) -> None:
    request, callback = await genuine(harness)
    ack = harness.gateway.acknowledge(callback)
    assert isinstance(ack.body, bytes)
    assert "/" in ack.content_type
    assert ack == harness.gateway.acknowledge(
        harness.gateway.parse_callback(harness.account, request)
    )
    repeated = [one for _, one in harness.receiver.parsed() if one.id == callback.id]
    assert len(repeated) == 1


@where(lambda adapter, **_: adapter.tells_currency)
async def test_money_captured_in_a_currency_nobody_asked_for_is_told_and_pays_nothing(
    harness: Harness,
) -> None:
    for currency in ("EUR", "KWD", "XYZ", "JPY"):
        capture = await _restated(harness, currency=currency)
        assert capture.currency == currency


@where(lambda adapter, **_: adapter.tells_decimals)
async def test_money_captured_with_more_decimals_than_its_currency_has_is_told_and_pays_nothing(
    harness: Harness,
) -> None:
    for amount in ("1590.001", "1590.00000000001", "1590.5000001"):
        capture = await _restated(harness, amount=amount)
        assert capture.amount_minor == int(amount[:4] + amount[5:7])
        assert capture.verbatim == f"{amount} {harness.currency}"


async def _restated(harness: Harness, *, amount: str = "", currency: str = "") -> Capture:
    """Report a capture in different words; it can be refunded in any case."""
    session = await paid(harness)
    genuine, _ = await told_of_session(harness, session, GatewaySessionState.CAPTURED)
    facts = harness.restated(harness.payload(genuine), amount=amount, currency=currency)
    assert facts is not None
    callback = harness.gateway.parse_callback(
        harness.account, harness.signed(facts, harness.account)
    )
    assert callback.session_id == session.request.session_id
    assert callback.report is not None
    assert callback.report.capture is not None
    capture = callback.report.capture
    assert not capture.matches(session.request.amount_minor, session.request.currency)
    asked = refund_of(harness, replace(session, capture=capture))
    answer = await harness.gateway.refund(harness.account, asked)
    assert isinstance(answer, RefundReport | OutcomeUnknown)
    return capture


async def test_any_changed_byte_makes_a_callback_bad_or_means_nothing(harness: Harness) -> None:
    request, callback = await genuine(harness)
    for place in range(len(request.body)):
        body = bytearray(request.body)
        body[place] ^= 1
        changed = replace(request, body=bytes(body))
        if not refused(harness, changed):  # such as the case of an escape
            assert harness.gateway.parse_callback(harness.account, changed) == callback
    for body in (b"", request.body[:-1], request.body[: len(request.body) // 2]):
        assert refused(harness, replace(request, body=body))


async def test_every_forgery_is_refused(harness: Harness) -> None:
    request, _ = await genuine(harness)
    forgeries = harness.forgeries(request)
    assert forgeries
    passed = [name for name, forged in forgeries.items() if not refused(harness, forged)]
    assert passed == []
    assert not refused(harness, request)


async def test_an_account_signs_for_itself_alone(harness: Harness) -> None:
    request, callback = await genuine(harness)
    payload = harness.payload(request)
    ours = harness.signed(payload, harness.account)
    theirs = harness.signed(payload, harness.other_account)
    said = harness.gateway.parse_callback(harness.account, ours)
    assert (said.session_id, said.report) == (callback.session_id, callback.report)
    assert refused(harness, theirs)
    assert refused(harness, request, harness.other_account)
    assert refused(harness, ours, harness.other_account)


async def test_whoever_signs_with_an_empty_secret_is_refused(harness: Harness) -> None:
    request, _ = await genuine(harness)
    empty = harness.without_secrets()
    forged = harness.signed(harness.payload(request), empty)
    for account in (empty, replace(empty, credentials={})):
        assert refused(harness, forged, account)
        assert refused(harness, request, account)
    assert refused(harness, forged)


@quietly
@given(method=st.sampled_from(["GET", "POST"]), named=headers, query=headers, body=st.binary())
async def test_whatever_comes_is_refused_and_nothing_else(
    harness: Harness, method: str, named: dict[str, str], query: dict[str, str], body: bytes
) -> None:
    assert refused(harness, CallbackRequest(method=method, headers=named, query=query, body=body))


@quietly
@given(payload=st.binary() | st.sampled_from([b"{}", b"[]", b"null", b'{"type":1}', b"a=1&a=2"]))
async def test_whatever_is_well_signed_is_refused_or_can_be_kept(
    harness: Harness, payload: bytes
) -> None:
    _refused_or_can_be_kept(harness, harness.signed(payload, harness.account))


async def test_genuine_facts_with_something_put_in_are_refused_or_can_be_kept(
    harness: Harness,
) -> None:
    request, _ = await genuine(harness)
    payload = harness.payload(request)
    for word in WORD.finditer(payload):
        for put in PUT:
            replaced = payload[: word.start()] + put + payload[word.end() :]
            inserted = payload[: word.start()] + put + payload[word.start() :]
            for changed in (replaced, inserted):
                _refused_or_can_be_kept(harness, harness.signed(changed, harness.account))


def _refused_or_can_be_kept(harness: Harness, request: CallbackRequest) -> None:
    if not refused(harness, request):
        assert _can_be_kept(harness.gateway.parse_callback(harness.account, request))


def _can_be_kept(callback: VerifiedCallback) -> bool:
    """Return whether the database can store it, and the core can read it."""
    assert _is_name(callback.id)
    report = callback.report
    if report is not None:
        assert (report.capture is not None) == (report.state is GatewaySessionState.CAPTURED)
        assert report.reason is None or isinstance(report.reason, FailureReason)
    if report is not None and report.capture is not None:
        assert _is_name(report.capture.reference)
        assert 0 <= report.capture.amount_minor <= MINOR_MAX
        assert _is_name(report.capture.currency)
    assert callback.refund_id is None or callback.refund is not None
    return callback.refund is None or _is_name(callback.refund.reference or "-")


def _is_name(text: str) -> bool:
    return 0 < len(text) <= NAME_CHARS_MAX and "\x00" not in text and bool(text.encode())
