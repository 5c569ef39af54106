"""A dispute callback reports the disputed money and the outcome of the dispute."""

import pytest

from payintent.gateways.port import DisputedFunds, DisputeReport, DisputeState, VerifiedCallback
from tests.conformance.arrange import open_paid_session
from tests.conformance.harness import Harness
from tests.conformance.traits import where

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    where(lambda adapter, **_: adapter.disputes),
    pytest.mark.full,
]


async def wait_for_dispute(
    harness: Harness, capture: str, state: DisputeState, funds: DisputedFunds
) -> DisputeReport:
    def matches(callback: VerifiedCallback) -> bool:
        report = callback.dispute
        return (
            report is not None
            and (report.capture, report.state) == (capture, state)
            and (report.funds is funds)
        )

    _, callback = await harness.receiver.wait_for(matches)
    assert callback.dispute is not None
    return callback.dispute


async def test_dispute_callbacks_report_the_disputed_amount_and_the_outcome(
    harness: Harness,
) -> None:
    capture = (await open_paid_session(harness)).capture
    dispute = await harness.dispute(capture)
    open_report = await wait_for_dispute(
        harness, capture.reference, DisputeState.OPEN, DisputedFunds.WITHDRAWN
    )
    assert (open_report.amount_minor, open_report.currency) == (
        capture.amount_minor,
        capture.currency,
    )
    assert open_report.reason
    await harness.win(dispute)
    won_report = await wait_for_dispute(
        harness, capture.reference, DisputeState.WON, DisputedFunds.REINSTATED
    )
    assert won_report.reference == open_report.reference


async def test_two_disputes_have_different_references(harness: Harness) -> None:
    references = set[str]()
    for _ in range(2):
        capture = (await open_paid_session(harness)).capture
        await harness.dispute(capture)
        report = await wait_for_dispute(
            harness, capture.reference, DisputeState.OPEN, DisputedFunds.WITHDRAWN
        )
        references.add(report.reference)
    assert len(references) == 2
