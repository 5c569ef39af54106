"""The first page: payments, results and pending work, with live updates if scripts are enabled."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any

from starlette.responses import Response, StreamingResponse

from payintent.console.access import OperatorVisit
from payintent.console.context import ConsoleContext
from payintent.console.rendering import HEADERS, format_age, list_url, render_fragment
from payintent.core.errors import LockTimeoutError, StorageUnavailableError
from payintent.core.money import TENDER, format_amount, get_minor_decimals, group_thousands
from payintent.http import responses
from payintent.http.pages.static_files import html_response
from payintent.overview.cache import HOURS_PER_POINT, Amount, Figures, Period
from payintent.overview.store import COUNT_MAX, ChainFigure
from payintent.runtime.log import get_logger

#: Final payment statuses, in chart order.
FINAL_STATUSES = ("PAID", "FAILED", "EXPIRED", "CANCELLED")
_NONE_SELECTED = "none selected"
_ROWS_MAX = 12  # per table of methods or countries
_MINUTE = timedelta(minutes=1)
_COUNT_AGE_MAX = timedelta(minutes=5)
_PROCESSING_AGE_MAX = timedelta(hours=1)
_POLL_S = 1.0
_RELOAD_S = 30
_log = get_logger("events")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    key: str
    figure: str
    label: str
    href: str
    note: str = ""
    tone: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversionRow:
    name: str
    paid: int
    ended: int
    filters: Mapping[str, str] | None  # for the link; None if no filter selects these payments

    @property
    def share(self) -> str:
        return f"{100 * self.paid / self.ended:.1f} %" if self.ended else "none"


def make_figure_fields(figures: Figures, period: Period) -> dict[str, Any]:
    totals = figures.totals(period)
    counts = {
        kind: _count_total(totals, kind) for kind in (*FINAL_STATUSES, "DELIVERED", "UNDELIVERED")
    }
    return {
        "counted_until": figures.overview.counted_until,
        "is_behind": figures.overview.now - figures.overview.counted_until > _COUNT_AGE_MAX,
        "since": figures.since[period],
        "since_text": format_minute(figures.since[period]),
        "tiles": _make_tiles(figures),
        "money": _group_money_by_currency(totals),
        "format_money": format_money,
        "ends": FINAL_STATUSES,
        "counts": counts,
        "points": figures.data_points(period),
        "hours_of_points": HOURS_PER_POINT[period],
        "by_method": _list_conversion_rows(figures, period, "method"),
        "by_country": _list_conversion_rows(figures, period, "country"),
        "total": _make_conversion_row("all", [{end: counts[end] for end in FINAL_STATUSES}], {}),
        "waiting": figures.overview.waiting,
        "format_capped": format_capped,
        "outages": figures.overview.outages,
        "chains": [
            make_chain_row(chain, figures.overview.now) for chain in figures.overview.chains
        ],
        "list_url": list_url,
        "read_at": figures.overview.now,
        "age": format_approximate_age,
    }


def format_approximate_age(since: datetime, now: datetime) -> str:
    """Format an age, without seconds because they would change with every update."""
    return "< 1 min" if now - since < _MINUTE else format_age(since, now)


def format_minute(moment: datetime) -> str:
    """Format a time in UTC to the minute, for a list filter."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M")


def format_capped(count: int) -> str:
    """Format a count that is capped at `COUNT_MAX`."""
    return f"{COUNT_MAX:,}+" if count >= COUNT_MAX else f"{count:,}"


def make_chain_row(chain: ChainFigure, now: datetime) -> dict[str, Any]:
    state, tone = "watched", "good"
    if chain.halted is not None:
        state, tone = "halted", "bad"
    elif not chain.watched:
        state, tone = "not watched", "bad"
    return {
        "figure": chain,
        "state": state,
        "tone": tone,
        "blocks_behind": None if chain.head is None else max(0, chain.head - chain.block),
        "age": "never" if chain.polled_at is None else format_approximate_age(chain.polled_at, now),
    }


