"""A complete payment, including failures, does not reveal a secret in the log."""

import logging
from dataclasses import replace

import pytest

from payintent.gateways.port import CallbackRequest, InvalidCallbackError, RefundSupport
from tests.conformance.arrange import opened, paid, refund_of
from tests.conformance.faults import Fault
from tests.conformance.harness import Harness
from tests.conformance.traits import Call

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.full]


async def test_no_log_shows_a_secret_or_a_buyers_address(
    harness: Harness, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    request = harness.request()
    await _live(harness)
    for fault in (Fault.STATUS_500, Fault.GARBAGE, Fault.REFUSE):
        await _suffer(harness, fault)
    _hear(harness)
    told = capfd.readouterr()
    text = f"{caplog.text}{told.out}{told.err}"
    assert not [secret for secret in harness.secrets if secret in text]
    assert request.payer_email is not None
    assert request.payer_email not in text


async def _live(harness: Harness) -> None:
    money = await paid(harness)
    if harness.gateway.capabilities.refunds is not RefundSupport.NONE:
        await harness.gateway.refund(harness.account, refund_of(harness, money))
    await harness.gateway.close_session(harness.account, (await opened(harness)).ref)


async def _suffer(harness: Harness, fault: Fault) -> None:
    if harness.faults is None:
        return
    session = await opened(harness)
    async with harness.faults.fault(fault):
        await harness.gateway.inquire(harness.account, session.ref)
        if Call.CREATE in harness.calls:
            await harness.gateway.create_session(harness.account, harness.request())


def _hear(harness: Harness) -> None:
    nonsense = CallbackRequest(method="POST", headers={}, query={}, body=b"nonsense")
    bad = [nonsense, *(replace(item, body=item.body + b" ") for item in harness.receiver.received)]
    for request in bad:
        try:
            harness.gateway.parse_callback(harness.other_account, request)
        except InvalidCallbackError:
            continue
