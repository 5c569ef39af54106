"""A world over two cells on two databases, with a proxy before each."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from uuid import uuid4

import asyncpg

from payintent.domain.gateway import Gateway, VerifiedCallback
from payintent.domain.payment import Payment
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


class TwoCells:
    """A world whose merchant is in cell 1, with a proxy before each database."""

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


@asynccontextmanager
async def two_cells(
    world: World,
    databases: Databases,
    gateways: Mapping[str, Gateway] | None = None,
    **changes: Any,
) -> AsyncIterator[TwoCells]:
    """Place the merchant of the tests in cell 1; cell 0 has whatever else there is."""
    control_url, cell_url = world.service.settings.database_url, databases.take(WORLD_TEMPLATE)
    await add_cell(control_url, cell_url, 1)
    await place_merchant(control_url, world.merchant_id, 1)
    proxies = {0: DatabaseProxy(control_url), 1: DatabaseProxy(cell_url)}
    for proxy in proxies.values():
        await proxy.start()
    changes |= {"database_url": proxies[0].url}
    settings = with_cells(world.service.settings.model_copy(update=changes), {1: proxies[1].url})
    service = await open_service(settings, {"fake": world.gateway} | dict(gateways or {}))
    await copy_tables(service.cells)
    yield TwoCells(replace(world, service=service), proxies)
    await service.close()
    for proxy in proxies.values():
        await proxy.stop()
    databases.give_back(cell_url)