def _make_tiles(figures: Figures) -> list[Tile]:
    pending_work, outage_count = figures.overview.waiting, len(figures.overview.outages)
    dead_count, late_count = pending_work.deliveries_dead, pending_work.deliveries_late
    late_note = f"of {format_capped(pending_work.deliveries_waiting)} pending"
    late_url = list_url("events", state="pending", tried="true")
    return [
        *_make_work_tiles(figures),
        _make_count_tile(
            "dead", dead_count, "dead webhook", list_url("events", state="dead"), "bad"
        ),
        _make_count_tile("late", late_count, "late webhook", late_url, "warn", late_note),
        _make_count_tile("outages", outage_count, "gateway outage", "/gateways", "bad"),
        _make_chain_tile(figures),
    ]


def _make_count_tile(key: str, count: int, noun: str, href: str, tone: str, note: str = "") -> Tile:
    return Tile(
        key=key,
        figure=format_capped(count),
        label=noun if count == 1 else f"{noun}s",
        href=href,
        note=note,
        tone=tone if count else "",
    )


def _make_work_tiles(figures: Figures) -> list[Tile]:
    """Return the tiles for pending operator work and for the oldest processing payment."""
    pending_work, now = figures.overview.waiting, figures.overview.now
    oldest_case_at, oldest_processing_at = (
        pending_work.oldest_case_at,
        pending_work.oldest_processing_at,
    )
    case_note = f"oldest {format_approximate_age(oldest_case_at, now)}" if oldest_case_at else ""
    case_url = list_url("cases", status="OPEN")
    approvals = pending_work.approvals + pending_work.refund_approvals
    approval_note = (
        f"{format_capped(pending_work.refund_approvals)} for refunds" if approvals else ""
    )
    approval_url = list_url("approvals", status="WAITING")
    until = (
        {}
        if oldest_processing_at is None
        else {"until": format_minute(oldest_processing_at + _MINUTE)}
    )
    is_old = oldest_processing_at is not None and now - oldest_processing_at > _PROCESSING_AGE_MAX
    return [
        _make_count_tile("cases", pending_work.cases, "open case", case_url, "warn", case_note),
        _make_count_tile(
            "approvals", approvals, "pending approval", approval_url, "warn", approval_note
        ),
        Tile(
            key="processing",
            figure="none"
            if oldest_processing_at is None
            else format_approximate_age(oldest_processing_at, now),
            label="oldest PROCESSING payment",
            href=list_url("payments", status="PROCESSING", **until),
            tone="warn" if is_old else "",
        ),
    ]


def _make_chain_tile(figures: Figures) -> Tile:
    chains = figures.overview.chains
    unwatched_chains = [chain for chain in chains if chain.halted is not None or not chain.watched]
    halted_count = sum(chain.halted is not None for chain in unwatched_chains)
    return Tile(
        key="chains",
        figure=f"{len(chains) - len(unwatched_chains)} of {len(chains)}",
        label="chains watched",
        note=f"{halted_count} halted" if halted_count else "",
        href="/chains",
        tone="bad" if unwatched_chains else "",
    )


def _group_money_by_currency(totals: dict[tuple[str, str], Amount]) -> dict[str, dict[str, Amount]]:
    kinds = ("PAID", "REFUNDED", "DISPUTED")
    currencies = sorted({currency for kind, currency in totals if kind in kinds})
    return {
        currency: {kind: totals.get((kind, currency), Amount()) for kind in kinds}
        for currency in currencies
    }


def format_money(amount: Decimal, currency: str) -> str:
    """Format an amount with thousands separators, and without trailing zeros for tokens."""
    is_token = currency in TENDER and TENDER[currency].is_crypto
    return group_thousands(format_amount(amount, get_minor_decimals(currency), trim=is_token))


def _count_total(totals: dict[tuple[str, str], Amount], kind: str) -> int:
    return sum(figure.count for (total_kind, _), figure in totals.items() if total_kind == kind)


