"""The first page: payments, results and pending work, updated live if scripts run."""

import asyncio
from collections.abc import AsyncGenerator
from functools import lru_cache

from starlette.responses import Response, StreamingResponse

from payintent.api.event_stream import HEADERS as STREAM_HEADERS
from payintent.api.event_stream import HEARTBEAT_S, KEEP_ALIVE, RETRY, STREAM_S, encode_event
from payintent.console.access import OperatorVisit
from payintent.console.context import ConsoleContext
from payintent.console.rendering import HEADERS, render_part
from payintent.console.today_figures import figure_fields
from payintent.domain.errors import LockTimeoutError, StorageUnavailableError
from payintent.log import get_logger
from payintent.payments.overview_cache import Figures, Period
from payintent.web.compression import html_response

_log = get_logger("events")
_POLL_S = 1.0
_RELOAD_S = 30


async def get_today(visit: OperatorVisit) -> Response:
    """`GET /`: the figures of a period, `?period=24h`, `7d` or `30d`.

    With `?reload=30` the browser reloads the page automatically, if scripts do not run.
    """
    figures = await visit.context.overview.get()
    period = _period(visit)
    reloads = visit.request.query_params.get("reload") == str(_RELOAD_S)
    response = visit.render(
        "today.html",
        period=period,
        periods=tuple(Period),
        reloads=reloads,
        **figure_fields(figures, period),
    )
    if reloads:
        response.headers["Refresh"] = str(_RELOAD_S)
    return response


async def get_today_figures(visit: OperatorVisit) -> Response:
    """`GET /today/figures`: only the figures, for browsers that cannot hold a stream open."""
    figures = await visit.context.overview.get()
    return html_response(visit.request, figures_html(figures, _period(visit)), HEADERS)


async def get_today_events(visit: OperatorVisit) -> Response:
    """`GET /today/events`: the figures, initially and after each change.

    The stream ends after five minutes. The browser reconnects, which checks the session again.
    """
    events = _stream_figures(visit.context, _period(visit))
    return StreamingResponse(events, 200, {**HEADERS, **STREAM_HEADERS})


async def _stream_figures(context: ConsoleContext, period: Period) -> AsyncGenerator[bytes]:
    yield RETRY
    loop = asyncio.get_running_loop()
    over_at, quiet_since, last = loop.time() + STREAM_S, loop.time(), ""
    while loop.time() < over_at and not context.change_feed.closing:
        try:
            html = figures_html(await context.overview.get(), period)
        except (StorageUnavailableError, LockTimeoutError) as error:
            _log.warning("stream_ended", why=type(error).__name__)
            return  # the browser reconnects
        if html != last:
            yield encode_event("figures", {"html": html})
            last, quiet_since = html, loop.time()
        elif loop.time() - quiet_since >= HEARTBEAT_S:
            yield KEEP_ALIVE
            quiet_since = loop.time()
        await asyncio.sleep(_POLL_S)


@lru_cache(maxsize=len(Period))
def figures_html(figures: Figures, period: Period) -> str:
    """Render the figures, once for all operators who watch the same period."""
    return render_part("today_figures.html", **figure_fields(figures, period))


def _period(visit: OperatorVisit) -> Period:
    try:
        return Period(visit.request.query_params.get("period", ""))
    except ValueError:
        return Period.DAY
