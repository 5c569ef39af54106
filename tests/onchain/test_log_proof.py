"""The proof of a log: the endpoints that must confirm it, and the denials that are ignored."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from payintent.evm import abi
from payintent.evm.port import ContractLog, PaidLog, RefundedLog
from payintent.onchain.log_proof import LogClaim, LogProof, prove_logs
from tests.support.fault_rpc import Faults, FaultyNode
from tests.support.onchain import ChainWorld, chain_world
from tests.support.world import World

pytestmark = pytest.mark.full

HONEST, BEHIND, MUTE = Faults(), Faults(lag=50), Faults(null_receipts=1.0)


@asynccontextmanager
async def read_through(
    world: World, url: str, *faults: Faults
) -> AsyncIterator[tuple[ChainWorld, PaidLog]]:
    """A chain with a payment, read through endpoints with these faults."""
    async with AsyncExitStack() as stack:
        nodes = [await stack.enter_async_context(FaultyNode(url)) for _ in faults]
        ground = await stack.enter_async_context(
            chain_world(world, url, endpoints=[node.url for node in nodes])
        )
        await ground.mine(60)
        log = await pay(ground)
        for node, fault in zip(nodes, faults, strict=True):
            node.faults = fault
        yield ground, log


async def pay(ground: ChainWorld) -> PaidLog:
    """Pay, and return the log from the first endpoint."""
    _, session = await ground.bill("NATIVED")
    await ground.pay(session)
    await ground.mine(3)
    height = await ground.height()
    contract = bytes.fromhex(ground.deployment.contract_address[2:])
    batch = await ground.reader.search_logs("native-1", 1, height, [contract], None)
    return batch.logs[-1]


async def refund(ground: ChainWorld) -> RefundedLog:
    """Refund, and return the log from the first endpoint."""
    contract = bytes.fromhex(ground.deployment.contract_address[2:])
    data = abi.encode_refund(bytes(16), bytes(15) + b"\x05", bytes(20), 20 * b"\x09", 7)
    step = {"to": f"0x{contract.hex()}", "value": "0x7", "data": f"0x{data.hex()}"}
    await ground.send(step, ground.deployment.refunder)
    await ground.mine(3)
    batch = await ground.reader.search_logs("native-1", 1, await ground.height(), [contract], None)
    return batch.refunds[-1]


async def prove(
    ground: ChainWorld, log: ContractLog, current_endpoints: str = "123", **changes: Any
) -> LogProof:
    fields: dict[str, Any] = {
        "supplier": "native-1",
        "claimed_logs": (),
        "pending": {log.tx_hash},
        "contracts": [log.contract],
        "last": await ground.height() - 2,
        "current_endpoints": {f"native-{digit}" for digit in current_endpoints},
    }
    return await prove_logs(ground.reader, LogClaim(**(fields | changes)))


@pytest.mark.parametrize(
    ("faults", "is_proven", "is_absent"),
    [
        ([HONEST], True, False),
        ([HONEST, HONEST], True, False),
        ([MUTE, HONEST, HONEST], True, False),
        ([HONEST, MUTE], False, False),  # the endpoints disagree
        ([HONEST, BEHIND], False, False),
        ([HONEST, MUTE, MUTE], False, True),
        ([MUTE, MUTE], False, True),
        ([MUTE], False, True),
    ],
)
async def test_endpoints_must_agree_on_whether_a_sighting_is_a_payment(
    world: World, chain_url: str, faults: list[Faults], is_proven: bool, is_absent: bool
) -> None:
    async with read_through(world, chain_url, *faults) as (ground, log):
        proof = await prove(ground, log)
        assert (proof.logs == [log], proof.absent == {log.tx_hash}) == (is_proven, is_absent)


async def test_an_endpoint_disproves_a_log_only_if_it_is_current(
    world: World, chain_url: str
) -> None:
    async with read_through(world, chain_url, HONEST, BEHIND, BEHIND) as (ground, log):
        assert (await prove(ground, log, current_endpoints="1")).absent == set()
        assert (await prove(ground, log, current_endpoints="123")).absent == {log.tx_hash}


async def test_a_log_is_proven_only_if_every_field_matches(world: World, chain_url: str) -> None:
    async with read_through(world, chain_url, HONEST, HONEST) as (ground, log):
        for forged_log in (
            replace(log, amount=log.amount + 1),
            replace(log, uuid=bytes(16)),
            replace(log, log_index=log.log_index + 1),
            replace(log, block_hash=bytes(32)),
            replace(log, receiver=bytes(20)),
            replace(log, token=bytes(19) + b"\x01"),
        ):
            proof = await prove(ground, log, claimed_logs=[forged_log], pending=())
            assert proof.unproven == [forged_log]
            assert forged_log not in proof.logs
        proof = await prove(ground, log, claimed_logs=[log], pending=())
        assert (proof.unproven, proof.logs) == ([], [log])


async def test_a_refund_log_is_proven_only_if_every_field_matches(
    world: World, chain_url: str
) -> None:
    async with read_through(world, chain_url, HONEST, HONEST) as (ground, _):
        log = await refund(ground)
        for forged_log in (
            replace(log, amount=log.amount + 1),
            replace(log, refund_id=bytes(16)),
            replace(log, to=bytes(20)),
            replace(log, sender=bytes(20)),
            replace(log, token=bytes(19) + b"\x01"),
        ):
            proof = await prove(ground, log, claimed_logs=[forged_log], pending=())
            assert proof.unproven == [forged_log]
            assert forged_log not in proof.logs
        proof = await prove(ground, log, claimed_logs=[log], pending=())
        assert (proof.unproven, proof.logs) == ([], [log])


async def test_a_refund_transaction_does_not_count_as_a_payment(
    world: World, chain_url: str
) -> None:
    async with read_through(world, chain_url, HONEST, HONEST) as (ground, _):
        log = await refund(ground)
        proof = await prove(ground, log, claimed_logs=[log], pending={log.tx_hash})
        assert (proof.logs, proof.absent) == ([log], {log.tx_hash})


async def test_a_payment_that_is_not_final_is_neither_proven_nor_absent(
    world: World, chain_url: str
) -> None:
    async with read_through(world, chain_url, HONEST, HONEST) as (ground, log):
        proof = await prove(ground, log, last=log.block_number - 1)
        assert (proof.logs, proof.absent) == ([], set())


async def test_a_final_revert_proves_the_absence_of_a_payment(world: World, chain_url: str) -> None:
    async with read_through(world, chain_url, HONEST, HONEST) as (ground, log):
        _, session = await ground.bill("NATIVED")
        tx_hash = bytes.fromhex((await ground.pay_otherwise(session, deadline=1))[2:])
        height = await ground.height()
        proof = await prove(ground, log, pending={tx_hash}, last=height - 1)
        assert proof.absent == set()  # a reorg may still change the outcome
        proof = await prove(ground, log, pending={tx_hash}, last=height)
        assert proof.absent == {tx_hash}
