"""A merchant's move to another cell: nothing is created in both, and no key counts twice."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

import pytest

from payintent.domain import ids
from payintent.domain.errors import (
    DatabaseRefusedError,
    ErrorCode,
    RefusedError,
    StorageUnavailableError,
)
from payintent.domain.fraud import FraudDeniedError, FraudRuleKind, RiskLevel
from payintent.domain.payment import CreatePaymentRequest
from payintent.operations import copy_tables as copying
from payintent.operations import merchant_moves
from payintent.operations.cell_changes import AddCell, DrainCell
from payintent.operations.fraud import AddFraudRule
from payintent.operations.merchant_moves import MerchantMove, MoveEnder, MoveMerchant
from payintent.operations.note_process import ProcessNote
from payintent.operations.test_side import ensure_test_side
from payintent.payments import create
from payintent.service import Service, open_service
from payintent.storage import merchant_cells, new_payments, new_payments_in_steps
from payintent.storage.cells import Cells
from payintent.storage.new_payments import NewPayment
from tests.support.cell_schema import OF_CELLS
from tests.support.cells import until_it_answers, with_cells
from tests.support.database_proxy import DatabaseProxy
from tests.support.databases import Databases
from tests.support.patience import PATIENCE_S
from tests.support.two_cells import wait_for_nobody
from tests.support.world import ACTOR, World

pytestmark = OF_CELLS


@dataclass(frozen=True)
class Moving:
    """Two processes of an installation with cells 0, 1 and 2; the second one keeps its map."""

    world: World
    stale: Service
    proxies: dict[int, DatabaseProxy]

    async def move(self, to: int, service: Service | None = None) -> MerchantMove:
        """Move the merchant of the world."""
        operation = MoveMerchant(merchant_id=self.world.merchant_id, to=to)
        return await (service or self.world.service).run_operation(operation, ACTOR)

    async def create(self, request: CreatePaymentRequest, service: Service | None = None) -> Any:
        """Create as one of the processes would."""
        return await (service or self.world.service).payment_creator.create(request)

    async def count(self, cell: int) -> int:
        """Count the payments of a cell."""
        row = await self.world.service.cells.at(cell).row("SELECT count(*) AS n FROM payment")
        return row["n"] if row else 0


@pytest.fixture
async def moving(
    world: World, databases: Databases, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Moving]:
    """An installation whose merchant is in cell 0."""
    monkeypatch.setattr(copying, "wait_until_copied", wait_for_nobody)
    urls = {number: databases.take() for number in (1, 2)}
    proxies = {0: DatabaseProxy(world.service.settings.database_url)}
    proxies |= {number: DatabaseProxy(url) for number, url in urls.items()}
    for proxy in proxies.values():
        await proxy.start()
    settings = world.service.settings.model_copy(
        update={"database_url": proxies[0].url, "database_direct_url": None}
    )
    settings = with_cells(settings, {number: proxies[number].url for number in urls})
    first = await open_service(settings, {"fake": world.gateway})
    for number in urls:
        added = await first.run_operation(AddCell(number=number), ACTOR)
        assert added.state == "adding"
    await first.close()
    service = await open_service(settings, {"fake": world.gateway})
    kept = settings.model_copy(update={"api_key_cache_s": 3600})
    stale = await open_service(kept, {"fake": world.gateway})
    yield Moving(replace(world, service=service), stale, proxies)
    await stale.close()
    await service.close()
    for proxy in proxies.values():
        await proxy.stop()
    for url in urls.values():
        databases.give_back(url)


async def _until(holds: Callable[[], Any]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not await holds():
            await asyncio.sleep(0.01)


async def test_new_payments_go_to_the_new_cell_and_open_ones_stay(moving: Moving) -> None:
    world = moving.world
    before = await world.create()
    moved = await moving.move(1)
    assert (moved.former_cell, moved.cell, moved.begun) == (0, 1, True)
    after = await world.create()
    assert [ids.cell_of_timed(payment.id) for payment in (before, after)] == [0, 1]
    lookup = world.service.payment_lookup
    for payment in (before, after):
        assert (await lookup.get_merchant_payment(world.merchant_id, payment.id)).payment == payment
    again = await moving.move(1)
    assert (again.begun, again.former_cell) == (False, 0)


async def test_a_create_that_the_old_cell_let_through_is_waited_for_and_its_key_counts(
    moving: Moving, monkeypatch: pytest.MonkeyPatch, dialect: str
) -> None:
    replay, asked = create.replay_create, list[object]()

    async def noted(*args: Any) -> Any:
        asked.append(args)
        return await replay(*args)

    monkeypatch.setattr(create, "replay_create", noted)
    world, cells = moving.world, moving.stale.cells
    request = world.request()
    place = await cells.place_of_merchant(world.merchant_id)
    control = cells.control
    new = NewPayment(
        control.id_generator.new_id(), control.id_generator.new_checkout_id(), request, place
    )
    async with control.transaction() as tx:
        if dialect == "in steps":
            assert await new_payments_in_steps.create(tx, new)
        else:
            assert await new_payments.create(tx, new)
        move = asyncio.create_task(moving.move(1))

        async def waits() -> bool:
            row = await world.service.database.row(
                "SELECT count(*) AS n FROM pg_locks WHERE locktype = 'advisory' AND NOT granted "
                "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
            )
            return bool(row and row["n"])

        await _until(waits)
        retry = asyncio.create_task(moving.create(request))
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.shield(retry), 0.2)
        assert not move.done()
        assert not asked, "what is not there yet may still come"
        assert await moving.count(1) == 0
    assert (await move).begun
    found = await retry
    assert (found.payment.id, found.replayed) == (new.id, True)
    assert await moving.count(1) == 0


@pytest.mark.usefixtures("dialect")
async def test_processes_with_old_maps_create_nothing_in_a_closed_place(moving: Moving) -> None:
    world = moving.world
    made, stop = [], asyncio.Event()

    async def creates(service: Service) -> None:
        while not stop.is_set():
            created = await moving.create(world.request(key=uuid4()), service)
            made.append(created.payment)
            await asyncio.sleep(0)

    for service in (world.service, moving.stale):  # both know the merchant in cell 0
        await moving.create(world.request(key=uuid4()), service)
    running = [
        asyncio.create_task(creates(service))
        for service in (world.service, moving.stale)
        for _ in range(4)
    ]
    for to in (1, 2, 0):
        seen = len(made)
        await _until(lambda seen=seen: _more(made, seen + 20))
        await moving.move(to)
    seen = len(made)
    await _until(lambda: _more(made, seen + 20))
    stop.set()
    await asyncio.gather(*running)
    assert len({payment.id for payment in made}) == len(made)
    assert {ids.cell_of_timed(payment.id) for payment in made} == {0, 1, 2}
    assert sum([await moving.count(cell) for cell in (0, 1, 2)]) == len(made) + 2
    places = await merchant_cells.list_places(world.service.database, world.merchant_id)
    for payment in made:
        cell = ids.cell_of_timed(payment.id)
        assert any(
            place.cell == cell
            and place.opened_at is not None
            and place.since <= payment.created_at
            and (place.until is None or payment.created_at <= later.opened_at)
            for place, later in zip(places, [*places[1:], places[-1]], strict=True)
        ), f"{payment.created_at} in cell {cell}: {places}"


async def _more(made: list[Any], than: int) -> bool:
    return len(made) >= than


@pytest.mark.usefixtures("dialect")
async def test_a_key_of_the_former_cell_gives_its_payment_and_never_a_second_one(
    moving: Moving,
) -> None:
    world = moving.world
    request = world.request()
    first = await moving.create(request)
    await moving.move(1)
    again = await moving.create(request)
    assert (again.payment, again.replayed) == (first.payment, True)
    await moving.move(2)
    assert (await moving.create(request)).payment == first.payment
    await moving.proxies[1].stop()
    with pytest.raises(StorageUnavailableError):  # whether it has the key nobody can say
        await moving.create(world.request(key=uuid4()))
    await moving.proxies[1].start()
    await until_it_answers(world.service.cells.at(1))
    assert await moving.count(1) == await moving.count(2) == 0


@pytest.mark.usefixtures("dialect")
async def test_a_map_of_two_moves_ago_is_of_another_place_though_of_the_same_cell(
    moving: Moving,
) -> None:
    world = moving.world
    await moving.move(1)
    await moving.move(0)
    await moving.create(world.request(key=uuid4()), moving.stale)  # it would ask cell 1 alone
    await moving.move(2)
    request = world.request(key=uuid4())
    there = await moving.create(request)
    await moving.move(0)
    again = await moving.create(request, moving.stale)
    assert (again.payment, again.replayed) == (there.payment, True)


@pytest.mark.usefixtures("dialect")
async def test_a_denial_takes_no_key_in_a_closed_place(moving: Moving) -> None:
    world = moving.world
    rule = AddFraudRule(
        kind=FraudRuleKind.PAYER, value="buyer-2", code="NO", level=RiskLevel.CRITICAL, score=100
    )
    await world.perform(rule)
    request = world.request(payer_uid="buyer-2")
    await moving.stale.cells.place_of_merchant(world.merchant_id)
    await moving.move(1)
    with pytest.raises(RefusedError, match="being moved"):
        await moving.stale.fraud_screening.create_payment(request)
    with pytest.raises(FraudDeniedError):
        await moving.stale.fraud_screening.create_payment(request)
    for cell, keys in ((0, 0), (1, 1)):
        rows = await world.service.cells.at(cell).fetch("SELECT key FROM idempotency")
        assert len(rows) == keys


async def test_a_process_that_finds_a_new_cell_while_it_begins_does_not_start(
    moving: Moving,
) -> None:
    begun = ProcessNote(Cells(moving.world.service.database), "payintent-api")
    with pytest.raises(DatabaseRefusedError, match="cell 1 was added while this process began"):
        await begun.begin()
    await begun.flush()


@pytest.mark.parametrize("step", ["wait_for_creates", "open_places", "the copy"])
async def test_a_move_that_was_killed_is_ended_by_running_it_again_or_by_any_api_process(
    moving: Moving, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    world = moving.world
    await moving.create(world.request(key=uuid4()), moving.stale)

    def killed(*_: object) -> None:
        raise asyncio.CancelledError

    with monkeypatch.context() as patch:
        if step == "the copy":
            patch.setattr(merchant_moves, "CellCopier", killed)
        else:
            patch.setattr(merchant_cells, step, killed)
        with pytest.raises(asyncio.CancelledError):
            await moving.move(1)
    monkeypatch.setattr(create, "_MOVE_WAIT_S", 0.1)
    for service in (world.service, moving.stale):
        with pytest.raises(RefusedError) as refused:
            await moving.create(world.request(key=uuid4()), service)
        assert (refused.value.code, refused.value.retry_after_s) == (
            ErrorCode.SERVICE_UNAVAILABLE,
            1,
        )
    assert await moving.count(1) == 0
    if step == "open_places":
        assert not (await moving.move(1)).begun
    else:
        await MoveEnder(moving.stale.cells).step()
        if step == "the copy":
            await merchant_moves.end_move(moving.stale.cells, [world.merchant_id], 1)
    monkeypatch.undo()
    created = await moving.create(world.request(key=uuid4()), moving.stale)
    assert ids.cell_of_timed(created.payment.id) == 1


async def test_who_was_slow_does_not_open_the_place_of_a_later_move_into_the_same_cell(
    moving: Moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    merchant_id = moving.world.merchant_id
    waits, is_slow, goes_on = merchant_cells.wait_for_creates, asyncio.Event(), asyncio.Event()

    async def killed(*_: object) -> None:
        raise asyncio.CancelledError

    async def slow(*args: Any) -> None:
        await waits(*args)
        is_slow.set()
        await goes_on.wait()

    async def begin(to: int) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(merchant_moves, "end_move", killed)
            with pytest.raises(asyncio.CancelledError):
                await moving.move(to)

    await begin(1)
    with monkeypatch.context() as patch:
        patch.setattr(merchant_cells, "wait_for_creates", slow)
        ending = asyncio.create_task(merchant_moves.end_move(moving.stale.cells, [merchant_id], 1))
        await is_slow.wait()
    held = moving.stale.cells.control
    monkeypatch.setattr(merchant_moves, "_wait_for_copy", _nothing)
    places = await merchant_cells.list_places(held, merchant_id)
    await merchant_cells.open_places(held, {merchant_id: places[-1].since})
    async with held.transaction() as tx:
        for to in (0, 1):  # what another process does meanwhile, but for its end
            await merchant_cells.begin_move(tx, merchant_id, to)
            latest = (await merchant_cells.list_places(tx, merchant_id))[-1]
            if to == 0:
                await merchant_cells.open_places(tx, {merchant_id: latest.since})
    goes_on.set()
    await ending
    [place] = await merchant_cells.find_places(held, [merchant_id])
    assert (place.cell, place.is_open) == (1, False)


async def _nothing(*_: object) -> None:
    pass


async def test_a_move_that_another_process_ends_meanwhile_has_ended(
    moving: Moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    await moving.move(1)
    copier, ended = merchant_moves.CellCopier, list[int]()

    class Overtaken(copier):  # type: ignore[misc, valid-type]
        async def step(self) -> None:
            if not ended:
                ended.append(1)
                await merchant_moves.end_move(moving.stale.cells, [moving.world.merchant_id], 2)
            await super().step()

    monkeypatch.setattr(merchant_moves, "CellCopier", Overtaken)
    monkeypatch.setattr(merchant_moves, "_COPY_S", 3.0)
    assert (await moving.move(2)).begun
    created = await moving.create(moving.world.request())
    assert ids.cell_of_timed(created.payment.id) == 2


async def test_a_denial_takes_no_key_that_a_create_took_before_the_move(
    moving: Moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, screening = moving.world, moving.world.service.fraud_screening
    rule = AddFraudRule(
        kind=FraudRuleKind.PAYER, value="buyer-2", code="NO", level=RiskLevel.CRITICAL, score=100
    )
    await world.perform(rule)
    request = world.request(payer_uid="buyer-2")
    find, made = create.PaymentCreator.find, list[Any]()

    async def then_moved(self: Any, *args: Any) -> Any:
        found = await find(self, *args)
        if not made:
            made.append(None)  # another process does not know the rule yet
            made.append(await moving.create(request, moving.stale))
            await moving.move(1)
        return found

    monkeypatch.setattr(create.PaymentCreator, "find", then_moved)
    with pytest.raises(RefusedError, match="being moved"):
        await screening.create_payment(request)
    again = await screening.create_payment(request)
    assert (again.payment, again.replayed) == (made[1].payment, True)
    assert await moving.world.service.cells.at(1).fetch("SELECT key FROM idempotency") == []


async def test_of_two_movers_one_begins_and_another_place_is_refused_meanwhile(
    moving: Moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    moves = await asyncio.gather(moving.move(1), moving.move(1, moving.stale))
    assert sorted(move.begun for move in moves) == [False, True]

    async def killed(*_: object) -> None:
        raise asyncio.CancelledError

    with monkeypatch.context() as patch:
        patch.setattr(merchant_cells, "wait_for_creates", killed)
        with pytest.raises(asyncio.CancelledError):
            await moving.move(2)
    with pytest.raises(RefusedError, match="being moved to cell 2"):
        await moving.move(0)
    await moving.move(2)
    assert (await moving.move(0)).former_cell == 2


async def test_a_cell_that_is_away_is_moved_neither_from_nor_to(moving: Moving) -> None:
    await moving.move(1)
    await moving.proxies[1].stop()
    with pytest.raises(RefusedError, match="cell 1 does not answer"):
        await moving.move(2)
    await moving.proxies[1].start()
    await until_it_answers(moving.world.service.cells.at(1))
    await moving.proxies[2].stop()
    with pytest.raises(RefusedError, match="cell 2 does not answer"):
        await moving.move(2)
    await moving.world.create()
    assert await moving.count(1) == 1


async def test_nobody_is_placed_in_a_cell_that_a_process_lacks_or_that_drains(
    moving: Moving,
) -> None:
    service = moving.world.service
    old = ProcessNote(Cells(service.database), "payintent-worker")
    await old.step()
    with pytest.raises(RefusedError, match=r"not open in every process.*payintent-worker"):
        await moving.move(1)
    await old.flush()
    for number in (1, 2):
        await service.run_operation(DrainCell(number=number), ACTOR)
    with pytest.raises(RefusedError, match="cell 1 is draining"):
        await moving.move(1)
    await service.run_operation(DrainCell(number=1, undo=True), ACTOR)
    assert (await moving.move(1)).begun


async def test_the_test_side_moves_with_its_merchant_and_a_later_one_is_beside_it(
    moving: Moving,
) -> None:
    world, context = moving.world, moving.world.service.operation_context
    other = (await world.other_merchant()).merchant.id
    async with world.service.database.transaction() as tx:
        side = (await ensure_test_side(context, tx, world.merchant_id)).merchant_id
    move = await world.perform(MoveMerchant(merchant_id=side, to=1))
    assert (move.merchant_id, move.test_side) == (world.merchant_id, side)
    await world.perform(MoveMerchant(merchant_id=other, to=1))
    async with world.service.database.transaction() as tx:
        later = (await ensure_test_side(context, tx, other)).merchant_id
    find = merchant_cells.find_places
    places = await find(world.service.database, [world.merchant_id, side, other, later])
    assert [(place.cell, place.is_open) for place in places] == [(1, True)] * 4
