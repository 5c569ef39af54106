"""Cells beside cell 0, arranged by hand as long as no command adds one."""

import json
from collections.abc import Mapping

import asyncpg
from pydantic import SecretStr

from payintent.config import Settings


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
