"""A world over two cells, or more, on as many databases, with a proxy before each."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from payintent.domain.gateway import Gateway, VerifiedCallback
from payintent.domain.payment import Payment
from payintent.operations import copy_tables as copying
from payintent.operations.merchant_moves import MoveMerchant
from payintent.payments.receive_callback import CallbackResult
from payintent.service import open_service
from payintent.storage.table_homes import TABLE_HOMES, TableHome
from tests.support.cells import (
    add_cell,
    copy_tables,
    place_merchant,
    until_it_answers,
    with_cells,
)
from tests.support.database_proxy import DatabaseProxy
from tests.support.databases import WORLD_TEMPLATE, Databases
from tests.support.fakes import captured
from tests.support.world import World

_CELL_TABLES = [name for name, home in TABLE_HOMES.items() if home is TableHome.CELL]
_FIGURES = {"figure_mark"}  # has one row from the start


class SeveralCells:
    """A world over cells, with a proxy before each database."""

    def __init__(self, world: World, proxies: dict[int, DatabaseProxy]) -> None:
        self.world = world
        self.proxies = proxies
        self._frozen: set[int] = set()

    async def count(self, cell: int) -> dict[str, int]:
        """Count the rows of each table of payments that has any."""
        database = self.world.service.cells.at(cell)
        found: dict[str, int] = {}
        for table in set(_CELL_TABLES) - _FIGURES:
            row = await database.row(f"SELECT count(*) AS n FROM {table}")  # type: ignore[arg-type]
            if row and row["n"]:
                found[table] = row["n"]
        return found

    async def away(self, cell: int, *, frozen: bool = False) -> None:
        """Let the database of a cell be gone, or let it answer nothing any more."""
        if frozen:
            self.proxies[cell].freeze()
            self._frozen.add(cell)
        else:
            await self.proxies[cell].stop()

    async def back(self, cell: int) -> None:
        """Let the database of a cell be there again, as it was."""
        proxy = self.proxies[cell]
        if cell in self._frozen:
            proxy.thaw()
        else:
            await proxy.start()
        await until_it_answers(self.world.service.cells.at(cell))

    async def direct(self, cell: int) -> asyncpg.Connection:
        """Connect to the database of a cell past its proxy."""
        return await asyncpg.connect(self.proxies[cell].target_url)

    async def move(self, to: int, merchant_id: int | None = None) -> None:
        """Let the world's merchant, or another one, have its new payments in another cell."""
        merchant_id = merchant_id or self.world.merchant_id
        await self.world.perform(MoveMerchant(merchant_id=merchant_id, to=to))

    async def run(self, cell: int, statement: str) -> None:
        """Do something in a cell that no process of ours may."""
        connection = await self.direct(cell)
        await connection.execute(f"SET session_replication_role = replica; {statement}")
        await connection.close()

    async def pay(self, merchant_id: int) -> Payment:
        """Let a buyer pay 1590.00 THB to a merchant, by the first of its methods."""
        [method] = await self.world.service.cells.control.fetch(
            "SELECT id FROM payment_method WHERE merchant_id = $1 ORDER BY position LIMIT 1",
            merchant_id,
        )
        payment = await self.world.create(merchant_id=merchant_id)
        session = (await self.world.select(payment, method["id"])).session
        report = captured(159000, reference=f"cap-{payment.id}")
        assert (await self.tell(session_id=session.id, report=report)).payment_id == payment.id
        return payment

    async def tell(self, **fields: Any) -> CallbackResult:
        """Let a callback come in."""
        callback = VerifiedCallback(id=uuid4().hex, **fields)
        receiver = self.world.service.callback_receiver
        return await receiver.receive(self.world.account_id, callback, b"raw body")


TwoCells = SeveralCells


async def wait_for_nobody(*_: object, **__: object) -> list[int]:
    """Wait for no copies: where nobody copies, operations would wait in vain."""
    return []


@asynccontextmanager
async def several_cells(
    world: World,
    databases: Databases,
    others: Sequence[int] = (1, 2),
    gateways: Mapping[str, Gateway] | None = None,
    *,
    placed: int | None = None,
    awaits_copies: bool = False,
    **changes: Any,
) -> AsyncIterator[SeveralCells]:
    """Add cells beside cell 0, which has whatever there is, and place the merchant of the tests.

    Nobody copies but moves and the test itself. So an operation waits for copies, some seconds and
    in vain, only where the test wants to see that.
    """
    control_url = world.service.settings.database_url
    urls = {number: databases.take(WORLD_TEMPLATE) for number in others}
    for number, url in urls.items():
        await add_cell(control_url, url, number)
    if placed is not None:
        await place_merchant(control_url, world.merchant_id, placed)
    proxies = {number: DatabaseProxy(url) for number, url in ({0: control_url} | urls).items()}
    for proxy in proxies.values():
        await proxy.start()
    changes |= {"database_url": proxies[0].url}
    settings = with_cells(
        world.service.settings.model_copy(update=changes),
        {number: proxies[number].url for number in others},
    )
    service = await open_service(settings, {"fake": world.gateway} | dict(gateways or {}))
    await copy_tables(service.cells)
    with pytest.MonkeyPatch.context() as patch:
        if not awaits_copies:
            patch.setattr(copying, "wait_until_copied", wait_for_nobody)
        yield SeveralCells(replace(world, service=service), proxies)
    await service.close()
    for proxy in proxies.values():
        await proxy.stop()
    for url in urls.values():
        databases.give_back(url)


@asynccontextmanager
async def two_cells(
    world: World,
    databases: Databases,
    gateways: Mapping[str, Gateway] | None = None,
    **changes: Any,
) -> AsyncIterator[TwoCells]:
    """Place the merchant of the tests in cell 1; cell 0 has whatever else there is."""
    async with several_cells(world, databases, (1,), gateways, placed=1, **changes) as two:
        yield two
