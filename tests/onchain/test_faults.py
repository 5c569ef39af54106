"""The watcher with faulty endpoints: payments are neither lost nor invented."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from payintent.core.errors import ChainUnavailableError
from payintent.evm.rpc import WRONG_RESPONSES
from payintent.onchain.watcher import LATE_LOGS, RANGES_MAX
from payintent_sandbox.chains.anvil import Anvil
from payintent_sandbox.chains.anvil_binary import Binary
from payintent_sandbox.chains.rpc import open_chain
from tests.support.fault_rpc import ALL, Faults, FaultyNode
from tests.support.onchain import ChainWorld, chain_world
from tests.support.world import World

pytestmark = pytest.mark.full

Nodes = list[FaultyNode]
HONEST = Faults()


@asynccontextmanager
async def read_through(world: World, urls: list[str]) -> AsyncIterator[tuple[ChainWorld, Nodes]]:
    async with AsyncExitStack() as stack:
        nodes = [
            await stack.enter_async_context(FaultyNode(url, seed=seed))
            for seed, url in enumerate(urls)
        ]
        ground = await stack.enter_async_context(
            chain_world(world, urls[0], endpoints=[node.url for node in nodes])
        )
        await ground.allow()
        yield ground, nodes


@pytest.fixture
async def alone(world: World, chain_url: str) -> AsyncIterator[tuple[ChainWorld, Nodes]]:
    """A single endpoint."""
    async with read_through(world, [chain_url]) as ground_and_nodes:
        yield ground_and_nodes


@pytest.fixture
async def pair(world: World, chain_url: str) -> AsyncIterator[tuple[ChainWorld, Nodes]]:
    """Two endpoints of the same chain."""
    async with read_through(world, [chain_url] * 2) as ground_and_nodes:
        yield ground_and_nodes


@pytest.fixture
def foreign_url(anvil: Binary, tmp_path: Path) -> Iterator[str]:
    """The URL of a second chain with the same network id."""
    chain = Anvil(612_055, log=tmp_path / "other.log", binary=anvil)
    yield chain.start()
    chain.stop()


async def try_to_poll(ground: ChainWorld, times: int = 1) -> None:
    """Run the watcher, even if the chain is unreachable."""
    for _ in range(times):
        try:
            await ground.turn()
        except ChainUnavailableError:
            await ground.decide()


async def poll_until(ground: ChainWorld, condition: Callable[[], Any], times: int = 60) -> None:
    """Run the watcher until a condition is true, because faults are random."""
    for _ in range(times):
        if await condition():
            return
        await try_to_poll(ground)
    raise AssertionError(f"not after {times} polls")


async def list_missing(ground: ChainWorld) -> list[Any]:
    return await ground.world.rows("SELECT FROM chain_sighting WHERE gone_at IS NOT NULL")


async def test_a_lagging_endpoint_does_not_disprove_a_payment(
    pair: tuple[ChainWorld, Nodes],
) -> None:
    ground, (ahead, late) = pair
    payment, session = await ground.bill("USDT")
    await ground.turn()
    late.faults = Faults(lag=6)
    await ground.pay(session)
    await ground.mine(4)
    await try_to_poll(ground, 3)
    assert await ground.status(payment) == "PROCESSING"
    assert await list_missing(ground) == []
    assert (await ground.view(session))["status"] in {"detected", "confirming"}
    late.faults = HONEST
    await ground.turn()
    assert await ground.status(payment) == "PAID"
    assert ahead.requests
    assert await ground.dispositions() == ["credited"]


async def test_a_block_is_final_only_if_every_endpoint_reports_it_as_final(
    pair: tuple[ChainWorld, Nodes],
) -> None:
    ground, (_, late) = pair
    await ground.mine(10)
    late.faults = Faults(lag=5)
    height = await ground.height()
    await ground.turn()
    assert (await ground.cursor()).block == height - 5 - 2


async def test_a_stalled_endpoint_counts_as_unavailable(
    pair: tuple[ChainWorld, Nodes],
) -> None:
    ground, (_, late) = pair
    service = ground.world.service
    strict = service.settings.model_copy(update={"chain_behind_max_s": 600.0})
    ground.world.service = replace(service, settings=strict)
    await ground.keep_time()
    unpaid, _ = await ground.bill("USDT")
    payment, session = await ground.bill("USDT", expires_in_s=86_400)
    await ground.turn()
    height = await ground.height()
    await ground.pay(session)
    for _ in range(8):
        await ground.pass_time(400)
        late.faults = Faults(lag=await ground.height() - height)
        await try_to_poll(ground)
    assert await ground.status(unpaid) == "EXPIRED"
    assert await ground.status(payment) == "PROCESSING", "a single endpoint cannot prove it"
    assert await ground.cases() == ["RECONCILIATION"]
    late.faults = HONEST
    await ground.final()
    assert await ground.status(payment) == "PAID"


async def test_a_chain_that_ends_before_its_cursor_is_not_watched(
    pair: tuple[ChainWorld, Nodes],
) -> None:
    """For example, if `--deployed-block` is beyond the head, or the chain was restarted."""
    ground, _ = pair
    payment, session = await ground.bill("USDT")
    await ground.turn()
    await ground.world.rows(
        "UPDATE chain_cursor SET block = block + 100, hash = NULL, at = NULL,"
        " watched_since = NULL, watched_until = NULL"
    )
    await ground.pay(session)
    await ground.pass_time(2_000)
    await ground.turn()
    assert await ground.status(payment) == "PROCESSING"
    assert not (await ground.cursor()).watched


async def test_a_log_omitted_by_a_search_is_found_through_its_receipt(
    pair: tuple[ChainWorld, Nodes],
) -> None:
    ground, nodes = pair
    payment, session = await ground.bill("USDT")
    await ground.pay(session)
    await ground.turn()
    for node in nodes:
        node.faults = Faults(drop_logs=1.0)
    await ground.final()
    assert sum(node.done["dropped"] for node in nodes)
    assert await ground.status(payment) == "PAID"
    assert await list_missing(ground) == []


async def test_a_log_omitted_by_every_endpoint_is_found_by_the_recheck(
    pair: tuple[ChainWorld, Nodes],
) -> None:
    ground, nodes = pair
    payment, session = await ground.bill("USDT")
    await ground.turn()
    for node in nodes:
        node.faults = Faults(drop_logs=1.0)
    await ground.pay(session)
    await ground.final()
    assert await ground.status(payment) == "PROCESSING"
    assert await ground.dispositions() == []
    for node in nodes:
        node.faults = HONEST
    before = LATE_LOGS.labels("native")._value.get()
    await ground.turn()
    assert await ground.status(payment) == "PROCESSING"  # not in every poll
    await ground.move_clock(601)
    await ground.turn()
    assert await ground.status(payment) == "PAID"
    assert LATE_LOGS.labels("native")._value.get() == before + 1


async def test_an_endpoint_that_rejects_searches_does_not_prevent_rechecks(
    world: World, chain_url: str
) -> None:
    async with read_through(world, [chain_url] * 3) as (ground, nodes):
        payment, session = await ground.bill("USDT")
        await ground.turn()
        nodes[2].faults = Faults(range_max=0)
        for node in nodes[:2]:
            node.faults = Faults(drop_logs=1.0)
        await ground.pay(session)
        await ground.final()
        assert await ground.dispositions() == []
        for node in nodes[:2]:
            node.faults = HONEST
        await ground.move_clock(601)
        await try_to_poll(ground, 3)
        assert await ground.status(payment) == "PAID"


async def test_a_recheck_in_small_steps_completes(
    alone: tuple[ChainWorld, Nodes],
) -> None:
    ground, [node] = alone
    await ground.mine(150)
    await ground.turn()
    _, session = await ground.bill("USDT")
    node.faults = Faults(range_max=5, drop_logs=1.0)
    await ground.pay(session)
    await ground.final()
    node.faults = Faults(range_max=5)
    await ground.move_clock(601)
    await ground.turn()
    assert (await ground.cursor()).second_look_block is not None  # new blocks are not held up

    async def is_complete() -> bool:
        return (await ground.cursor()).second_look_block is None

    await poll_until(ground, is_complete)
    assert await ground.dispositions() == ["credited"]


async def test_forged_logs_neither_pay_nor_block_the_watcher(
    pair: tuple[ChainWorld, Nodes],
) -> None:
    ground, (forger, _) = pair
    payment, session = await ground.bill("USDT")
    unpaid, _ = await ground.bill("USDT")
    forger.faults = Faults(forge_logs=1.0)
    await ground.pay(session)
    before = WRONG_RESPONSES.labels("native", "unproven_log")._value.get()
    await try_to_poll(ground, 2)
    await ground.final()
    assert forger.done["forged"]
    assert WRONG_RESPONSES.labels("native", "unproven_log")._value.get() > before
    assert await ground.status(payment) == "PAID"
    assert await ground.status(unpaid) == "PROCESSING"
    assert await ground.dispositions() == ["credited"]


async def test_logs_forged_by_a_single_endpoint_are_set_aside_without_blocking(
    alone: tuple[ChainWorld, Nodes],
) -> None:
    ground, [forger] = alone
    payment, session = await ground.bill("USDT")
    unpaid, _ = await ground.bill("USDT")
    await ground.turn()
    forger.faults = Faults(forge_logs=1.0)
    await ground.pay(session)
    await ground.mine(3)
    await ground.turn()
    assert await ground.status(payment) == "PAID"
    assert await ground.status(unpaid) == "PROCESSING"
    assert await ground.dispositions() == ["credited"]
    assert set(await ground.cases()) == {"RECONCILIATION"}


async def test_endpoints_without_receipts_neither_prove_nor_disprove_a_payment(
    pair: tuple[ChainWorld, Nodes],
) -> None:
    ground, nodes = pair
    payment, session = await ground.bill("USDT")
    await ground.turn()
    await ground.pay(session)
    for node in nodes:
        node.faults = Faults(null_receipts=1.0)
    await ground.mine(3)
    await try_to_poll(ground, 2)
    assert await ground.status(payment) == "PROCESSING"
    assert await list_missing(ground) == []
    nodes[0].faults = HONEST
    await ground.turn()
    assert await ground.status(payment) == "PAID"


ENDPOINT_FAULTS = {
    "range": Faults(range_max=5),
    "small range, flaky": Faults(range_max=5, broken=0.2),
    "small batches, gaps": Faults(batch_max=1, null_blocks=0.2, null_receipts=0.3),
} | {kind.value: Faults(broken=0.3, breakages=[kind]) for kind in ALL}


@pytest.mark.parametrize("faults", ENDPOINT_FAULTS.values(), ids=ENDPOINT_FAULTS)
async def test_a_faulty_endpoint_is_read_to_the_chain_head(
    alone: tuple[ChainWorld, Nodes], faults: Faults
) -> None:
    ground, [node] = alone
    payment, session = await ground.bill("USDT")
    await ground.pay(session)
    await ground.mine(120)
    node.faults = faults

    async def is_paid() -> bool:
        return await ground.status(payment) == "PAID" and (
            (await ground.cursor()).block == await ground.height() - 2
        )

    await poll_until(ground, is_paid)
    assert await ground.dispositions() == ["credited"]


async def test_ranges_beyond_the_limit_of_a_poll_are_read_by_the_next_poll(
    alone: tuple[ChainWorld, Nodes],
) -> None:
    ground, [node] = alone
    payment, session = await ground.bill("USDT")
    node.faults = Faults(range_max=1)
    await ground.pay(session)
    await ground.mine(RANGES_MAX + 20)
    await ground.turn()
    assert await ground.status(payment) == "PAID"
    assert (await ground.cursor()).block == await ground.height() - 2


async def test_payments_made_during_an_outage_of_two_hours_are_processed_later(
    pair: tuple[ChainWorld, Nodes],
) -> None:
    ground, nodes = pair
    bills = [await ground.bill("USDT", expires_in_s=86_400) for _ in range(3)]
    short, late_session = await ground.bill("USDT")
    await ground.turn()
    for node in nodes:
        node.faults = Faults(off=True)
    for _, session in bills:
        await ground.pay(session)
        await ground.mine(2)
    await ground.pay(late_session)
    with pytest.raises(ChainUnavailableError):
        await ground.catch_up()
    await ground.move_clock(7_200)
    await ground.decide()
    assert await ground.status(short) == "PROCESSING"  # undecided after its deadline
    await ground.keep_time()
    await ground.mine(3)
    for node in nodes:
        node.faults = HONEST
    await ground.turn()
    assert [await ground.status(payment) for payment, _ in bills] == ["PAID"] * 3
    assert await ground.status(short) == "PAID"  # it was in time


async def test_a_single_endpoint_with_a_different_chain_does_not_halt_the_watcher(
    world: World, chain_url: str, foreign_url: str
) -> None:
    async with read_through(world, [chain_url, foreign_url]) as (ground, (ours, foreign)):
        foreign.faults = Faults(off=True)
        await ground.mine(20)
        await ground.turn()
        foreign.faults = HONEST
        await ground.chain.ask("anvil_mine", hex(5))
        before = await ground.cursor()
        ours.faults = Faults(off=True)
        await _mine(foreign_url, 60)
        await try_to_poll(ground, 3)
        assert (await ground.cursor()).halted is None  # a single endpoint may be wrong
        assert (await ground.cursor()).block == before.block
        ours.faults = HONEST
        await try_to_poll(ground, 2)
        assert (await ground.cursor()).halted is None
        assert (await ground.cursor()).block > before.block


async def _mine(url: str, count: int) -> None:
    async with open_chain(url) as chain:
        await chain.ask("anvil_mine", hex(count))
