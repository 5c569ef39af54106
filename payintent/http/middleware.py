"""Middleware: common response headers (request ID, caching, CORS), metrics and traces."""

import asyncio
import re
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from itertools import count

from prometheus_client import CONTENT_TYPE_LATEST, Histogram
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from payintent.http.application import ROUTE
from payintent.runtime import log, tracing

_SELF = "'self'"
_NONE = "'none'"
#: Scheme, host and port, without characters that could terminate the directive or the header.
_ALLOWED_SOURCE = re.compile(
    r"https?://(?:(?:\*\.)?[0-9A-Za-z.-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?"
)


@dataclass(frozen=True, slots=True)
class ScriptSources:
    scripts: tuple[str, ...] = ()
    frames: tuple[str, ...] = ()
    connections: tuple[str, ...] = ()
    inline_hashes: tuple[str, ...] = ()  # hashes of inline scripts


def content_security_policy(
    *,
    frame_ancestors: Iterable[str] = (),
    form_targets: Iterable[str | None] = (),
    scripts: ScriptSources | None = None,
    styles: Iterable[str] = (),
) -> str:
    """Build a policy that allows these sources and, except for frames, our own origin.

    `scripts` is None for pages without scripts. `styles` are hashes of inline styles. If there are
    any, no other styles are allowed.
    """
    directives = {
        "default-src": _NONE,
        "style-src": " ".join(styles) or _SELF,
        "img-src": f"{_SELF} data:",
        "base-uri": _NONE,
        "frame-ancestors": _join_sources(external=frame_ancestors) or _NONE,
        # Browsers apply this to the form's target and to any redirects that follow.
        "form-action": _join_sources(_SELF, external=form_targets),
    }
    if scripts is not None:
        directives["script-src"] = _join_sources(
            _SELF, *scripts.inline_hashes, external=scripts.scripts
        )
        directives["connect-src"] = _join_sources(_SELF, external=scripts.connections)
        if scripts.frames:
            directives["frame-src"] = _join_sources(external=scripts.frames)
    return "; ".join(f"{name} {sources}" for name, sources in directives.items())


def _join_sources(*own_sources: str, external: Iterable[str | None]) -> str:
    sources = {source for source in external if source and _ALLOWED_SOURCE.fullmatch(source)}
    return " ".join([*own_sources, *sorted(sources)])


