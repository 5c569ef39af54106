"""Cells: ids lead to the database that has their rows."""

from collections.abc import AsyncIterator
from dataclasses import replace
from uuid import UUID, uuid4

import pytest

from payintent.domain import ids
from payintent.domain.errors import RefusedError
from payintent.domain.payment import PaymentStatus
from payintent.id_generator import IdGenerator, new_pay_uuid
from payintent.payments.create import PaymentCreator
from payintent.payments.lookup import PaymentLookup
from payintent.storage.cells import ByCell, Cells
from payintent.storage.database import Database
from tests.support.cell_schema import OF_CELLS
from tests.support.cells import Alone
from tests.support.databases import WORLD_TEMPLATE, Databases
from tests.support.world import World

pytestmark = OF_CELLS

_THREE = ByCell("zero", {5: "five", 1: "one"})


def test_an_id_leads_to_the_cell_that_it_names() -> None:
    for number, name in ((0, "zero"), (1, "one"), (5, "five")):
        generator = IdGenerator(cell=number)
        session_id = generator.new_session_id()
        assert _THREE.of(generator.new_id()) == name
        assert _THREE.of_session(session_id) == name
        assert _THREE.of_session(new_pay_uuid(session_id)) == name


def test_an_id_that_names_no_cell_or_one_that_is_not_there_leads_to_cell_0() -> None:
    elsewhere = IdGenerator(cell=7)
    old = UUID(int=ids.make_timed_id(1, 5, 0).int & ~(0xF << 76) | 7 << 76)  # a UUIDv7
    assert _THREE.of(old) == "zero"
    assert _THREE.of(elsewhere.new_id()) == "zero"
    assert _THREE.of_session(uuid4()) == "zero"
    assert _THREE.of_session(elsewhere.new_session_id()) == "zero"


def test_what_each_cell_has_is_made_for_each_in_the_order_of_their_numbers() -> None:
    made = _THREE.each(str.upper)
    assert list(made) == ["ZERO", "ONE", "FIVE"]
    assert made.of(IdGenerator(cell=5).new_id()) == "FIVE"


def test_with_one_cell_every_id_leads_to_its_database(world: World) -> None:
    service = world.service
    assert service.cells.control is service.database
    assert list(service.cells) == [service.database]
    for cell in (0, 5):
        generator = IdGenerator(cell=cell)
        assert service.cells.of(generator.new_id()) is service.database
        assert service.cells.of_session(generator.new_session_id()) is service.database
    assert service.id_generator is service.database.id_generator


@pytest.mark.parametrize("number", [-1, 0, ids.CELL_MAX + 1])
def test_no_other_cell_has_a_number_that_no_id_can_name(number: int) -> None:
    with pytest.raises(ValueError, match="beside cell 0"):
        ByCell("zero", {number: "other"})


def test_a_cell_has_one_database_and_the_first_is_cell_0(world: World) -> None:
    settings, first = world.service.settings, world.service.database
    another = Database(settings, id_generator=IdGenerator(cell=1))
    for databases in ((another, first), (first, another, another), (first, first)):
        with pytest.raises(ValueError, match="cell 0 comes first"):
            Cells(*databases)


async def test_the_generator_of_a_guarded_database_is_that_of_its_cell(world: World) -> None:
    async def prove() -> None:
        pass

    database = Database(world.service.settings, id_generator=IdGenerator(cell=3))
    assert database.guarded_by(prove).id_generator is database.id_generator
    await database.close()


async def test_a_transaction_makes_the_ids_of_its_databases_cell(world: World) -> None:
    async def prove() -> None:
        pass

    database = Database(world.service.settings, id_generator=IdGenerator(cell=3))
    for view in (database, database.guarded_by(prove)):
        async with view.transaction() as tx:
            assert ids.cell_of_timed(tx.id_generator.new_id()) == 3
    await database.close()


@pytest.fixture
async def second(world: World, databases: Databases) -> AsyncIterator[World]:
    """Cell 1: another database with the same merchant."""
    url = databases.take(WORLD_TEMPLATE)
    settings = world.service.settings.model_copy(update={"database_url": url})
    database = Database(settings, id_generator=IdGenerator(cell=1))
    creator = PaymentCreator(Alone(database))
    cells = Cells(world.service.database, database)
    changed = {"settings": settings, "database": database, "cells": cells}
    changed["payment_creator"] = creator
    yield replace(world, service=replace(world.service, **changed))
    await creator.close()
    await database.close()
    databases.give_back(url)


async def test_a_payment_is_read_in_the_cell_that_its_id_names(world: World, second: World) -> None:
    payments = [await world.create(), await second.create()]
    lookup = PaymentLookup(Cells(world.service.database, second.service.database))
    for payment in payments:
        found = await lookup.get_merchant_payment(world.merchant_id, payment.id)
        assert found.payment == payment
    await lookup.close()
    with pytest.raises(RefusedError, match="no such payment"):
        await world.service.payment_lookup.get_merchant_payment(world.merchant_id, payments[1].id)


async def test_a_payment_of_a_cell_that_a_reader_finds_elapsed_ends_in_that_cell(
    world: World, second: World
) -> None:
    payment = await second.create()
    await second.move_clock(3_600)
    lookup = PaymentLookup(Cells(world.service.database, second.service.database))
    found = await lookup.get_merchant_payment(world.merchant_id, payment.id)
    assert found.payment.status is PaymentStatus.EXPIRED
    await lookup.close()
    [event] = await second.rows("SELECT id, payment_id FROM event")
    assert (event["payment_id"], ids.cell_of_timed(event["id"])) == (payment.id, 1)
    assert await world.rows("SELECT id FROM event") == []
