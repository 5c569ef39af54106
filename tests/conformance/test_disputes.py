"""A dispute callback reports the disputed money and the outcome of the dispute."""

import pytest

from payintent.gateways.port import DisputedFunds, DisputeReport, DisputeState, VerifiedCallback
from tests.conformance.arrange import paid
from tests.conformance.harness import Harness
from tests.conformance.traits import where

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    where(lambda adapter, **_: adapter.disputes),
    pytest.mark.full,
]


async def told(
    harness: Harness, capture: str, state: DisputeState, funds: DisputedFunds
) -> DisputeReport:
    def is_meant(callback: VerifiedCallback) -> bool:
        report = callback.dispute
        return (
            report is not None
            and (report.capture, report.state) == (capture, state)
            and (report.funds is funds)
        )

    _, callback = await harness.receiver.wait_for(is_meant)
    assert callback.dispute is not None
    return callback.dispute


async def test_a_dispute_names_its_money_and_how_it_ends(harness: Harness) -> None:
    money = (await paid(harness)).capture
    dispute = await harness.dispute(money)
    opened = await told(harness, money.reference, DisputeState.OPEN, DisputedFunds.WITHDRAWN)
    assert (opened.amount_minor, opened.currency) == (money.amount_minor, money.currency)
    assert opened.reason
    await harness.win(dispute)
    won = await told(harness, money.reference, DisputeState.WON, DisputedFunds.REINSTATED)
    assert won.reference == opened.reference


async def test_two_disputes_have_two_names(harness: Harness) -> None:
    references = set[str]()
    for _ in range(2):
        money = (await paid(harness)).capture
        await harness.dispute(money)
        told_of = await told(harness, money.reference, DisputeState.OPEN, DisputedFunds.WITHDRAWN)
        references.add(told_of.reference)
    assert len(references) == 2
