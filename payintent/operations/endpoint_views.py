"""Endpoints of webhooks as operators read them, over the cells of each merchant."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime

from payintent.storage import endpoint_list
from payintent.storage.cells import ByCell, Cells
from payintent.storage.database import Executor
from payintent.storage.endpoint_list import CellEndpoint, EndpointAnswer, EndpointPlace
from payintent.storage.merge_lists import CellList, ask_cells
from payintent.storage.replica import ReadDatabase

_Source = tuple[Executor, Sequence[int]]  # a cell, and the merchants who have something there


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointView:
    """Where a merchant's webhooks go, what waits for it, and how its last attempts ended."""

    merchant_id: int
    merchant_name: str
    callback_url: str | None
    incomplete: bool  # a cell of the merchant does not answer: what it has is missing
    pending: int  # counted up to 1,000, as `dead` and `skipped` are
    late_s: int | None  # for how long the first of them has been due
    dead: int
    skipped: int
    attempts: int  # of the last 20 events
    delivered: int  # of these attempts
    median_ms: int | None
    p95_ms: int | None  # within which 95 of 100 attempts ended
    slowest_ms: int | None
    open_since: datetime | None  # a worker's circuit breaker is open since; None: closed
    open_until: datetime | None  # the next delivery is tried then
    trips: int  # how often it opened in a row
    open_detail: str | None  # what the attempt that opened it came to
    last_at: datetime | None
    last_outcome: str | None
    last_status: int | None
    last_detail: str | None
    last_answer: str | None
    answers: list[EndpointAnswer]  # the last five, newest first


async def read_endpoint_views(
    cells: Cells, readings: ByCell[ReadDatabase], places: Sequence[EndpointPlace]
) -> CellList[EndpointView]:
    """Read how endpoints do in all cells of their merchants, each cell at once."""
    numbers = dict(
        zip(
            (place.merchant_id for place in places),
            await asyncio.gather(
                *(cells.numbers_of_merchant(place.merchant_id) for place in places)
            ),
            strict=True,
        )
    )
    of_cells = defaultdict[int, list[int]](list)
    for merchant_id, listed in numbers.items():
        for number in listed:
            of_cells[number].append(merchant_id)
    # Cell 0 is always asked: it answers, since it has just said which merchants there are.
    sources: dict[int, _Source] = {0: (readings.at(0), of_cells.pop(0, []))}
    unopened = {number for number in of_cells if readings.numbered(number) is None}
    sources |= {
        number: (readings.at(number), merchant_ids)
        for number, merchant_ids in of_cells.items()
        if number not in unopened
    }
    states, away = await ask_cells(sources, _ask)
    silent = unopened | set(away)
    return CellList(
        (_view(place, numbers[place.merchant_id], states, silent) for place in places),
        sorted(silent),
    )


async def _ask(source: _Source) -> dict[int, CellEndpoint]:
    return await endpoint_list.read_states(*source)


def _view(
    place: EndpointPlace,
    numbers: Sequence[int],
    states: dict[int, dict[int, CellEndpoint]],
    silent: set[int],
) -> EndpointView:
    merchant_id = place.merchant_id
    found = [states[n][merchant_id] for n in numbers if merchant_id in states.get(n, {})]
    state = endpoint_list.add_states(found)
    last = state.answers[0] if state.answers else None
    return EndpointView(
        **asdict(place),
        **{name: getattr(state, name) for name in CellEndpoint.__slots__},
        incomplete=not silent.isdisjoint(numbers),
        last_at=last and last.at,
        last_outcome=last and last.outcome,
        last_status=last and last.status,
        last_detail=last and last.detail,
        last_answer=last and last.answer,
    )
