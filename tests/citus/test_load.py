"""A cell on Citus under load: it is moved to another node, and its connections are cut off.

Nothing is lost and nothing is doubled; `make test-citus` prints how long nothing went through.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import TypeVar
from uuid import UUID, uuid4

import asyncpg
import pytest

from payintent.domain.errors import ErrorCode, RefusedError, StorageUnavailableError
from payintent.domain.gateway import VerifiedCallback
from payintent.operations.ledger import CheckLedger
from tests.support.fakes import captured
from tests.support.patience import until
from tests.support.world import World

T = TypeVar("T")
_BUYERS = 3
_TRIES = 5
_MORE = 12  # payments between what happens
_FACTS = """
    SELECT p.status, (SELECT count(*) FROM capture c WHERE c.payment_id = p.id) AS captures,
        (SELECT count(*) FROM event e WHERE e.payment_id = p.id) AS events
    FROM payment p
"""
_NODES = """
    SELECT nodename, nodeport
    FROM pg_dist_node
    WHERE shouldhaveshards AND isactive AND noderole = 'primary'
    ORDER BY nodeid
"""
_PLACE = "SELECT nodename, nodeport FROM citus_shards WHERE table_name = 'payment'::regclass"
#: Whose last statement was of this schema: other tests' schemas are made meanwhile.
_CUT_OFF = """
    SELECT run_command_on_workers(format($f$
        SELECT count(pg_terminate_backend(pid))
        FROM pg_stat_activity
        WHERE application_name LIKE 'citus_internal%%' AND backend_type = 'client backend'
            AND pid <> pg_backend_pid() AND query LIKE %L
    $f$, '% ' || current_schema() || '.%'))
"""


@dataclass
class Shop:
    """Buyers who pay one thing after the other."""

    world: World
    paid: list[UUID] = field(default_factory=list[UUID])
    left: int = 0  # by buyers whose choice was cut off
    failures: int = 0
    longest_s: float = 0.0  # between two creates of all
    last_at: float = 0.0

    async def insist(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask again, as merchants, buyers and gateways do, until the database answers."""
        while True:
            try:
                return await ask()
            except StorageUnavailableError:
                self.failures += 1
                await asyncio.sleep(0.02)

    async def sell(self) -> None:
        world, request = self.world, self.world.request()
        created = await self.insist(lambda: world.service.payment_creator.create(request))
        self.longest_s = max(self.longest_s, monotonic() - self.last_at)
        self.last_at = monotonic()
        try:
            chosen = await self.insist(lambda: world.select(created.payment))
        except RefusedError as error:  # what was cut off is under way until a worker asks about it
            if error.code is not ErrorCode.CONFLICT:
                raise
            self.left += 1
            return
        report = captured(159000, reference=f"cap-{created.payment.id}")
        receiver = world.service.callback_receiver
        for _ in range(2):  # gateways tell everything more than once
            callback = VerifiedCallback(id=uuid4().hex, session_id=chosen.session.id, report=report)
            await self.insist(lambda c=callback: receiver.receive(world.account_id, c, b"body"))
        self.paid.append(created.payment.id)

    async def sell_until(self, closed: asyncio.Event) -> None:
        while not closed.is_set():
            await self.sell()

    async def more(self) -> None:
        """Wait until more has been paid."""
        seen = len(self.paid)
        await until(lambda: len(self.paid) >= seen + _MORE, "more is paid")


@asynccontextmanager
async def _open_shop(world: World) -> AsyncIterator[Shop]:
    """Sell while the block runs; then nothing may be lost or doubled."""
    shop, closed = Shop(world, last_at=monotonic()), asyncio.Event()
    async with asyncio.TaskGroup() as work:
        for _ in range(_BUYERS):
            work.create_task(shop.sell_until(closed))
        await shop.more()
        shop.longest_s = 0.0
        yield shop
        await shop.more()
        closed.set()
    facts = [tuple(row) for row in await world.database.fetch(_FACTS)]
    assert facts.count(("PAID", 1, 1)) == len(shop.paid)
    assert {fact for fact in facts if fact != ("PAID", 1, 1)} <= {
        ("PENDING", 0, 0),
        ("PROCESSING", 0, 0),
    }
    assert len(facts) - len(shop.paid) == shop.left <= _BUYERS
    assert await world.perform(CheckLedger()) == []


async def _move(connection: asyncpg.Connection, to: tuple[str, int]) -> float:
    """Move the cell as its runbook says, again where a lock was in the way; give the time."""
    for _ in range(_TRIES):
        began_at = monotonic()
        try:
            await connection.execute(
                f"SELECT citus_schema_move(current_schema()::regnamespace, '{to[0]}', {to[1]})"
            )
        except asyncpg.PostgresError as error:
            if "lock timeout" not in str(error):
                raise
            await connection.execute("CALL citus_cleanup_orphaned_resources()")
        else:
            return monotonic() - began_at
    raise AssertionError("a lock was in the way each time")


async def test_a_cell_is_moved_to_another_node_under_load(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    connection = await world.other_connection()
    [before] = set(map(tuple, await connection.fetch(_PLACE)))
    nodes = [tuple(row) for row in await connection.fetch(_NODES)]
    assert len(nodes) > 1, "a cluster of one node has nowhere to move it"
    to = next(node for node in nodes if node != before)
    async with _open_shop(world) as shop:
        took_s = await _move(connection, to)
    assert set(map(tuple, await connection.fetch(_PLACE))) == {to}
    assert shop.failures == 0
    with pytest.raises(asyncpg.PostgresError, match="payment"):  # its triggers came along
        await connection.execute("UPDATE payment SET status = 'PENDING' WHERE status = 'PAID'")
    await connection.close()
    await world.other_merchant()  # which is copied into the cell where it is now
    with capsys.disabled():
        print(
            f"\nmoved in {took_s:.1f} s; the longest time without a create: {shop.longest_s:.2f} s"
        )


async def test_connections_to_the_node_that_are_cut_off_lose_and_double_nothing(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    connection = await world.other_connection()
    async with _open_shop(world) as shop:
        for _ in range(3):
            await connection.fetch(_CUT_OFF)
            await shop.more()
    await connection.close()
    with capsys.disabled():
        print(f"\n{shop.failures} failures; without a create: {shop.longest_s:.2f} s")
