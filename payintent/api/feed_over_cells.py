"""The feed of a merchant that has had its payments in several cells, one after the other.

Each cell numbers its own events, so a place in the feed is one place for each of these cells. A
cell that is away keeps its place: its events come later, and none is lost.
"""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from payintent.domain.errors import ErrorCode, RefusedError, StorageUnavailableError
from payintent.storage import event_feed
from payintent.storage.cells import Cells
from payintent.storage.database import Database
from payintent.storage.event_feed import FEED_START, FeedEvent, FeedPage, FeedPosition
from payintent.storage.merge_lists import ask_cells

#: The place in each cell; a cell that is not there is read from its start.
FeedPlaces = Mapping[int, FeedPosition]


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedPart:
    """Events of a feed, and the places up to which all were looked at."""

    events: Sequence[FeedEvent]
    places: FeedPlaces
    has_more: bool


async def read_feed(
    cells: Cells,
    merchant_id: int,
    after: FeedPlaces | FeedPosition | None,
    types: Sequence[str],
    limit: int,
) -> FeedPart:
    """Read the events behind a place, or those of the last 30 days, of all cells of a merchant.

    A place of a feed of one cell is in the cell that its event's id names. Raises `BAD_REQUEST`
    where a feed has another event, or none, at that place: a database was restored to a time
    before it was read.
    """
    numbers = await cells.numbers_of_merchant(merchant_id)
    if isinstance(after, FeedPosition):
        only = len(numbers) == 1
        after = {numbers[0] if only else cells.number_of(after.event_id): after}
    places = after

    async def read_cell(cell: int) -> tuple[FeedPosition, FeedPage]:
        place = None if places is None else places.get(cell, FEED_START)
        return await _read_cell(cells.at(cell), merchant_id, place, types, limit)

    parts, away = await ask_cells({cell: cell for cell in numbers}, read_cell)
    if away and places is None:
        raise StorageUnavailableError(f"cell {away[0]} does not answer: its start is not known")
    if len(numbers) == 1:
        [(cell, (_, page))] = parts.items()
        # A process that does not know of a move yet keeps the places that another one gave.
        kept = {**(places or {}), cell: page.position}
        return FeedPart(events=page.events, places=kept, has_more=page.has_more)
    return _merge(dict(places or {}), parts, limit)


def _merge(
    places: dict[int, FeedPosition], parts: Mapping[int, tuple[FeedPosition, FeedPage]], limit: int
) -> FeedPart:
    """Take the oldest events; those of each cell stay in its order."""
    pages = ([(event, cell) for event in page.events] for cell, (_, page) in parts.items())
    taken = list(heapq.merge(*pages, key=lambda pair: pair[0].id))[:limit]
    has_more = False
    for cell, (begin, page) in parts.items():
        of_cell = [event for event, its_cell in taken if its_cell == cell]
        if len(of_cell) == len(page.events):
            places[cell] = page.position
            has_more |= page.has_more
            continue
        has_more = True
        last = of_cell[-1] if of_cell else None
        places[cell] = FeedPosition(last.feed_position, last.id) if last else begin
    return FeedPart(events=[event for event, _ in taken], places=places, has_more=has_more)


async def _read_cell(
    database: Database,
    merchant_id: int,
    after: FeedPosition | None,
    types: Sequence[str],
    limit: int,
) -> tuple[FeedPosition, FeedPage]:
    """Read one cell's events behind a place; returns that place too."""
    may_be_more = await event_feed.number_new_events(database, merchant_id)
    if after is None:
        after = await event_feed.first_position(database, merchant_id)
    elif not await event_feed.is_position(database, merchant_id, after):
        raise RefusedError(
            ErrorCode.BAD_REQUEST,
            "after is no place of this feed, which may have been restored: read it without after",
        )
    page = await event_feed.page(database, merchant_id, after, types, limit)
    return after, replace(page, has_more=page.has_more or may_be_more)
