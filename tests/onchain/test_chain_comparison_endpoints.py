"""A log that one endpoint omits is a case only if another endpoint omits it too."""

import pytest

from payintent.evm.rpc import WRONG_RESPONSES
from payintent.reconciliation import contract_logs
from payintent.reconciliation.operations import (
    RunDetails,
)
from tests.support.chain_comparison import case_subjects, compare_due, newest_run
from tests.support.fault_rpc import Faults, FaultyNode
from tests.support.onchain import ChainWorld
from tests.support.refunding import RefundWorld

pytestmark = pytest.mark.full


async def _compare(ground: ChainWorld, *nodes: FaultyNode) -> RunDetails:
    """Compare with endpoints of which the last is queried first; return the newest run."""
    await compare_due(ground, [node.url for node in nodes])
    return await newest_run(ground)


async def _paid(ground: ChainWorld) -> None:
    payment, session = await ground.bill("USDT")
    await ground.pay(session)
    await ground.final()
    assert await ground.status(payment) == "PAID"


async def test_what_one_endpoint_leaves_out_is_asked_of_another_before_a_case_is_opened(
    refunding: RefundWorld,
) -> None:
    ground = refunding.ground
    payment, _ = await refunding.paid("NATIVED")
    await _paid(ground)
    await refunding.ask(payment, "10.00")
    await refunding.turn()
    await ground.final()
    url = ground.chain.url
    async with FaultyNode(url) as honest, FaultyNode(url, faults=Faults(drop_logs=1.0)) as forgets:
        honest.faults = Faults(off=True)
        waits = await _compare(ground, honest, forgets)
        assert (waits.run.status, await case_subjects(ground)) == ("running", [])
        honest.faults = Faults()
        await ground.world.rows("UPDATE reconciliation_run SET lease_until = clock()")
        told = WRONG_RESPONSES.labels(ground.slug, "logs_left_out")._value.get()
        shown = await _compare(ground, honest, forgets)
    assert WRONG_RESPONSES.labels(ground.slug, "logs_left_out")._value.get() == told + 1
    assert forgets.done["dropped"]
    assert (shown.run.status, await case_subjects(ground)) == ("matched", [])
    assert sorted((side.type, side.lines, side.records) for side in shown.sums) == [
        ("payment", 1, 1),
        ("payment", 1, 1),
        ("refund", 1, 1),
    ]


async def test_the_endpoint_that_has_read_fewer_blocks_says_how_far_a_piece_goes(
    ground: ChainWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _paid(ground)
    await _paid(ground)
    monkeypatch.setattr(contract_logs, "RANGE_SEARCHES_MAX", 1)
    url = ground.chain.url
    short, forgets = Faults(range_max=1), Faults(drop_logs=1.0)
    async with FaultyNode(url, faults=short) as slow, FaultyNode(url, faults=forgets) as other:
        shown = await _compare(ground, slow, other)
    assert (shown.run.status, await case_subjects(ground)) == ("matched", [])
    assert [(side.lines, side.records) for side in shown.sums] == [(2, 2)]


async def test_what_two_endpoints_lack_is_a_case(ground: ChainWorld) -> None:
    await _paid(ground)
    url, faults = ground.chain.url, Faults(drop_logs=1.0)
    async with FaultyNode(url, faults=faults) as first, FaultyNode(url, faults=faults) as other:
        shown = await _compare(ground, first, other)
    assert (shown.run.status, shown.run.opened) == ("differs", 1)
    [subject] = await case_subjects(ground)
    assert ": missing, " in subject
