"""Cells beside cell 0, arranged by hand as long as no command adds one."""

import json
from collections.abc import Mapping
from typing import Any

import asyncpg
from pydantic import SecretStr

from payintent.config import Settings
from payintent.storage.cells import ByCell, Cells
from payintent.storage.database import Database


def with_cells(settings: Settings, urls: Mapping[int, str]) -> Settings:
    """Give settings the addresses of other cells."""
    text = json.dumps({str(number): {"url": url} for number, url in urls.items()})
    return settings.model_copy(update={"cells": SecretStr(text)})


async def add_cell(control_url: str, url: str, number: int) -> None:
    """Make a database a cell of control's installation: both know of it then."""
    control, cell = await asyncpg.connect(control_url), await asyncpg.connect(url)
    installation = await control.fetchrow("SELECT id, pepper_mark FROM installation")
    await cell.execute(
        "INSERT INTO installation (id, pepper_mark, cell) VALUES ($1, $2, $3) "
        "ON CONFLICT (only_one) DO UPDATE "
        "SET id = excluded.id, pepper_mark = excluded.pepper_mark, cell = excluded.cell",
        *installation,
        number,
    )
    for connection in (control, cell):
        await connection.execute("INSERT INTO cell (number) VALUES ($1)", number)
        await connection.close()


async def place_merchant(urls: list[str], merchant_id: int, cell: int) -> None:
    """Let a merchant have its new payments in a cell; control and the cells are told of it."""
    for url in urls:
        connection = await asyncpg.connect(url)
        await connection.execute(
            "INSERT INTO merchant_cell (merchant_id, cell) VALUES ($1, $2)", merchant_id, cell
        )
        await connection.close()


async def copy_table(cells: Cells, cell: int, table: str) -> None:
    """Copy what control has of a table, and a cell has not yet."""
    rows: Any = await cells.control.fetch(
        f"SELECT coalesce(json_agg(t), '[]')::text AS rows FROM {table} t"
    )  # type: ignore[arg-type]
    await cells.at(cell).fetch(
        f"INSERT INTO {table} OVERRIDING SYSTEM VALUE "  # type: ignore[arg-type]
        f"SELECT * FROM json_populate_recordset(NULL::{table}, $1::json) ON CONFLICT DO NOTHING",
        rows[0]["rows"],
    )


class Alone(Cells):
    """One database for all that is asked, of whichever cell: for a component by itself."""

    def __init__(self, database: Any) -> None:
        ByCell.__init__(self, database)

    def at(self, cell: int) -> Database:
        del cell
        return self.control
