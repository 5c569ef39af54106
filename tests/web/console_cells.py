"""The console of an installation with three cells, one of which is away."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from unittest.mock import patch

from payintent.domain.operator import Role
from payintent.operations import cell_views
from payintent.operations.copy_tables import open_copiers
from payintent.operations.merchants import SetCallbackUrl
from payintent.payments.cancel import cancel_by_merchant
from payintent.service import open_service
from tests.operations.stage import HOOKS, Stage
from tests.support.cells import add_cell, place_merchant, with_cells
from tests.support.database_proxy import DatabaseProxy
from tests.support.fakes import FakeGateway
from tests.support.patience import until
from tests.support.serving import serving_operator
from tests.support.world import World, make_world
from tests.web.console_gallery import ConsoleGallery
from tests.web.gallery import gallery_settings, own_database

_AWAY = 2


@asynccontextmanager
async def open_cells(server_url: str) -> AsyncIterator[ConsoleGallery]:
    """Serve it to an admin and a viewer, once it has noticed that cell 2 is away."""
    async with (
        own_database(server_url) as url,
        own_database(server_url) as first,
        own_database(server_url) as second,
    ):
        settings = gallery_settings(url, "http://pay.test")
        gateway = FakeGateway()
        service = await open_service(settings, {"fake": gateway})
        world = await make_world(service, gateway)
        for number, cell_url in ((1, first), (_AWAY, second)):
            await add_cell(url, cell_url, number)
        await place_merchant(url, world.merchant_id, 1)
        await service.close()
        proxy = DatabaseProxy(second)
        await proxy.start()
        settings = with_cells(settings, {1: first, _AWAY: proxy.url})
        service = await open_service(settings, {"fake": gateway})
        stage = await _arrange(replace(world, service=service))
        async with serving_operator(settings, service) as base:
            await proxy.stop()
            await until(lambda: cell_views.list_away(service.cells), "it is noticed")
            with patch.object(cell_views, "name_database", _name_as_in_the_docs):
                yield ConsoleGallery(base, stage)
        await service.close()


async def _arrange(world: World) -> Stage:
    """Let cell 1 have payments, one of whose webhooks waits."""
    for copier in open_copiers(world.service.cells):
        await copier.step()
    await world.perform(SetCallbackUrl(merchant_id=world.merchant_id, callback_url=HOOKS))
    for copier in open_copiers(world.service.cells):
        await copier.step()
    for number in range(12):
        payment = await world.create()
        if number == 0:
            async with world.database.transaction() as tx:
                await cancel_by_merchant(tx, payment, None)
    tokens = {
        "Ada": await world.operator_token("Ada"),
        "Vic": await world.operator_token("Vic", Role.VIEWER),
    }
    for copier in open_copiers(world.service.cells):
        await copier.step()
    return Stage(world, world.service, {}, tokens)


def _name_as_in_the_docs(url: str) -> str:
    """Give an address without what is by chance."""
    del url
    return "db-1.example.com:5432, db-2.example.com:5432/payintent"