REQUEST_DURATION = Histogram(
    "payintent_http_request_seconds",
    "Time from receiving a request's headers to sending the response's headers",
    ["route", "method", "status"],
    buckets=(0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
)
_METHODS = frozenset({"GET", "HEAD", "POST", "PATCH", "PUT", "DELETE", "OPTIONS"})
NO_ROUTE = "none"


class RequestTimes:
    """Records response times. Labels are limited to known routes and methods."""

    def __init__(self) -> None:
        # Cached, because `labels` costs more than `observe`.
        self._series: dict[tuple[str, str, int], Histogram] = {}

    def record(self, scope: Scope, status: int, started_s: float) -> None:
        """Record a response when its headers are sent; `started_s` is monotonic time."""
        key = (scope.get(ROUTE, NO_ROUTE), scope["method"], status)
        series = self._series.get(key)
        if series is None:
            series = self._create_series(*key)
        series.observe(time.monotonic() - started_s)

    def _create_series(self, route: str, method: str, status: int) -> Histogram:
        if method not in _METHODS:  # clients may send arbitrary methods
            return REQUEST_DURATION.labels(route, "other", status)
        series = self._series[route, method, status] = REQUEST_DURATION.labels(
            route, method, status
        )
        return series


def metrics_route(format_metrics: Callable[[], bytes]) -> Route:
    """Return the `GET /metrics` route; `format_metrics` includes the metrics of all processes.

    `format_metrics` runs in a thread, because it can take a tenth of a second.
    """

    async def metrics(_: Request) -> Response:
        body = await asyncio.to_thread(format_metrics)
        return Response(body, 200, {"Content-Type": CONTENT_TYPE_LATEST})

    return Route("/metrics", metrics, methods=["GET"])


_REQUEST_ID = re.compile(rb"[0-9A-Za-z._-]{1,128}", re.ASCII)
#: Responses under these paths must not be cached.
_UNCACHED_PATHS = (
    "/v1/checkout/",
    "/v1/callbacks/",
    "/v1/onchain/",
    "/v1/chains/",
    "/c/",
    "/merchant/",
)
_CORS_PATHS = ("/v1/checkout/", "/v1/onchain/", "/v1/chains/", "/v1/countries")
_PORTAL = "/merchant"
_STATIC_PATHS = ("/c/static/", "/merchant/static/")
_EXTRA_HEADERS = "payintent.extra_headers"  # scope key

# Request IDs consist of this prefix and a counter, so that requests do not use random bytes.
_PROCESS_PREFIX = secrets.token_hex(8).encode()
_REQUEST_NUMBERS = count(1)

#: Responses with status 401 must include a challenge (RFC 9110, 15.5.2).
_CHALLENGE = ((b"www-authenticate", b"Bearer"),)
_NO_STORE = (b"cache-control", b"no-store")
_CORS = (
    (b"access-control-allow-origin", b"*"),
    (b"access-control-expose-headers", b"X-Request-Id, Retry-After"),
)
_PREFLIGHT = (
    *_CORS,
    (b"access-control-allow-methods", b"GET, POST, PATCH"),
    (b"access-control-allow-headers", b"Content-Type, X-Request-Id, Last-Event-ID"),
    (b"access-control-max-age", b"7200"),
)

Header = tuple[bytes, bytes]
#: Records a call, given its scope, status, request ID and start (monotonic time).
RecordCall = Callable[[Scope, int, bytes, float], None]


def add_headers(scope: Scope, headers: Mapping[str, str]) -> None:
    """Set headers on the response to this request, even if it is an error."""
    scope[_EXTRA_HEADERS] = [
        (name.lower().encode(), value.encode()) for name, value in headers.items()
    ]


class CommonHeaders:
    """Adds the common headers and records each request.

    This is plain ASGI for speed, because every request passes through it.
    """

    def __init__(
        self,
        app: ASGIApp,
        record_call: RecordCall | None = None,
        times: RequestTimes | None = None,
    ) -> None:
        self._app = app
        self._record_call = record_call
        self._times = times

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started_s = time.monotonic()
        path: str = scope["path"]
        shared_headers = common_headers(scope)
        request_id = shared_headers[0][1]
        if scope["method"] == "OPTIONS" and path.startswith(_CORS_PATHS):
            await _respond_to_preflight(send, [shared_headers[0], *_PREFLIGHT])
            return

        is_complete, status = False, 0

        async def send_response(message: Message) -> None:
            nonlocal is_complete, status
            if message["type"] == "http.response.start":
                status = message["status"]
                challenge = _CHALLENGE if status == HTTPStatus.UNAUTHORIZED else ()
                extra_headers = (*shared_headers, *challenge, *scope.get(_EXTRA_HEADERS, ()))
                message["headers"] = [*message["headers"], *extra_headers]
                if self._record_call is not None:
                    self._record_call(scope, status, request_id, started_s)
                if self._times is not None:
                    self._times.record(scope, status, started_s)
            is_complete = message["type"] == "http.response.body" and not message.get("more_body")
            await send(message)

        # Each request runs in a task with its own context, so no reset is needed.
        log.request_id.set(request_id.decode())
        tracing.begin_request()
        try:
            await self._app(scope, receive, send_response)
        except Exception:
            # If the response is complete, the exception has already been logged. The server would
            # log it again, including its message, and close the connection.
            if not is_complete:
                raise
        finally:
            if tracing.is_enabled() and self._times is not None:
                _record_span(scope.get(ROUTE, NO_ROUTE), scope["method"], status, started_s)


def _record_span(route: str, method: str, status: int, started_s: float) -> None:
    """Record a span named after the route, because the path may contain a secret."""
    attributes = {"http.request.method": method, "http.route": route}
    tracing.end_request(f"{method} {route}", status, time.monotonic() - started_s, attributes)


def common_headers(scope: Scope) -> list[Header]:
    """Return the common response headers for a request; the first is the request ID."""
    return [(b"x-request-id", _request_id(scope["headers"])), *_path_headers(scope["path"])]


def _request_id(headers: Iterable[Header]) -> bytes:
    for name, value in headers:
        if name == b"x-request-id" and _REQUEST_ID.fullmatch(value):
            return value
    return b"%b%016x" % (_PROCESS_PREFIX, next(_REQUEST_NUMBERS))


def _path_headers(path: str) -> list[Header]:
    headers: list[Header] = []
    is_private = path.startswith(_UNCACHED_PATHS) or path == _PORTAL
    if is_private and not path.startswith(_STATIC_PATHS):
        headers.append(_NO_STORE)
    if path.startswith(_CORS_PATHS):
        headers.extend(_CORS)
    return headers


async def _respond_to_preflight(send: Send, headers: list[Header]) -> None:
    await send({"type": "http.response.start", "status": 204, "headers": headers})
    await send({"type": "http.response.body", "body": b""})
