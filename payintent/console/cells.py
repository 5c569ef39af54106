"""Cells: the database of each, whether it answers, its size, its load, and how its copies are."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from starlette.requests import Request
from starlette.responses import Response

from payintent.api.context import get_context
from payintent.config import Settings
from payintent.console.access import signed_in
from payintent.console.operations import list_allowed
from payintent.console.rendering import render
from payintent.domain.errors import StorageUnavailableError
from payintent.operations.cells import CellView, ListCells
from payintent.service import Service
from payintent.storage import copied_tables, merchant_cells, payments
from payintent.storage.cell_load import COUNTED_MAX, CellLoad, read_load
from payintent.storage.copied_tables import CopyState
from payintent.storage.database import Database
from payintent.storage.database_hosts import name_database

_ANSWER_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CellPart:
    """What the page shows of one cell; load and copies are None where it does not answer."""

    cell: CellView
    address: str  # of its database, without who signs in there
    merchants: int  # whose new payments are there
    load: CellLoad | None
    copy: CopyState | None
    changes_behind: int | None


async def get_cells(request: Request) -> Response:
    """`GET /cells`: every cell; each is asked at once, and for two seconds."""
    session = await signed_in(request)
    service = get_context(request).service
    cells = await service.run_operation(ListCells(), session.actor)
    merchants = await merchant_cells.count_by_cell(service.database)
    newest, _ = await copied_tables.read_change(service.database)
    now = await payments.now(service.database)
    addresses = list_addresses(service.settings)
    parts = [
        _part(cell, addresses, merchants, newest.number, looked)
        for cell, looked in zip(
            cells, await asyncio.gather(*(_look(service, cell, now) for cell in cells)), strict=True
        )
    ]
    return render(
        request,
        "cells.html",
        parts=parts,
        counted_max=COUNTED_MAX,
        allowed={kind.action for kind in list_allowed(session.actor.role)},
    )


def list_addresses(settings: Settings) -> dict[int, str]:
    """Return where each cell's database is: hosts, name and schema, and no password."""
    of_cells: dict[int, Settings] = {0: settings, **settings.other_cells}
    return {number: name_database(cell.database_url) for number, cell in of_cells.items()}


async def _look(
    service: Service, cell: CellView, now: datetime
) -> tuple[CellLoad, CopyState | None] | None:
    """Ask a cell that answers how it does; None where it has gone away meanwhile."""
    database = service.cells.numbered(cell.number)
    if database is None or not cell.answers:
        return None
    try:
        async with asyncio.timeout(_ANSWER_S):
            return await read_load(database, now), await _read_copy(database)
    except (TimeoutError, StorageUnavailableError):
        return None


async def _read_copy(database: Database) -> CopyState | None:
    return None if database.id_generator.cell == 0 else await copied_tables.read_copy(database)


def _part(
    cell: CellView,
    addresses: Mapping[int, str],
    merchants: Mapping[int, int],
    newest: int,
    looked: tuple[CellLoad, CopyState | None] | None,
) -> CellPart:
    load, copy = looked or (None, None)
    copied = None if copy is None or copy.change is None else copy.change.number
    return CellPart(
        cell=cell,
        address=addresses.get(cell.number, "not in the settings of this process"),
        merchants=merchants.get(cell.number, 0),
        load=load,
        copy=copy,
        changes_behind=None if copied is None else newest - copied,
    )
