"""The overview of the installation: at most one statement a second, shared by all viewers."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum

from payintent.domain.currencies import minor_decimals
from payintent.domain.money import EXACT
from payintent.storage.database import Executor
from payintent.storage.overview import (
    ChainFigure,
    ConversionFigure,
    HourFigure,
    OutageFigure,
    Overview,
    WaitingFigures,
    read_overview,
)
from payintent.ttl_cache import TtlCache

_KEPT_S = 1.0
_CONVERSION_S = 60.0  # it adds up a month, and moves slowly
_HOUR = timedelta(hours=1)


class Period(StrEnum):
    """How far back figures go, up to now."""

    DAY = "24h"
    WEEK = "7d"
    MONTH = "30d"


#: How many hours one point of a period's chart is about.
HOURS_OF_POINTS: Mapping[Period, int] = {Period.DAY: 1, Period.WEEK: 6, Period.MONTH: 24}
_PERIODS = tuple(Period)


@dataclass(frozen=True, slots=True)
class Amount:
    """How many of something there were, and what they add up to in one currency."""

    count: int = 0
    amount: Decimal = Decimal(0)

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(self.count + other.count, EXACT.add(self.amount, other.amount))


_Hour = dict[tuple[str, str], Amount]  # by kind and currency


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Figures:
    """The figures that were read last; closed hours come from earlier readings."""

    read_at: datetime
    counted_until: datetime
    since: Mapping[Period, datetime]
    hours: Mapping[datetime, _Hour]
    conversion: Sequence[ConversionFigure]
    waiting: WaitingFigures
    outages: Sequence[OutageFigure]
    chains: Sequence[ChainFigure]

    def sums(self, period: Period) -> dict[tuple[str, str], Amount]:
        total: dict[tuple[str, str], Amount] = {}
        for hour, figures in self.hours.items():
            if hour >= self.since[period]:
                for key, figure in figures.items():
                    total[key] = total.get(key, Amount()) + figure
        return total

    def points(self, period: Period) -> list[tuple[datetime, dict[str, int]]]:
        """Count the parts of a period by kind, the oldest first; the last is not over."""
        step = HOURS_OF_POINTS[period] * _HOUR
        begins: list[datetime] = []
        at = self.since[period]
        while at <= self.read_at:
            begins.append(at)
            at += step
        counts: list[dict[str, int]] = [{} for _ in begins]
        for hour, figures in self.hours.items():
            number = (hour - self.since[period]) // step
            if 0 <= number < len(counts):
                for (kind, _), figure in figures.items():
                    counts[number][kind] = counts[number].get(kind, 0) + figure.count
        return list(zip(begins, counts, strict=True))

    def count_of(self, figure: ConversionFigure, period: Period) -> int:
        return figure.counts[_PERIODS.index(period)]


class OverviewCache:
    """The overview in memory, read again in one statement when it is a second old.

    Closed hours are read once, the conversion once a minute.
    """

    def __init__(self, database: Executor, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._database = database
        self._monotonic = monotonic
        self._cache: TtlCache[Figures | None] = TtlCache(self._read, None, _KEPT_S, monotonic)
        self._closed_until: datetime | None = None
        self._conversion_until = 0.0

    async def get(self) -> Figures:
        """Return the figures, a second old at most."""
        figures = await self._cache.get()
        assert figures is not None  # noqa: S101 - `_read` returns them
        return figures

    async def _read(self, previous: Figures | None) -> Figures:
        started_at = self._monotonic()
        with_conversion = previous is None or started_at >= self._conversion_until
        found = await read_overview(
            self._database, self._closed_until, with_conversion=with_conversion
        )
        hours = _merge(previous, found, self._closed_until)
        self._closed_until = found.closed_until
        if with_conversion:
            self._conversion_until = started_at + _CONVERSION_S
        return Figures(
            read_at=found.now,
            counted_until=found.counted_until,
            since=dict(zip(_PERIODS, found.since, strict=True)),
            hours=hours,
            conversion=previous.conversion
            if previous is not None and found.conversion is None
            else found.conversion or (),
            waiting=found.waiting,
            outages=found.outages,
            chains=found.chains,
        )


def _merge(
    previous: Figures | None, found: Overview, closed_until: datetime | None
) -> dict[datetime, _Hour]:
    """Keep the closed hours that are still of a period, and replace all others."""
    hours: dict[datetime, _Hour] = {}
    if previous is not None and closed_until is not None:
        hours = {
            hour: figures
            for hour, figures in previous.hours.items()
            if found.since[-1] <= hour < closed_until
        }
    for figure in found.hours:
        hours.setdefault(figure.hour, {})[figure.kind, figure.currency] = _amount(figure)
    return hours


def _amount(figure: HourFigure) -> Amount:
    amount = Decimal(figure.amount)
    if figure.kind == "DISPUTED":
        amount = amount.scaleb(-minor_decimals(figure.currency), EXACT)
    return Amount(figure.count, amount)
