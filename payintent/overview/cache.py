"""Cache the console's overview, so that all viewers share one query per second."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum

from payintent.core.money import EXACT, get_minor_decimals
from payintent.db.database import Executor
from payintent.overview.store import ConversionFigure, HourFigure, Overview, read_overview
from payintent.runtime.caches import TtlCache

_MAX_AGE_S = 1.0
_CONVERSION_MAX_AGE_S = 60.0  # aggregates a month of figures and changes slowly
_HOUR = timedelta(hours=1)


class Period(StrEnum):
    DAY = "24h"
    WEEK = "7d"
    MONTH = "30d"


#: Hours per data point in each period's chart.
HOURS_PER_POINT: Mapping[Period, int] = {Period.DAY: 1, Period.WEEK: 6, Period.MONTH: 24}
_PERIODS = tuple(Period)


@dataclass(frozen=True, slots=True)
class Amount:
    """The count and total of outcomes in a currency."""

    count: int = 0
    amount: Decimal = Decimal(0)

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(self.count + other.count, EXACT.add(self.amount, other.amount))


_Amounts = dict[tuple[str, str], Amount]  # by kind and currency


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Figures:
    """The figures from the last query, and closed hours from earlier queries."""

    overview: Overview
    since: Mapping[Period, datetime]
    hours: Mapping[datetime, _Amounts]
    conversion: Sequence[ConversionFigure]

    def totals(self, period: Period) -> _Amounts:
        totals: _Amounts = {}
        for hour, amounts in self.hours.items():
            if hour >= self.since[period]:
                for key, amount in amounts.items():
                    totals[key] = totals.get(key, Amount()) + amount
        return totals

    def data_points(self, period: Period) -> list[tuple[datetime, dict[str, int]]]:
        """Return the start time and the counts by kind for each data point, oldest first."""
        step = HOURS_PER_POINT[period] * _HOUR
        starts: list[datetime] = []
        start = self.since[period]
        while start <= self.overview.now:
            starts.append(start)
            start += step
        counts: list[dict[str, int]] = [{} for _ in starts]
        for hour, amounts in self.hours.items():
            index = (hour - self.since[period]) // step
            if 0 <= index < len(counts):
                for (kind, _), amount in amounts.items():
                    counts[index][kind] = counts[index].get(kind, 0) + amount.count
        return list(zip(starts, counts, strict=True))

    def get_count(self, figure: ConversionFigure, period: Period) -> int:
        return figure.counts[_PERIODS.index(period)]


class OverviewCache:
    """Caches the overview for a second, conversion for a minute, and closed hours permanently."""

    def __init__(self, database: Executor, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._database = database
        self._monotonic = monotonic
        self._cache: TtlCache[Figures | None] = TtlCache(self._read, None, _MAX_AGE_S, monotonic)
        self._closed_until: datetime | None = None
        self._conversion_until = 0.0

    async def get(self) -> Figures:
        figures = await self._cache.get()
        assert figures is not None  # noqa: S101 - `_read` never returns None
        return figures

    async def _read(self, previous_figures: Figures | None) -> Figures:
        started_at = self._monotonic()
        with_conversion = previous_figures is None or started_at >= self._conversion_until
        overview = await read_overview(
            self._database, self._closed_until, with_conversion=with_conversion
        )
        conversion: Sequence[ConversionFigure] = overview.conversion or ()
        if overview.conversion is None and previous_figures is not None:
            conversion = previous_figures.conversion
        hours = _merge(previous_figures, overview, self._closed_until)
        self._closed_until = overview.closed_until
        if with_conversion:
            self._conversion_until = started_at + _CONVERSION_MAX_AGE_S
        return Figures(
            overview=overview,
            since=dict(zip(_PERIODS, overview.since, strict=True)),
            hours=hours,
            conversion=conversion,
        )


def _merge(
    previous_figures: Figures | None, overview: Overview, closed_until: datetime | None
) -> dict[datetime, _Amounts]:
    """Combine the new hours with cached closed hours that are still within the longest period."""
    hours: dict[datetime, _Amounts] = {}
    if previous_figures is not None and closed_until is not None:
        hours = {
            hour: amounts
            for hour, amounts in previous_figures.hours.items()
            if overview.since[-1] <= hour < closed_until
        }
    for figure in overview.hours:
        hours.setdefault(figure.hour, {})[figure.kind, figure.currency] = _to_amount(figure)
    return hours


def _to_amount(figure: HourFigure) -> Amount:
    amount = Decimal(figure.amount)
    if figure.kind == "DISPUTED":
        amount = amount.scaleb(-get_minor_decimals(figure.currency), EXACT)
    return Amount(figure.count, amount)
