"""The overview of all cells together: each is asked once a second at most, for all who look."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from payintent.domain.errors import LockTimeoutError, StorageUnavailableError
from payintent.payments.overview_cache import Amount, Figures, OverviewCache
from payintent.storage.cells import ByCell
from payintent.storage.merge_lists import ask_cells
from payintent.storage.overview import (
    COUNTED_MAX,
    ConversionFigure,
    OutageFigure,
    WaitingFigures,
    worst_chains,
)
from payintent.storage.replica import ReadDatabase

_RESTS_S = 5.0  # a cell that did not answer is not asked for so long


class OverviewOverCells:
    """The overview of an installation; with one cell it is that of its database."""

    def __init__(
        self,
        readings: ByCell[ReadDatabase],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Keep a cache for each cell."""
        self._caches = readings.each(lambda reading: OverviewCache(reading, monotonic))
        self._monotonic = monotonic
        self._rests_until: dict[int, float] = {}
        self._merged: tuple[Sequence[Figures], tuple[int, ...], Figures] | None = None

    async def get(self) -> Figures:
        """Return the figures of the cells that answer, a second old at most."""
        if not self._caches.are_several:
            return await self._caches.at(0).get()
        found, away = await ask_cells(dict(self._caches.items()), self._ask)
        every = list(found.values())
        # The same object while nothing was read anew: what is drawn of it is kept by it.
        if self._merged is None or not _are_same(self._merged[0], every) or self._merged[1] != away:
            self._merged = every, away, add_figures(every, away)
        return self._merged[2]

    async def _ask(self, cache: OverviewCache) -> Figures:
        cell = next(number for number, each in self._caches.items() if each is cache)
        if self._monotonic() < self._rests_until.get(cell, 0.0):
            raise StorageUnavailableError("it did not answer a moment ago")
        try:
            return await cache.get()
        except (StorageUnavailableError, LockTimeoutError):
            self._rests_until[cell] = self._monotonic() + _RESTS_S
            raise


def add_figures(every: Sequence[Figures], away: tuple[int, ...]) -> Figures:
    """Add up the figures of cells: counts are added, and of times the oldest counts."""
    return replace(
        every[0],
        read_at=max(figures.read_at for figures in every),
        counted_until=min(figures.counted_until for figures in every),
        hours=_add_hours(figures.hours for figures in every),
        conversion=_add_conversion(figure for figures in every for figure in figures.conversion),
        waiting=_add_waiting([figures.waiting for figures in every]),
        outages=_oldest_outages(figure for figures in every for figure in figures.outages),
        chains=worst_chains(figure for figures in every for figure in figures.chains),
        cells_away=away,
    )


def _are_same(before: Sequence[Figures], now: Sequence[Figures]) -> bool:
    return len(before) == len(now) and all(a is b for a, b in zip(before, now, strict=True))


def _add_hours(
    of_cells: Iterable[Mapping[datetime, Mapping[tuple[str, str], Amount]]],
) -> dict[datetime, dict[tuple[str, str], Amount]]:
    total: dict[datetime, dict[tuple[str, str], Amount]] = {}
    for hours in of_cells:
        for hour, figures in hours.items():
            sums = total.setdefault(hour, {})
            for key, amount in figures.items():
                sums[key] = sums.get(key, Amount()) + amount
    return total


def _add_conversion(figures: Iterable[ConversionFigure]) -> list[ConversionFigure]:
    total: dict[tuple[str, str, str], tuple[int, int, int]] = {}
    for figure in figures:
        key = figure.subject, figure.value, figure.kind
        day, week, month = total.get(key, (0, 0, 0))
        more = figure.counts
        total[key] = day + more[0], week + more[1], month + more[2]
    return [
        ConversionFigure(subject=subject, value=value, kind=kind, counts=counts)
        for (subject, value, kind), counts in total.items()
    ]


def _add_waiting(of_cells: Sequence[WaitingFigures]) -> WaitingFigures:
    counts = Counter[str]()
    for waiting in of_cells:
        counts.update(
            cases=waiting.cases,
            approvals=waiting.approvals,
            refund_approvals=waiting.refund_approvals,
            deliveries_waiting=waiting.deliveries_waiting,
            deliveries_late=waiting.deliveries_late,
            deliveries_dead=waiting.deliveries_dead,
        )
    bounded = {name: min(count, COUNTED_MAX) for name, count in counts.items()}
    return WaitingFigures(
        oldest_case_at=_oldest(waiting.oldest_case_at for waiting in of_cells),
        oldest_processing_at=_oldest(waiting.oldest_processing_at for waiting in of_cells),
        **bounded,
    )


def _oldest(times: Iterable[datetime | None]) -> datetime | None:
    return min((at for at in times if at is not None), default=None)


def _oldest_outages(figures: Iterable[OutageFigure]) -> list[OutageFigure]:
    """Keep one outage of each channel: cells notice the same one by themselves."""
    first: dict[tuple[int, str], OutageFigure] = {}
    for figure in sorted(figures, key=lambda each: (each.since, each.account_id, each.channel)):
        first.setdefault((figure.account_id, figure.channel), figure)
    return list(first.values())
