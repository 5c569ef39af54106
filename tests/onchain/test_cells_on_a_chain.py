"""Cells on one chain: each takes its own logs, once, and the nodes are asked as by one."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import pytest
from pydantic import SecretStr

from payintent.domain import ids
from payintent.domain.errors import ChainUnavailableError
from payintent.domain.evm import RefundedLog
from payintent.domain.onchain import PROVIDER
from payintent.domain.payment import Payment
from payintent.domain.session import Session
from payintent.evm.chain_reader import RpcChainReader, open_chain_reader
from payintent.evm.shared_reader import ANSWERS_MAX, FRESH_S, SharedReaders
from payintent.gateways.onchain import OnchainGateway
from payintent.id_generator import IdGenerator
from payintent.onchain.cell_logs import logs_of_cell
from payintent.onchain.watch_loop import WatchContext, run_watch_loop, watch_once
from payintent.operations.chains import SetChain
from payintent.operations.reconciliation_runs import (
    ListReconciliationRuns,
    RunDetails,
    ShowReconciliationRun,
)
from payintent.reconciliation import chain_comparison
from payintent.reconciliation.chain_comparison import ChainComparison, compare_chain
from payintent.storage.onchain import chain_watch, chains
from payintent.storage.onchain.evidence import DatabaseOnchainRecords
from tests.support.cell_schema import OF_CELLS
from tests.support.cells import Alone, copy_tables
from tests.support.contracts import WATCHED_S, know_cells
from tests.support.databases import Databases
from tests.support.fault_rpc import FaultyNode
from tests.support.onchain import ChainWorld, config_of, offer, pay_uuid
from tests.support.patience import PATIENCE_S
from tests.support.refunding import RefundWorld, Signer
from tests.support.two_cells import TwoCells, several_cells

pytestmark = OF_CELLS
LOOK_S = 0.05
DAY_S = 24 * 3600


@dataclass
class CellsOnChain:
    """A chain with a merchant in each of two or three cells, and a counting node before it."""

    two: TwoCells
    ground: ChainWorld  # of the merchant in cell 1
    of_cell_0: ChainWorld  # of the merchant in cell 0
    of_cell_2: ChainWorld  # of the merchant in cell 2, where there is that
    before: ChainWorld  # of a process that began before there was a second cell
    node: FaultyNode
    readers: SharedReaders

    def context(self, cell: int) -> WatchContext:
        return replace(self.two.world.service.watch_contexts().at(cell), readers=self.readers)

    async def look(self, *cells: int) -> None:
        """Let the watchers of some cells look, one after the other, until nothing more is final."""
        for cell in cells:
            context = self.context(cell)
            row = await chains.get_chain(context.database, "native")
            assert row is not None
            reader = self.readers.open(
                ("native",),
                cell,
                lambda: open_chain_reader("native", [self.node.url], config_of("native")),
            )
            assert reader is not None
            while await watch_once(context, row, reader):
                pass

    async def bills(self) -> tuple[tuple[Payment, Session], tuple[Payment, Session]]:
        """Let a buyer choose the coin at the merchant of each cell, cell 0 first."""
        return await self.of_cell_0.bill("NATIVED"), await self.ground.bill("NATIVED")

    async def decide(self, cell: int) -> None:
        """Ask about all open sessions of a cell, and let end what may."""
        database = self.two.world.service.cells.at(cell)
        await database.fetch("UPDATE session SET inquire_at = clock() WHERE life <> 'ended'")
        await self.ground.decide(database)

    async def count_calls(self, *cells: int) -> int:
        before = self.node.asked["eth_getLogs"]
        await self.look(*cells)
        return self.node.asked["eth_getLogs"] - before

    async def column(self, cell: int, query: str) -> list[Any]:
        connection = await self.two.direct(cell)
        rows = await connection.fetch(query)
        await connection.close()
        return [row[0] for row in rows]

    async def receipts(self, cell: int) -> list[str]:
        return await self.column(
            cell, "SELECT disposition FROM chain_receipt ORDER BY block, log_index"
        )

    async def statuses(self, cell: int) -> list[str]:
        return await self.column(cell, "SELECT status FROM payment ORDER BY id")


@pytest.fixture
async def both(ground: ChainWorld, databases: Databases) -> AsyncIterator[CellsOnChain]:
    async with _on_chain(ground, databases, 1) as made:
        yield made


@pytest.fixture
async def three(ground: ChainWorld, databases: Databases) -> AsyncIterator[CellsOnChain]:
    async with _on_chain(ground, databases, 1, 2) as made:
        yield made


@asynccontextmanager
async def _on_chain(
    ground: ChainWorld, databases: Databases, *others: int
) -> AsyncIterator[CellsOnChain]:
    records = DatabaseOnchainRecords(Alone(None))
    adapter = OnchainGateway(records, ground.world.service.settings.api_base, {})
    poll = {"chain_poll_s": 0.1, "chain_poll_idle_s": 0.1}
    made = several_cells(
        ground.world,
        databases,
        others,
        {PROVIDER: adapter},
        placed=1,
        **poll,
    )
    async with made as two, FaultyNode(ground.chain.url) as node:
        cells = two.world.service.cells
        know_cells(records, two.world.service)
        grounds = list[ChainWorld]()
        for _ in range(2):
            other = (await two.world.other_merchant()).merchant.id
            there = replace(two.world, merchant_id=other)
            method = await offer(there, ground.account_id, "NATIVED")
            grounds.append(replace(ground, world=there, methods={"NATIVED": method}))
        await copy_tables(cells)
        for database in cells:
            await chain_watch.mark_watched(database, "native", 0, WATCHED_S)
        at_0, at_2 = grounds
        if 2 in others:
            await two.move(2, at_2.world.merchant_id)
            await copy_tables(cells)
        yield CellsOnChain(
            two,
            replace(ground, world=two.world),
            at_0,
            at_2,
            ground,
            node,
            readers := SharedReaders(),
        )
        for shared in readers._shared.values():
            await shared.reader.close()


async def until(found: Callable[[], Awaitable[bool]]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not await found():
        assert time.monotonic() < deadline, "it has not happened"
        await asyncio.sleep(LOOK_S)


async def test_each_cell_settles_its_own_payments_and_the_node_is_asked_as_by_one(
    both: CellsOnChain,
) -> None:
    await both.look(0, 1)
    for _, session in await both.bills():
        await both.ground.pay(session)
    await both.ground.mine(3)
    first, second = await both.count_calls(0), await both.count_calls(1)
    assert (await both.statuses(0), await both.statuses(1)) == (["PAID"], ["PAID"])
    assert (await both.receipts(0), await both.receipts(1)) == (["credited"], ["credited"])
    assert (first, second) == (3, 1)  # final blocks, its own log's proof, newest; the proof alone
    assert await both.count_calls(1) > 0  # who looks again is never given what it was given


async def test_a_payment_waits_for_the_watcher_of_its_own_cell_however_long_that_is_away(
    both: CellsOnChain,
) -> None:
    """Blocks that another cell has read prove nothing about it."""
    _, (_, session) = await both.bills()
    await both.ground.bill("NATIVED")
    await both.look(0, 1)
    await both.ground.pay(session)
    for passed_s in (1802, DAY_S, DAY_S):
        await both.ground.pass_time(passed_s)
        await both.ground.mine(3)
        await both.look(0)
        await both.decide(0)
        await both.decide(1)
        assert await both.statuses(0) == ["EXPIRED"]
        assert await both.statuses(1) == ["PROCESSING", "PROCESSING"]
    await both.look(1)
    await both.decide(1)
    assert await both.statuses(1) == ["PAID", "EXPIRED"]
    assert await both.receipts(1) == ["credited"]


async def test_a_refund_by_an_account_that_is_listed_later_counts_in_its_own_cell(
    both: CellsOnChain,
) -> None:
    """Else it would be sent once more, by the account that is listed."""
    refunds = RefundWorld(both.ground, Signer(""), {})
    payment, _ = await refunds.paid()
    refund = await refunds.ask(payment)
    sender = (await refunds.accounts())[8]
    await refunds.by_hand(refund.id, refund.amount_minor, sender=sender)
    await both.ground.final()
    assert await refunds.stands(refund) == ("PENDING", "queued")
    await both.two.world.perform(SetChain(chain="native", refunder=sender))
    await copy_tables(both.two.world.service.cells)
    await both.ground.look()
    assert await refunds.stands(refund) == ("SUCCEEDED", "ended")
    assert await both.statuses(1) == ["REFUNDED"]


async def test_a_reorganisation_takes_what_was_seen_back_in_both_cells(both: CellsOnChain) -> None:
    for _, session in await both.bills():
        await both.ground.pay(session)
    await both.look(0, 1)
    seen = "SELECT gone_at IS NULL FROM chain_sighting"
    assert (await both.column(0, seen), await both.column(1, seen)) == ([True], [True])
    await both.ground.reorg(2)
    await both.ground.mine(4)
    await asyncio.sleep(0)
    await both.look(0, 1)
    for cell in (0, 1):
        assert True not in await both.column(cell, seen)
        assert await both.receipts(cell) == []
        assert await both.statuses(cell) == ["PROCESSING"]


async def test_each_log_is_one_cells_also_where_a_process_does_not_know_the_cell_yet(
    both: CellsOnChain,
) -> None:
    _, session = await both.ground.bill("NATIVED")
    await both.ground.pay(session)
    for strange in (ids.make_opaque_id(7, 5).bytes, bytes(16)):
        await both.ground.pay_otherwise(session, uuid=strange)
    unknown = ids.make_opaque_id(1, 5).bytes  # of a session that cell 1 does not have
    await both.ground.pay_otherwise(session, uuid=unknown)
    await both.ground.mine(3)
    assert not both.before.world.service.cells.are_several
    await both.before.look()
    assert await both.receipts(0) == ["unknown_uuid", "unknown_uuid"]
    await both.look(0, 1)
    assert await both.receipts(0) == ["unknown_uuid", "unknown_uuid"]
    assert await both.receipts(1) == ["credited", "unknown_uuid"]
    assert await both.statuses(1) == ["PAID"]
    assert ids.cell_of_opaque(UUID(bytes=pay_uuid(session))) == 1


async def test_a_refunds_log_is_of_the_refunds_cell_whatever_session_it_names(
    both: CellsOnChain,
) -> None:
    there, hash_ = bytes(20), bytes(32)
    logs = [
        RefundedLog(
            contract=there,
            uuid=ids.make_opaque_id(1 - cell, 5).bytes,
            refund_id=IdGenerator(cell=cell).new_id().bytes,
            token=there,
            amount=1,
            to=there,
            sender=there,
            block_number=1,
            block_hash=hash_,
            tx_hash=hash_,
            log_index=cell,
        )
        for cell in (0, 1)
    ]
    for cell in (0, 1):
        assert await logs_of_cell(both.context(cell).database, cell, logs) == [logs[cell]]


async def _compare(both: CellsOnChain) -> RunDetails:
    """Compare what is due of the chain in both cells; gives the newest run."""
    service = both.two.world.service

    def open_reader(*_: object) -> RpcChainReader:
        return open_chain_reader("native", [both.node.url], config_of("native"))

    comparison = ChainComparison(
        service.settings,
        service.database,
        open_reader,
        {cell: database for cell, database in service.cells.items() if cell},
    )
    await compare_chain(comparison, "native")
    run = (await both.two.world.perform(ListReconciliationRuns()))[0]
    return await both.two.world.perform(ShowReconciliationRun(run_id=run.id))


_OF_CASES = "SELECT subject FROM money_case WHERE kind = 'RECONCILIATION' ORDER BY subject"


async def test_each_cells_logs_are_compared_with_its_own_records_and_the_balance_with_all_ledgers(
    both: CellsOnChain,
) -> None:
    for _, session in await both.bills():
        await both.ground.pay(session)
    _, session = await both.of_cell_0.bill("NATIVED")
    await both.ground.pay_otherwise(session, uuid=ids.make_opaque_id(7, 5).bytes)  # of no cell
    await both.ground.mine(3)
    await both.look(0, 1)
    matched = await _compare(both)
    assert (matched.run.status, matched.run.opened) == ("matched", 0)
    [side] = matched.sums
    assert (side.lines, side.records) == (3, 3)
    assert side.gateway == side.service == side.ledger == side.merchants
    [balance] = [each for each in matched.balances if each.currency == "NATIVED"]
    assert balance.ledger == side.gateway
    # Another day, on which the capture of cell 1 is lost, and the entry of cell 0 is another one.
    for _, session in await both.bills():
        await both.ground.pay(session)
    await both.ground.mine(3)
    await both.look(0, 1)
    await both.two.run(
        0, "UPDATE reconciliation_run SET created_at = created_at - interval '1 day'"
    )
    await both.two.run(
        1, "DELETE FROM capture WHERE id = (SELECT id FROM capture ORDER BY id DESC LIMIT 1)"
    )
    newest = "(SELECT max(entry_number) FROM ledger_entry WHERE leg = 'payable')"
    await both.two.run(
        0, f"UPDATE ledger_entry SET amount = amount - 1 WHERE entry_number = {newest}"
    )
    await both.two.away(1)
    warned = await _compare(both)
    assert warned.run.id == matched.run.id, "without a cell no run begins"
    await both.two.back(1)
    differs = await _compare(both)
    assert (differs.run.status, differs.run.opened) == ("differs", 2)
    [of_0], [of_1] = [await both.column(cell, _OF_CASES) for cell in (0, 1)]
    assert (": ledger, " in of_0, ": extra, " in of_1) == (True, True)


async def test_a_cell_that_goes_away_fails_the_run_which_is_done_again_and_nothing_is_missing(
    both: CellsOnChain, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _, session in await both.bills():
        await both.ground.pay(session)
    await both.ground.mine(3)
    await both.look(0, 1)
    read = chain_comparison.read_piece

    async def read_and_lose_a_cell(*args: Any) -> Any:
        piece = await read(*args)
        await both.two.away(1)
        return piece

    with monkeypatch.context() as patch:
        patch.setattr(chain_comparison, "read_piece", read_and_lose_a_cell)
        failed = await _compare(both)
    assert failed.run.status == "failed"
    assert failed.run.problem.startswith("cell 1 did not answer (")
    assert failed.run.problem.endswith("): it is done again when it does")
    assert (await _compare(both)).run == failed.run, "it waits for its cell"
    await both.two.back(1)
    done = await _compare(both)
    assert (done.run.id, done.run.status, done.run.opened) == (failed.run.id, "matched", 0)
    assert [side.lines for side in done.sums] == [2]
    for cell in (0, 1):
        assert await both.column(cell, _OF_CASES) == []


async def test_the_logs_of_three_cells_are_each_ones_own_and_compared_with_all_three(
    three: CellsOnChain,
) -> None:
    for _ in range(2):
        for ground in (three.of_cell_0, three.ground, three.of_cell_2):
            _, session = await ground.bill("NATIVED")
            await ground.pay(session)
    for strange in (7, 2):  # of no cell, and of a session that cell 2 does not have
        await three.ground.pay_otherwise(session, uuid=ids.make_opaque_id(strange, 5).bytes)
    await three.ground.mine(3)
    await three.look(2, 0, 1)
    for cell in (0, 1, 2):
        assert await three.statuses(cell) == ["PAID", "PAID"]
    assert await three.receipts(0) == ["credited", "credited", "unknown_uuid"]
    assert await three.receipts(1) == ["credited", "credited"]
    assert await three.receipts(2) == ["credited", "credited", "unknown_uuid"]
    await three.two.run(
        2, "DELETE FROM capture WHERE id = (SELECT id FROM capture ORDER BY id DESC LIMIT 1)"
    )
    await three.two.away(1)
    with pytest.raises(IndexError):
        await _compare(three)  # there is no run: none begins without a cell
    await three.two.back(1)
    differs = await _compare(three)
    assert differs.run.status == "differs"
    [side] = differs.sums
    assert (side.lines, side.records) == (8, 7)
    [balance] = [each for each in differs.balances if each.currency == "NATIVED"]
    assert balance.ledger == side.gateway, "of all three ledgers"
    for cell in (0, 1):
        assert await three.column(cell, _OF_CASES) == []
    [case] = await three.column(2, _OF_CASES)
    assert ": extra, " in case


@asynccontextmanager
async def watching(both: CellsOnChain) -> AsyncIterator[None]:
    """Run the watch loops of both cells, as a worker does."""
    stop = asyncio.Event()
    contexts = [both.context(cell) for cell in (0, 1)]
    settings = contexts[0].settings.model_copy(update={"rpc_native": SecretStr(both.node.url)})
    loops = [
        asyncio.create_task(run_watch_loop(replace(context, settings=settings), "native", stop))
        for context in contexts
    ]
    yield
    stop.set()
    await asyncio.gather(*loops)


async def test_a_cell_that_is_away_delays_no_other_and_catches_up_with_nothing_lost(
    both: CellsOnChain,
) -> None:
    for _, session in await both.bills():
        await both.ground.pay(session)
    await both.ground.mine(3)
    await both.two.away(1)
    async with watching(both):

        async def paid(cell: int) -> bool:
            return await both.statuses(cell) == ["PAID"]

        await until(lambda: paid(0))
        assert await both.receipts(1) == []
        await both.ground.mine(5)
        await both.two.back(1)
        await until(lambda: paid(1))
    assert (await both.receipts(0), await both.receipts(1)) == (["credited"], ["credited"])
    assert await both.column(0, "SELECT kind FROM money_case") == []
    assert await both.column(1, "SELECT kind FROM money_case") == []


async def test_what_failed_is_not_kept_and_what_is_kept_is_bounded_and_soon_old() -> None:
    now = [0.0]
    shared = SharedReaders(lambda: now[0])
    first, second = (
        shared.open(
            (), cell, lambda: open_chain_reader("native", ["http://[::1]:1/"], config_of("native"))
        )
        for cell in (0, 1)
    )
    assert first is not None
    assert second is not None
    assert first.reader is second.reader
    memory, asked = first._shared.heads, list[int]()

    async def fail() -> Any:
        asked.append(0)
        raise ChainUnavailableError("away")

    for watcher in (0, 1):
        with pytest.raises(ChainUnavailableError):
            await memory.ask((), watcher, fail)
    assert len(asked) == 2

    async def answer() -> Any:
        asked.append(1)
        return []

    await asyncio.gather(*(memory.ask((), watcher, answer) for watcher in (0, 1)))
    assert len(asked) == 3  # both at once
    await memory.ask((), 0, answer)
    now[0] += FRESH_S + 1
    await memory.ask((), 1, answer)
    assert len(asked) == 5  # the same watcher again, and one that comes too late
    for number in range(2 * ANSWERS_MAX):
        await memory.ask((number,), 0, answer)
    assert len(memory._kept) == ANSWERS_MAX
    assert memory._asking == {}
    await first.close()
    await second.close()
