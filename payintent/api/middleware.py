"""What all answers share: a request id, no caching of capabilities, CORS where it applies."""

import re
import secrets
import time
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from itertools import count

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from payintent import log, tracing
from payintent.api.call_log import CallLog
from payintent.api.request_times import RequestTimes

_SANE_ID = re.compile(rb"[0-9A-Za-z._-]{1,128}", re.ASCII)
#: Answers that no cache may keep.
_PRIVATE = ("/v1/checkout/", "/v1/callbacks/", "/v1/onchain/", "/v1/chains/", "/c/", "/merchant/")
_OPEN_TO_BROWSERS = ("/v1/checkout/", "/v1/onchain/", "/v1/chains/", "/v1/countries")
_PORTAL = "/merchant"
_STATIC = ("/c/static/", "/merchant/static/")
_ADDED = "payintent.added_headers"  # key of a request's scope

_PROCESS = secrets.token_hex(
    8
).encode()  # our ids are this and a number: no random bytes per request
_NUMBERS = count(1)

#: How to authenticate; each answer with status 401 must have it (RFC 9110, 15.5.2).
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


def add_headers(scope: Scope, headers: Mapping[str, str]) -> None:
    """Set headers that the answer to this request carries, whatever the answer will be."""
    scope[_ADDED] = [(name.lower().encode(), value.encode()) for name, value in headers.items()]


class CommonHeaders:
    """Wraps the application; pure ASGI, for it is on the way of every request."""

    def __init__(
        self, app: ASGIApp, calls: CallLog | None = None, times: RequestTimes | None = None
    ) -> None:
        self._app = app
        self._calls = calls
        self._times = times

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began_s = time.monotonic()
        path: str = scope["path"]
        extra = headers_of(scope)
        request_id = extra[0][1]
        if scope["method"] == "OPTIONS" and path.startswith(_OPEN_TO_BROWSERS):
            await _preflight(send, [extra[0], *_PREFLIGHT])
            return

        answered, status = False, 0

        async def answer(message: Message) -> None:
            nonlocal answered, status
            if message["type"] == "http.response.start":
                status = message["status"]
                challenge = _CHALLENGE if status == HTTPStatus.UNAUTHORIZED else ()
                added = (*extra, *challenge, *scope.get(_ADDED, ()))
                message["headers"] = [*message["headers"], *added]
                if self._calls is not None:
                    self._calls.note(scope, message["status"], request_id, began_s)
                if self._times is not None:
                    self._times.note(scope, message["status"], began_s)
            answered = message["type"] == "http.response.body" and not message.get("more_body")
            await send(message)

        # Each request is a task of its own, whose context ends with it: nothing to unbind.
        log.request_id.set(request_id.decode())
        tracing.begin_request()
        try:
            await self._app(scope, receive, answer)
        except Exception:
            # An exception that was answered was also logged. The server would log it once more,
            # with its message, and cut off the client.
            if not answered:
                raise
        finally:
            if tracing.is_on() and self._times is not None:
                _trace(self._times.route_of(scope), scope["method"], status, began_s)


def _trace(route: str, method: str, status: int, began_s: float) -> None:
    """Record a request by its route: its path may be a capability."""
    facts = {"http.request.method": method, "http.route": route}
    tracing.end_request(f"{method} {route}", status, time.monotonic() - began_s, facts)


def headers_of(scope: Scope) -> list[Header]:
    """Return the headers that every answer to a request carries; the first one is its id."""
    return [(b"x-request-id", _request_id(scope["headers"])), *_extra(scope["path"])]


def _request_id(headers: Iterable[Header]) -> bytes:
    for name, value in headers:
        if name == b"x-request-id" and _SANE_ID.fullmatch(value):
            return value
    return b"%b%016x" % (_PROCESS, next(_NUMBERS))


def _extra(path: str) -> list[Header]:
    extra: list[Header] = []
    is_private = path.startswith(_PRIVATE) or path == _PORTAL
    if is_private and not path.startswith(_STATIC):
        extra.append(_NO_STORE)
    if path.startswith(_OPEN_TO_BROWSERS):
        extra.extend(_CORS)
    return extra


async def _preflight(send: Send, headers: list[Header]) -> None:
    await send({"type": "http.response.start", "status": 204, "headers": headers})
    await send({"type": "http.response.body", "body": b""})
