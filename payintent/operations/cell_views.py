"""Cells as operators read them: where each is, whether it answers, how it does."""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from payintent.domain.errors import (
    LockTimeoutError,
    PermissionDeniedError,
    StorageUnavailableError,
)
from payintent.storage import cell_facts
from payintent.storage.cell_facts import CellFacts, CellPlace
from payintent.storage.cells import Cells
from payintent.storage.database import Database
from payintent.storage.database_hosts import name_database

_ANSWER_S = 2.0
_ANSWER_AGAIN_S = 0.25  # of a cell that has been silent already
_NOT_OPEN = "it was added after this process began"
_NO_ADDRESS = "not in the settings of this process"


@dataclass(frozen=True, slots=True, kw_only=True)
class CellView:
    """A cell; what its database says of itself is empty where that does not answer.

    Payments that are open or new are counted up to 10,000.
    """

    number: int
    state: str
    added_at: datetime
    address: str  # hosts, database and schema
    answers: bool
    why: str  # it does not answer; empty where it does
    away_since: datetime | None  # None also where it has never answered this process
    merchants: int  # whose new payments are there
    payments: int | None  # as the server has estimated
    open_payments: int | None
    new_payments: int | None  # in the last minute
    version: str | None  # of PostgreSQL
    database_bytes: int | None
    connections: int | None  # to this database, of everybody
    server_connections: int | None  # to all databases of its server
    connections_max: int | None  # that its server allows
    is_standby: bool | None
    is_read_only: bool | None
    standbys: int | None  # the servers that follow it now
    clock_ahead_ms: int | None  # of this host's clock
    copied_change: int | None  # by control's number; None: nothing was copied, no answer, cell 0
    changes_behind: int | None  # of control's changes; negative: of another history than control's
    copied_at: datetime | None  # when something was copied last
    webhook_due_at: datetime | None  # of the webhook that is due longest
    callback_at: datetime | None  # of the callback that waits longest
    chains: int | None  # that are read for it
    chain: str | None  # the one that needs a look most
    chain_behind: int | None  # blocks that are there and not read
    chain_state: str | None  # watched, not watched or halted


async def read_cell_views(cells: Cells, numbers: Collection[int] | None = None) -> list[CellView]:
    """Look at all cells, or at some, by their numbers; all at once, and for two seconds."""
    places = [
        place
        for place in await cell_facts.list_places(cells.control)
        if numbers is None or place.number in numbers
    ]
    looks = await asyncio.gather(
        *(_look(cells.numbered(place.number), place.now) for place in places)
    )
    return [_view(cells, place, *look) for place, look in zip(places, looks, strict=True)]


def list_away(cells: Cells) -> dict[int, float]:
    """Return for how many seconds each cell that is away has been, as this process knows it.

    Nothing is asked for it. With one cell there is none.
    """
    return {
        number: database.gate.away_s or 0.0
        for number, database in cells.items()
        if database.gate is not None and database.gate.is_away
    }


async def _look(database: Database | None, now: datetime) -> tuple[CellFacts | None, str]:
    """Ask a cell how it does; where it does not answer, say why."""
    if database is None:
        return None, _NOT_OPEN
    is_away = database.gate is not None and database.gate.is_away
    try:
        async with asyncio.timeout(_ANSWER_AGAIN_S if is_away else _ANSWER_S):
            return await cell_facts.read_cell(database, now), ""
    except TimeoutError:
        return None, "no answer in time"
    except (StorageUnavailableError, LockTimeoutError, PermissionDeniedError) as error:
        return None, str(error) or type(error).__name__


def _view(cells: Cells, place: CellPlace, facts: CellFacts | None, why: str) -> CellView:
    copied = facts.copied_change if facts and place.number else None
    return CellView(
        number=place.number,
        state=place.state,
        added_at=place.added_at,
        address=_address(cells, place.number),
        answers=facts is not None,
        why=why,
        away_since=None if facts else _away_since(cells.numbered(place.number), place.now),
        merchants=place.merchants,
        payments=facts and facts.payments,
        open_payments=facts and facts.open_payments,
        new_payments=facts and facts.created,
        version=facts and facts.version,
        database_bytes=facts and facts.database_bytes,
        connections=facts and facts.connections,
        server_connections=facts and facts.server_connections,
        connections_max=facts and facts.connections_max,
        is_standby=facts and facts.is_standby,
        is_read_only=facts and facts.is_read_only,
        standbys=facts and facts.standbys,
        clock_ahead_ms=facts and round(facts.clock_ahead_s * 1000),
        copied_change=copied,
        changes_behind=None if copied is None else place.newest_change - copied,
        copied_at=facts.copied_at if facts and place.number else None,
        webhook_due_at=facts and facts.webhook_due_at,
        callback_at=facts and facts.callback_at,
        chains=facts and facts.chains,
        chain=facts and facts.chain,
        chain_behind=facts and facts.chain_behind,
        chain_state=_chain_state(facts) if facts and facts.chain else None,
    )


def _address(cells: Cells, number: int) -> str:
    database = cells.numbered(number)
    settings = database.settings if database else cells.control.settings.other_cells.get(number)
    return name_database(settings.database_url) if settings else _NO_ADDRESS


def _away_since(database: Database | None, now: datetime) -> datetime | None:
    """Say since when a cell that has answered this process does so no more."""
    gate = database.gate if database else None
    if gate is None or not gate.has_answered or gate.away_s is None:
        return None
    return now - timedelta(seconds=gate.away_s)


def _chain_state(facts: CellFacts) -> str:
    if facts.chain_halted:
        return "halted"
    return "watched" if facts.chain_watched else "not watched"
