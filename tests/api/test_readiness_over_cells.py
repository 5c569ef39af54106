"""`/readyz` of a process with two cells: one that is away takes the process out of no balancer."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from payintent.app import Application
from payintent.domain.errors import PermissionDeniedError
from payintent.storage import migrations_runner
from tests.api.arrange import refusal
from tests.support.cell_schema import OF_CELLS
from tests.support.databases import Databases
from tests.support.patience import until
from tests.support.serving import serving
from tests.support.two_cells import TwoCells, two_cells
from tests.support.world import Answer, Api, World, free_port

pytestmark = OF_CELLS
_AWAY = (503, "SERVICE_UNAVAILABLE")


@dataclass(frozen=True)
class Served:
    """One API process over two cells; the merchant of its tests is in cell 1."""

    two: TwoCells
    app: Application
    api: Api

    async def ready(self) -> Answer:
        return await self.api.send("GET", "/readyz")

    async def forget_migrations(self, cell: int) -> None:
        """Let the database of a cell be one that was not migrated."""
        connection = await self.two.direct(cell)
        await connection.execute("DELETE FROM schema_migration WHERE number > 200")
        await connection.close()


@pytest.fixture
async def served(world: World, databases: Databases) -> AsyncIterator[Served]:
    async with two_cells(world, databases) as two:
        port, service = free_port(), two.world.service
        async with (
            serving(service.settings, service, port) as app,
            Api(f"http://127.0.0.1:{port}", two.world) as api,
        ):
            yield Served(two, app, api)


async def test_with_all_its_cells_a_process_is_ready_and_names_none(served: Served) -> None:
    ready = await served.ready()
    assert (ready.status, ready.json) == (200, {"status": "ok"})


@pytest.mark.parametrize("cell", [0, 1])
async def test_a_process_is_ready_while_one_of_its_cells_answers_and_names_the_other(
    served: Served, cell: int
) -> None:
    await served.two.away(cell)
    ready = await served.ready()
    assert (ready.status, ready.json) == (200, {"status": "ok", "cells_away": [cell]})
    assert (await served.api.create()).status == (201 if cell == 0 else 503)
    await served.two.back(cell)
    assert (await served.ready()).json == {"status": "ok"}


async def test_a_process_none_of_whose_cells_answers_is_not_ready(served: Served) -> None:
    for cell in (0, 1):
        await served.two.away(cell)
    ready = await served.ready()
    assert refusal(ready) == _AWAY
    away = "the database is away"
    assert ready.json["message"] == f"cell 0: {away}; cell 1: {away}"
    await served.two.back(1)
    assert (await served.ready()).json == {"status": "ok", "cells_away": [0]}


async def test_a_cell_that_lacks_a_migration_counts_as_one_that_is_away(served: Served) -> None:
    for cell in (1, 0):
        assert (await served.ready()).status == 200
        await served.forget_migrations(cell)
    ready = await served.ready()
    assert refusal(ready) == _AWAY
    assert "migrations are missing" in ready.json["message"]
    assert (await served.api.send("GET", "/healthz")).status == 200


async def test_a_process_that_is_about_to_end_is_not_ready_whatever_its_cells_say(
    served: Served,
) -> None:
    served.app.draining()
    assert refusal(await served.ready()) == _AWAY


@pytest.mark.parametrize("silent", [0, 1])
async def test_a_silent_cell_is_waited_for_only_until_another_one_is_ready(
    served: Served, silent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pending, asked, thawed = migrations_runner.pending, list[int](), asyncio.Event()
    silent_url = served.two.proxies[silent].url

    async def of_a_frozen_server(url: str) -> list[str]:
        asked.append(int(url != silent_url))
        if url == silent_url:
            await thawed.wait()
        return await pending(url)

    monkeypatch.setattr(migrations_runner, "pending", of_a_frozen_server)
    for _ in range(3):
        ready = await served.ready()
        assert (ready.status, ready.json) == (200, {"status": "ok", "cells_away": [silent]})
    assert asked.count(0) == 1, "a cell is asked again once it has answered"
    assert asked.count(1) == 3
    thawed.set()

    async def is_found() -> bool:
        return (await served.ready()).json == {"status": "ok"}

    await until(is_found, "the cell that was silent is found")


async def test_what_a_cell_refuses_keeps_no_other_one_from_being_ready(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    pending = migrations_runner.pending

    async def without_a_grant(url: str) -> Any:
        if url == served.two.proxies[1].url:
            raise PermissionDeniedError("permission denied for table schema_migration")
        return await pending(url)

    monkeypatch.setattr(migrations_runner, "pending", without_a_grant)
    assert (await served.ready()).json == {"status": "ok", "cells_away": [1]}
