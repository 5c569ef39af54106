"""A log that one endpoint omits opens a case only if a second endpoint omits it too."""

import pytest

from payintent.evm.rpc import WRONG_RESPONSES
from payintent.reconciliation import contract_logs
from payintent.reconciliation.operations import (
    RunDetails,
)
from tests.support.chain_comparison import case_subjects, compare_due, newest_run
from tests.support.chain_refunds import RefundWorld
from tests.support.fault_rpc import Faults, FaultyNode
from tests.support.onchain import ChainWorld

pytestmark = pytest.mark.full


async def _compare(ground: ChainWorld, *nodes: FaultyNode) -> RunDetails:
    """Compare with these endpoints, the last one first; return the newest run."""
    await compare_due(ground, [node.url for node in nodes])
    return await newest_run(ground)


async def _pay(ground: ChainWorld) -> None:
    payment, session = await ground.bill("USDT")
    await ground.pay(session)
    await ground.final()
    assert await ground.status(payment) == "PAID"


async def test_a_missing_log_is_checked_with_a_second_endpoint_before_a_case_opens(
    refunding: RefundWorld,
) -> None:
    ground = refunding.ground
    payment, _ = await refunding.paid("NATIVED")
    await _pay(ground)
    await refunding.ask(payment, "10.00")
    await refunding.turn()
    await ground.final()
    url = ground.chain.url
    async with FaultyNode(url) as honest, FaultyNode(url, faults=Faults(drop_logs=1.0)) as omitting:
        honest.faults = Faults(off=True)
        unfinished = await _compare(ground, honest, omitting)
        assert (unfinished.run.status, await case_subjects(ground)) == ("running", [])
        honest.faults = Faults()
        await ground.world.rows("UPDATE reconciliation_run SET lease_until = clock()")
        count = WRONG_RESPONSES.labels(ground.slug, "logs_left_out")._value.get()
        details = await _compare(ground, honest, omitting)
    assert WRONG_RESPONSES.labels(ground.slug, "logs_left_out")._value.get() == count + 1
    assert omitting.done["dropped"]
    assert (details.run.status, await case_subjects(ground)) == ("matched", [])
    assert sorted((side.type, side.lines, side.records) for side in details.sums) == [
        ("payment", 1, 1),
        ("payment", 1, 1),
        ("refund", 1, 1),
    ]


async def test_the_endpoint_that_has_read_fewer_blocks_limits_the_range(
    ground: ChainWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _pay(ground)
    await _pay(ground)
    monkeypatch.setattr(contract_logs, "RANGE_SEARCHES_MAX", 1)
    url = ground.chain.url
    short, forgetful = Faults(range_max=1), Faults(drop_logs=1.0)
    async with FaultyNode(url, faults=short) as slow, FaultyNode(url, faults=forgetful) as fast:
        details = await _compare(ground, slow, fast)
    assert (details.run.status, await case_subjects(ground)) == ("matched", [])
    assert [(side.lines, side.records) for side in details.sums] == [(2, 2)]


async def test_a_log_that_two_endpoints_omit_opens_a_case(ground: ChainWorld) -> None:
    await _pay(ground)
    url, faults = ground.chain.url, Faults(drop_logs=1.0)
    async with FaultyNode(url, faults=faults) as first, FaultyNode(url, faults=faults) as second:
        details = await _compare(ground, first, second)
    assert (details.run.status, details.run.opened) == ("differs", 1)
    [subject] = await case_subjects(ground)
    assert ": missing, " in subject
