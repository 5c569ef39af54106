"""A complete payment, including failures, does not reveal a secret in the log."""

import logging
from dataclasses import replace

import pytest

from payintent.gateways.port import CallbackRequest, InvalidCallbackError, RefundSupport
from tests.conformance.arrange import make_refund_request, open_paid_session, open_session
from tests.conformance.faults import Fault
from tests.conformance.harness import Harness
from tests.conformance.traits import Call

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.full]


async def test_logs_contain_no_secrets_or_payer_email_addresses(
    harness: Harness, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    request = harness.request()
    await _run_payment(harness)
    for fault in (Fault.STATUS_500, Fault.GARBAGE, Fault.REFUSE):
        await _run_with_fault(harness, fault)
    _parse_invalid_callbacks(harness)
    output = capfd.readouterr()
    text = f"{caplog.text}{output.out}{output.err}"
    assert not [secret for secret in harness.secrets if secret in text]
    assert request.payer_email is not None
    assert request.payer_email not in text


async def _run_payment(harness: Harness) -> None:
    money = await open_paid_session(harness)
    if harness.gateway.capabilities.refunds is not RefundSupport.NONE:
        await harness.gateway.refund(harness.account, make_refund_request(harness, money))
    await harness.gateway.close_session(harness.account, (await open_session(harness)).ref)


async def _run_with_fault(harness: Harness, fault: Fault) -> None:
    if harness.faults is None:
        return
    session = await open_session(harness)
    async with harness.faults.fault(fault):
        await harness.gateway.inquire(harness.account, session.ref)
        if Call.CREATE in harness.calls:
            await harness.gateway.create_session(harness.account, harness.request())


def _parse_invalid_callbacks(harness: Harness) -> None:
    nonsense = CallbackRequest(method="POST", headers={}, query={}, body=b"nonsense")
    bad = [nonsense, *(replace(item, body=item.body + b" ") for item in harness.receiver.received)]
    for request in bad:
        try:
            harness.gateway.parse_callback(harness.other_account, request)
        except InvalidCallbackError:
            continue
