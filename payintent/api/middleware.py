"""Headers of all responses (request id, caching, CORS), and the record of each request."""

import re
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from itertools import count

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from payintent import log, tracing
from payintent.api.application import ROUTE
from payintent.api.request_times import NO_ROUTE, RequestTimes

_SANE_ID = re.compile(rb"[0-9A-Za-z._-]{1,128}", re.ASCII)
#: Responses below these paths must not be cached.
_PRIVATE = ("/v1/checkout/", "/v1/callbacks/", "/v1/onchain/", "/v1/chains/", "/c/", "/merchant/")
_OPEN_TO_BROWSERS = ("/v1/checkout/", "/v1/onchain/", "/v1/chains/", "/v1/countries")
_PORTAL = "/merchant"
_STATIC = ("/c/static/", "/merchant/static/")
_ADDED = "payintent.added_headers"  # key of a request's scope

# A request id is this prefix and a number, so that no request needs random bytes.
_PROCESS = secrets.token_hex(8).encode()
_NUMBERS = count(1)

#: Each response with status 401 must have a challenge (RFC 9110, 15.5.2).
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
#: Records a response by its request's scope, status, request id and start (`time.monotonic`).
RecordCall = Callable[[Scope, int, bytes, float], None]


def add_headers(scope: Scope, headers: Mapping[str, str]) -> None:
    """Set headers of the response to this request, also if it is an error."""
    scope[_ADDED] = [(name.lower().encode(), value.encode()) for name, value in headers.items()]


class CommonHeaders:
    """Wraps an application; pure ASGI, because every request passes through it."""

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
        common = headers_of(scope)
        request_id = common[0][1]
        if scope["method"] == "OPTIONS" and path.startswith(_OPEN_TO_BROWSERS):
            await _answer_preflight(send, [common[0], *_PREFLIGHT])
            return

        is_complete, status = False, 0

        async def send_response(message: Message) -> None:
            nonlocal is_complete, status
            if message["type"] == "http.response.start":
                status = message["status"]
                challenge = _CHALLENGE if status == HTTPStatus.UNAUTHORIZED else ()
                added = (*common, *challenge, *scope.get(_ADDED, ()))
                message["headers"] = [*message["headers"], *added]
                if self._record_call is not None:
                    self._record_call(scope, status, request_id, started_s)
                if self._times is not None:
                    self._times.note(scope, status, started_s)
            is_complete = message["type"] == "http.response.body" and not message.get("more_body")
            await send(message)

        # Each request is a task with a context of its own, so nothing has to be unbound.
        log.request_id.set(request_id.decode())
        tracing.begin_request()
        try:
            await self._app(scope, receive, send_response)
        except Exception:
            # If the response is complete, the exception has been logged. The server would log it
            # again, with its message, and close the connection.
            if not is_complete:
                raise
        finally:
            if tracing.is_on() and self._times is not None:
                _trace(scope.get(ROUTE, NO_ROUTE), scope["method"], status, started_s)


def _trace(route: str, method: str, status: int, started_s: float) -> None:
    """Record a request by its route: its path may contain a capability."""
    facts = {"http.request.method": method, "http.route": route}
    tracing.end_request(f"{method} {route}", status, time.monotonic() - started_s, facts)


def headers_of(scope: Scope) -> list[Header]:
    """Return the headers that every response to a request has; the first is the request id."""
    return [(b"x-request-id", _request_id(scope["headers"])), *_path_headers(scope["path"])]


def _request_id(headers: Iterable[Header]) -> bytes:
    for name, value in headers:
        if name == b"x-request-id" and _SANE_ID.fullmatch(value):
            return value
    return b"%b%016x" % (_PROCESS, next(_NUMBERS))


def _path_headers(path: str) -> list[Header]:
    headers: list[Header] = []
    is_private = path.startswith(_PRIVATE) or path == _PORTAL
    if is_private and not path.startswith(_STATIC):
        headers.append(_NO_STORE)
    if path.startswith(_OPEN_TO_BROWSERS):
        headers.extend(_CORS)
    return headers


async def _answer_preflight(send: Send, headers: list[Header]) -> None:
    await send({"type": "http.response.start", "status": 204, "headers": headers})
    await send({"type": "http.response.body", "body": b""})
