"""Genuine callbacks agree with inquiries, and everything else is rejected."""

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
from tests.conformance.arrange import (
    inquire,
    make_refund_request,
    open_paid_session,
    open_session,
    wait_for_session_callback,
)
from tests.conformance.harness import Harness
from tests.conformance.traits import where

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    where(lambda adapter, **_: adapter.makes_callbacks),
]

NAME_CHARS_MAX = 255
MINOR_MAX = 10**78 - 1  # the largest amount that the database can store
DECLINED_STATES = (GatewaySessionState.DECLINED, GatewaySessionState.ATTEMPTED)

WORD = re.compile(rb"\w+")
INSERTIONS = (
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
slow_examples = examples(
    deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)


async def receive_capture_callback(harness: Harness) -> tuple[CallbackRequest, VerifiedCallback]:
    return await wait_for_session_callback(
        harness, await open_paid_session(harness), GatewaySessionState.CAPTURED
    )


def is_rejected(
    harness: Harness, request: CallbackRequest, account: GatewayAccount | None = None
) -> bool:
    try:
        harness.gateway.parse_callback(account or harness.account, request)
    except InvalidCallbackError as bad:
        message = str(bad)
    else:
        return False
    assert not [secret for secret in harness.secrets if secret in message]
    return True


async def test_a_callback_identifies_its_session_and_agrees_with_an_inquiry(
    harness: Harness,
) -> None:
    session = await open_paid_session(harness)
    _, callback = await wait_for_session_callback(harness, session, GatewaySessionState.CAPTURED)
    assert callback.report == await inquire(harness, session.ref)
    assert (callback.refund_id, callback.refund) == (None, None)
    assert _is_storable(callback)


@where(lambda adapter, **_: adapter.declines)
async def test_a_decline_is_reported_by_callback_with_a_reason(harness: Harness) -> None:
    session = await open_session(harness)
    await harness.decline(session.created, session.request)
    _, callback = await wait_for_session_callback(harness, session, *DECLINED_STATES)
    assert callback.report is not None
    assert callback.report.capture is None
    assert isinstance(callback.report.reason, FailureReason)
    declined = callback.report.state is GatewaySessionState.DECLINED
    assert declined == harness.ends_on_decline


async def test_callback_ids_are_stable_and_differ_between_events(
    harness: Harness,
) -> None:
    request, callback = await receive_capture_callback(harness)
    assert harness.gateway.parse_callback(harness.account, request) == callback
    _, second_callback = await receive_capture_callback(harness)
    assert second_callback.id != callback.id


async def test_an_acknowledged_callback_is_not_repeated(
    harness: Harness,
) -> None:
    request, callback = await receive_capture_callback(harness)
    ack = harness.gateway.acknowledge(callback)
    assert isinstance(ack.body, bytes)
    assert "/" in ack.content_type
    assert ack == harness.gateway.acknowledge(
        harness.gateway.parse_callback(harness.account, request)
    )
    arrivals = [parsed for _, parsed in harness.receiver.parsed() if parsed.id == callback.id]
    assert len(arrivals) == 1


@where(lambda adapter, **_: adapter.reports_currency)
async def test_a_capture_in_the_wrong_currency_is_reported_and_does_not_match(
    harness: Harness,
) -> None:
    for currency in ("EUR", "KWD", "XYZ", "JPY"):
        capture = await _restate(harness, currency=currency)
        assert capture.currency == currency


@where(lambda adapter, **_: adapter.reports_decimals)
async def test_a_capture_with_too_many_decimals_is_reported_and_does_not_match(
    harness: Harness,
) -> None:
    for amount in ("1590.001", "1590.00000000001", "1590.5000001"):
        capture = await _restate(harness, amount=amount)
        assert capture.amount_minor == int(amount[:4] + amount[5:7])
        assert capture.verbatim == f"{amount} {harness.currency}"


async def _restate(harness: Harness, *, amount: str = "", currency: str = "") -> Capture:
    """Report a capture with a different amount or currency, and check that it can be refunded."""
    session = await open_paid_session(harness)
    genuine, _ = await wait_for_session_callback(harness, session, GatewaySessionState.CAPTURED)
    facts = harness.restate(harness.payload(genuine), amount=amount, currency=currency)
    assert facts is not None
    callback = harness.gateway.parse_callback(
        harness.account, harness.signed(facts, harness.account)
    )
    assert callback.session_id == session.request.session_id
    assert callback.report is not None
    assert callback.report.capture is not None
    capture = callback.report.capture
    assert not capture.matches(session.request.amount_minor, session.request.currency)
    refund_request = make_refund_request(harness, replace(session, capture=capture))
    outcome = await harness.gateway.refund(harness.account, refund_request)
    assert isinstance(outcome, RefundReport | OutcomeUnknown)
    return capture


async def test_a_callback_with_a_changed_byte_is_rejected_or_unchanged_in_meaning(
    harness: Harness,
) -> None:
    request, callback = await receive_capture_callback(harness)
    for index in range(len(request.body)):
        body = bytearray(request.body)
        body[index] ^= 1
        changed = replace(request, body=bytes(body))
        if not is_rejected(harness, changed):  # such as the case of an escape
            assert harness.gateway.parse_callback(harness.account, changed) == callback
    for body in (b"", request.body[:-1], request.body[: len(request.body) // 2]):
        assert is_rejected(harness, replace(request, body=body))


async def test_every_forgery_is_rejected(harness: Harness) -> None:
    request, _ = await receive_capture_callback(harness)
    forgeries = harness.forgeries(request)
    assert forgeries
    passed = [name for name, forged in forgeries.items() if not is_rejected(harness, forged)]
    assert passed == []
    assert not is_rejected(harness, request)


async def test_a_signature_is_valid_only_for_its_own_account(harness: Harness) -> None:
    request, callback = await receive_capture_callback(harness)
    payload = harness.payload(request)
    ours = harness.signed(payload, harness.account)
    theirs = harness.signed(payload, harness.other_account)
    parsed = harness.gateway.parse_callback(harness.account, ours)
    assert (parsed.session_id, parsed.report) == (callback.session_id, callback.report)
    assert is_rejected(harness, theirs)
    assert is_rejected(harness, request, harness.other_account)
    assert is_rejected(harness, ours, harness.other_account)


async def test_a_signature_with_an_empty_secret_is_rejected(harness: Harness) -> None:
    request, _ = await receive_capture_callback(harness)
    empty = harness.without_secrets()
    forged = harness.signed(harness.payload(request), empty)
    for account in (empty, replace(empty, credentials={})):
        assert is_rejected(harness, forged, account)
        assert is_rejected(harness, request, account)
    assert is_rejected(harness, forged)


@slow_examples
@given(
    method=st.sampled_from(["GET", "POST"]),
    request_headers=headers,
    query=headers,
    body=st.binary(),
)
async def test_an_arbitrary_request_is_rejected_without_any_other_error(
    harness: Harness,
    method: str,
    request_headers: dict[str, str],
    query: dict[str, str],
    body: bytes,
) -> None:
    assert is_rejected(
        harness, CallbackRequest(method=method, headers=request_headers, query=query, body=body)
    )


@slow_examples
@given(payload=st.binary() | st.sampled_from([b"{}", b"[]", b"null", b'{"type":1}', b"a=1&a=2"]))
async def test_an_arbitrary_signed_payload_is_rejected_or_can_be_stored(
    harness: Harness, payload: bytes
) -> None:
    _check_rejected_or_storable(harness, harness.signed(payload, harness.account))


async def test_a_modified_signed_payload_is_rejected_or_can_be_stored(
    harness: Harness,
) -> None:
    request, _ = await receive_capture_callback(harness)
    payload = harness.payload(request)
    for word in WORD.finditer(payload):
        for insertion in INSERTIONS:
            replaced = payload[: word.start()] + insertion + payload[word.end() :]
            inserted = payload[: word.start()] + insertion + payload[word.start() :]
            for changed in (replaced, inserted):
                _check_rejected_or_storable(harness, harness.signed(changed, harness.account))


def _check_rejected_or_storable(harness: Harness, request: CallbackRequest) -> None:
    if not is_rejected(harness, request):
        assert _is_storable(harness.gateway.parse_callback(harness.account, request))


def _is_storable(callback: VerifiedCallback) -> bool:
    """Return whether the database can store a callback, and the core can read it."""
    assert _is_storable_text(callback.id)
    report = callback.report
    if report is not None:
        assert (report.capture is not None) == (report.state is GatewaySessionState.CAPTURED)
        assert report.reason is None or isinstance(report.reason, FailureReason)
    if report is not None and report.capture is not None:
        assert _is_storable_text(report.capture.reference)
        assert 0 <= report.capture.amount_minor <= MINOR_MAX
        assert _is_storable_text(report.capture.currency)
    assert callback.refund_id is None or callback.refund is not None
    return callback.refund is None or _is_storable_text(callback.refund.reference or "-")


def _is_storable_text(text: str) -> bool:
    return 0 < len(text) <= NAME_CHARS_MAX and "\x00" not in text and bool(text.encode())
