"""Cells beside cell 0, arranged by hand as long as no command adds one."""

import json
from collections.abc import Mapping
from typing import Any

import asyncpg
from pydantic import SecretStr

from payintent.config import Settings
from payintent.domain.errors import StorageUnavailableError
from payintent.operations.copy_tables import open_copiers
from payintent.service import open_service
from payintent.storage.cells import ByCell, Cells
from payintent.storage.database import Database
from payintent.storage.migrations_runner import migrate
from tests.support.patience import until

_NEW_CELL = "new_cell"


def with_cells(settings: Settings, urls: Mapping[int, str]) -> Settings:
    """Give settings the addresses of other cells."""
    text = json.dumps({str(number): {"url": url} for number, url in urls.items()})
    return settings.model_copy(update={"cells": SecretStr(text)})


def with_new_cell(settings: Settings, number: int) -> Settings:
    """Give settings also the address of the schema that `make_new_cell` makes."""
    urls = {other: cell.database_url for other, cell in settings.other_cells.items()}
    return with_cells(settings, urls | {number: _new_cell_url(settings)})


def _new_cell_url(settings: Settings) -> str:
    url = settings.database_url
    return f"{url}{'&' if '?' in url else '?'}search_path={_NEW_CELL}"


async def make_new_cell(settings: Settings) -> None:
    """Make a schema that `cell add` takes: an empty database would do as well, and cost more."""
    connection = await asyncpg.connect(settings.database_url)
    await connection.execute(f"CREATE SCHEMA {_NEW_CELL}")
    await connection.close()
    await migrate(_new_cell_url(settings))


async def lose_changes(settings: Settings) -> None:
    """Let the copies of the schema that was made be newer than cell 0, as after its restore."""
    connection = await asyncpg.connect(_new_cell_url(settings))
    await connection.execute(
        "UPDATE configuration_copy "
        "SET number = 1000000, token = gen_random_uuid(), copied_at = clock() + interval '1 day'"
    )
    await connection.close()


async def add_cell(control_url: str, url: str, number: int) -> None:
    """Make a database a cell of control's installation; nothing is copied into it yet."""
    control, cell = await asyncpg.connect(control_url), await asyncpg.connect(url)
    installation = await control.fetchrow("SELECT id, pepper_mark FROM installation")
    await cell.execute(
        "INSERT INTO installation (id, pepper_mark, cell) VALUES ($1, $2, $3) "
        "ON CONFLICT (only_one) DO UPDATE "
        "SET id = excluded.id, pepper_mark = excluded.pepper_mark, cell = excluded.cell",
        *installation,
        number,
    )
    await control.execute("INSERT INTO cell (number) VALUES ($1)", number)
    for connection in (control, cell):
        await connection.close()


async def place_merchant(control_url: str, merchant_id: int, cell: int) -> None:
    """Let a merchant have its new payments in a cell."""
    connection = await asyncpg.connect(control_url)
    await connection.execute(
        "INSERT INTO merchant_cell (merchant_id, cell) VALUES ($1, $2)", merchant_id, cell
    )
    await connection.close()


async def lose_place(settings: Settings, merchant_id: int) -> None:
    """Let cell 1 know that a merchant is in it, and cell 0 not, as after its restore."""
    await place_merchant(settings.database_url, merchant_id, 1)
    service = await open_service(settings, {})
    await copy_tables(service.cells)
    await service.cells.control.fetch("DELETE FROM merchant_cell")
    await service.cells.at(1).fetch(
        "UPDATE configuration_copy SET number = 1000000, token = gen_random_uuid()"
    )
    await service.close()


async def copy_tables(cells: Cells) -> None:
    """Let each other cell have what is set up in control now, or a copier say why it refuses.

    A step leaves it to another copier that is at it, of the application say, which may copy an
    earlier moment.
    """
    for copier in open_copiers(cells):
        await copier.step()
        while not copier._refused and not await copier._is_current():
            await copier.step()


class Alone(Cells):
    """One database for all that is asked, of whichever cell: for a component by itself."""

    def __init__(self, database: Any) -> None:
        ByCell.__init__(self, database)

    def at(self, cell: int) -> Database:
        del cell
        return self.control


async def until_it_answers(database: Database) -> None:
    """Wait until a cell that was away is asked again: it rests a little after a failure."""

    async def answers() -> bool:
        try:
            await database.fetch("SELECT 1")
        except StorageUnavailableError:
            return False
        return True

    await until(answers, f"cell {database.id_generator.cell} answers")
