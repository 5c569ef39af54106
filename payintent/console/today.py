"""The first page: what came in, what ended how, and what waits; live where scripts run."""

import asyncio
from collections.abc import AsyncGenerator
from functools import lru_cache

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from payintent.api.event_stream import HEADERS as STREAM_HEADERS
from payintent.api.event_stream import HEARTBEAT_S, KEEP_ALIVE, RETRY, STREAM_S, encode_event
from payintent.console.access import signed_in
from payintent.console.context import ConsoleContext, get_console_context
from payintent.console.rendering import HEADERS, render, render_part
from payintent.console.today_figures import figure_fields
from payintent.domain.errors import LockTimeoutError, StorageUnavailableError
from payintent.log import get_logger
from payintent.payments.overview_cache import Figures, Period
from payintent.web.compression import html_response

_log = get_logger("events")
_LOOK_EVERY_S = 1.0
_RELOAD_S = 30


async def get_today(request: Request) -> Response:
    """`GET /`: the figures of a period, `?period=24h`, `7d` or `30d`.

    `?reload=30` has the browser load the page again by itself, for those without scripts.
    """
    await signed_in(request)
    figures = await get_console_context(request).overview.get()
    period = _period(request)
    response = render(
        request,
        "today.html",
        period=period,
        periods=tuple(Period),
        reloads=request.query_params.get("reload") == str(_RELOAD_S),
        **figure_fields(figures, period),
    )
    if request.query_params.get("reload") == str(_RELOAD_S):
        response.headers["Refresh"] = str(_RELOAD_S)
    return response


async def get_today_figures(request: Request) -> Response:
    """`GET /today/figures`: the figures alone, for browsers whose stream is cut off."""
    await signed_in(request)
    figures = await get_console_context(request).overview.get()
    return html_response(request, figures_html(figures, _period(request)), HEADERS)


async def get_today_events(request: Request) -> Response:
    """`GET /today/events`: the figures, now and whenever they change; ends after five minutes.

    The browser then connects again, and is asked for its session again.
    """
    await signed_in(request)
    events = _events(get_console_context(request), _period(request))
    return StreamingResponse(events, 200, {**HEADERS, **STREAM_HEADERS})


async def _events(context: ConsoleContext, period: Period) -> AsyncGenerator[bytes]:
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
        await asyncio.sleep(_LOOK_EVERY_S)


@lru_cache(maxsize=len(Period))
def figures_html(figures: Figures, period: Period) -> str:
    """Render the figures, once for all who look at the same period."""
    return render_part("today_figures.html", **figure_fields(figures, period))


def _period(request: Request) -> Period:
    try:
        return Period(request.query_params.get("period", ""))
    except ValueError:
        return Period.DAY