def _list_conversion_rows(figures: Figures, period: Period, subject: str) -> list[ConversionRow]:
    """Return the methods or countries with the most payments, and a last row for all others."""
    counts: dict[str, dict[str, int]] = {}
    for figure in figures.conversion:
        if figure.subject == subject:
            by_kind = counts.setdefault(figure.value or _NONE_SELECTED, {})
            by_kind[figure.kind] = figures.get_count(figure, period)
    rows = [
        _make_conversion_row(name, [by_kind], _get_row_filters(subject, name))
        for name, by_kind in counts.items()
        if any(by_kind.values())
    ]
    rows.sort(key=lambda row: (-row.ended, row.name))
    if len(rows) <= _ROWS_MAX:
        return rows
    other_counts = [counts[row.name] for row in rows[_ROWS_MAX:]]
    return [*rows[:_ROWS_MAX], _make_conversion_row("all others", other_counts, None)]


def _get_row_filters(subject: str, name: str) -> Mapping[str, str]:
    if name == _NONE_SELECTED:
        return {"unselected": "true"}
    if subject == "country":
        return {"country": name}
    if " on " in name:  # a token on a chain
        token, _, chain = name.partition(" on ")
        return {"token": token, "chain": chain}
    provider, _, kind = name.rpartition(" ")
    return {"provider": provider, "kind": kind}


def _make_conversion_row(
    name: str, counts: Sequence[dict[str, int]], filters: Mapping[str, str] | None
) -> ConversionRow:
    return ConversionRow(
        name=name,
        paid=sum(by_kind.get("PAID", 0) for by_kind in counts),
        ended=sum(sum(by_kind.values()) for by_kind in counts),
        filters=filters,
    )


async def get_today(visit: OperatorVisit) -> Response:
    """`GET /`: figures for `?period=24h`, `7d` or `30d`.

    With `?reload=30`, the page reloads itself in browsers that do not run scripts.
    """
    figures = await visit.context.overview.get()
    period = _read_period(visit)
    reloads = visit.request.query_params.get("reload") == str(_RELOAD_S)
    response = visit.render(
        "today.html",
        period=period,
        periods=tuple(Period),
        reloads=reloads,
        **make_figure_fields(figures, period),
    )
    if reloads:
        response.headers["Refresh"] = str(_RELOAD_S)
    return response


async def get_today_figures(visit: OperatorVisit) -> Response:
    """`GET /today/figures`: only the figures, for browsers that cannot keep a stream open."""
    figures = await visit.context.overview.get()
    return html_response(visit.request, render_figures(figures, _read_period(visit)), HEADERS)


async def get_today_events(visit: OperatorVisit) -> Response:
    """`GET /today/events`: stream the figures, initially and after each change.

    The stream ends after five minutes, so that the reconnecting browser is authenticated again.
    """
    events = _stream_figures(visit.context, _read_period(visit))
    return StreamingResponse(events, 200, {**HEADERS, **responses.STREAM_HEADERS})


async def _stream_figures(context: ConsoleContext, period: Period) -> AsyncGenerator[bytes]:
    yield responses.STREAM_RETRY
    loop = asyncio.get_running_loop()
    ends_at, last_sent_at, last_html = loop.time() + responses.STREAM_S, loop.time(), ""
    while loop.time() < ends_at and not context.change_feed.closing:
        try:
            html = render_figures(await context.overview.get(), period)
        except (StorageUnavailableError, LockTimeoutError) as error:
            _log.warning("stream_ended", why=type(error).__name__)
            return  # the browser reconnects
        if html != last_html:
            yield responses.encode_event("figures", {"html": html})
            last_html, last_sent_at = html, loop.time()
        elif loop.time() - last_sent_at >= responses.HEARTBEAT_S:
            yield responses.STREAM_KEEP_ALIVE
            last_sent_at = loop.time()
        await asyncio.sleep(_POLL_S)


@lru_cache(maxsize=len(Period))
def render_figures(figures: Figures, period: Period) -> str:
    """Render the figures. The result is cached, because all viewers of a period share it."""
    return render_fragment("today_figures.html", **make_figure_fields(figures, period))


def _read_period(visit: OperatorVisit) -> Period:
    try:
        return Period(visit.request.query_params.get("period", ""))
    except ValueError:
        return Period.DAY
