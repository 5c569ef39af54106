"""A proxy in front of a gateway's counterpart, which drops, corrupts and delays messages."""

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from enum import StrEnum
from urllib.parse import urlsplit

import aiohttp
from aiohttp import web
from yarl import URL

from tests.support.http_server import clean_up
from tests.support.timeouts import PATIENCE_S

_CONNECTION_HEADERS = frozenset(
    {"connection", "content-length", "host", "transfer-encoding", "keep-alive"}
)
_BODY_BYTES_MAX = 1024 * 1024


class Fault(StrEnum):
    """The treatment of a request."""

    PASS = "pass"
    REFUSE = "refuse"  # nothing listens, so nothing was sent
    HANG = "hang"  # not delivered, and no response
    STATUS_500 = "status_500"
    GARBAGE = "garbage"  # status 200 with an invalid body
    HTML_404 = "html_404"  # a proxy's page, not the gateway's response
    FORBIDDEN = "forbidden"  # from a firewall in front of the gateway
    TOO_MANY = "too_many"
    OTHER_TIME = "other_time"  # a normal response, with a clock that is an hour slow
    CUT = "cut"  # delivered and executed, but the response is lost


#: Faults after which the outcome is unknown.
UNKNOWN_OUTCOME_FAULTS = (Fault.HANG, Fault.STATUS_500, Fault.GARBAGE, Fault.HTML_404, Fault.CUT)

#: Responses that throttle us, which do not count as an outage.
THROTTLES = (Fault.FORBIDDEN, Fault.TOO_MANY)

_RESPONSES = {
    Fault.FORBIDDEN: (403, b"<html><body>slow down</body></html>", "text/html"),
    Fault.TOO_MANY: (429, b"", "text/plain"),
    Fault.STATUS_500: (500, b'{"error":"out of order"}', "application/json"),
    Fault.GARBAGE: (200, b'\xff\x00{"id": "', "application/json"),
    Fault.HTML_404: (404, b"<html><body><h1>404 Not Found</h1></body></html>", "text/html"),
}


class FaultProxy:
    """Forwards requests to `target`, with the current fault."""

    def __init__(self, target: str) -> None:
        self._target = URL(target)
        self._fault = Fault.PASS
        self._reserved = _bind(0)  # reserves the port while nothing listens on it
        self._http: aiohttp.ClientSession | None = None
        self._runner: web.ServerRunner | None = None
        self._site: web.SockSite | None = None
        self._over = asyncio.Event()
        self._rewrite: Callable[[bytes], bytes] | None = None
        self._passes_left = 0  # requests that pass before the fault
        self.request_count = 0  # requests that have arrived
        self.paths: set[str] = set()  # requested paths
        self.affected_count = 0  # requests affected by a fault

    @property
    def url(self) -> str:
        """The gateway's base URL for the adapter, without a trailing slash."""
        return f"http://127.0.0.1:{self._reserved.getsockname()[1]}{self._target.path.rstrip('/')}"

    @asynccontextmanager
    async def fault(self, fault: Fault, after: int = 0) -> AsyncGenerator[None]:
        """Apply a fault in the block, except to the first `after` requests; REFUSE affects all."""
        self._fault, self._passes_left = fault, after
        if fault is Fault.REFUSE:
            await self._stop_listening()
        try:
            yield
        finally:
            self._fault = Fault.PASS
            if fault is Fault.REFUSE:
                await self._listen()

    @contextmanager
    def rewriting(self, rewrite: Callable[[bytes], bytes]) -> Generator[None]:
        """Change the body of every response in the block."""
        self._rewrite = rewrite
        try:
            yield
        finally:
            self._rewrite = None

    async def open(self) -> None:
        self._http = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=PATIENCE_S),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
        )
        self._runner = web.ServerRunner(web.Server(self._serve), shutdown_timeout=0.1)
        await self._runner.setup()
        await self._listen()

    async def close(self) -> None:
        self._over.set()
        if self._runner:
            await clean_up(self._runner)
        if self._http:
            await self._http.close()
        self._reserved.close()

    async def _listen(self) -> None:
        assert self._runner is not None
        self._site = web.SockSite(self._runner, _bind(self._reserved.getsockname()[1]))
        await self._site.start()

    async def _stop_listening(self) -> None:
        assert self._site is not None
        await self._site.stop()

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        self.request_count += 1
        self.paths.add(request.path)
        fault = self._next_fault()
        if fault is Fault.HANG:
            await self._over.wait()
            return web.Response(status=500)  # the client has disconnected
        if fault in _RESPONSES:
            status, body, kind = _RESPONSES[fault]
            return _answer(status, body, {"Content-Type": kind})
        answer = await self._forward(request)
        if fault is Fault.CUT and request.transport is not None:
            request.transport.abort()
        if fault is Fault.OTHER_TIME:
            answer.headers["Date"] = format_datetime(datetime.now(UTC) - timedelta(hours=1))
        return answer

    def _next_fault(self) -> Fault:
        if self._fault is Fault.PASS or self._passes_left > 0:
            self._passes_left -= 1
            return Fault.PASS
        self.affected_count += 1
        return self._fault

    async def _forward(self, request: web.BaseRequest) -> web.Response:
        assert self._http is not None
        origin = urlsplit(str(self._target))
        url = URL(f"{origin.scheme}://{origin.netloc}{request.raw_path}", encoded=True)
        headers = [
            (k, v) for k, v in request.headers.items() if k.lower() not in _CONNECTION_HEADERS
        ]
        body = await request.read()
        async with self._http.request(
            request.method, url, headers=headers, data=body or None, allow_redirects=False
        ) as answer:
            forwarded_headers = {
                k: v for k, v in answer.headers.items() if k.lower() not in _CONNECTION_HEADERS
            }
            content = await answer.read()
            return _answer(
                answer.status,
                self._rewrite(content) if self._rewrite else content,
                forwarded_headers,
            )


@asynccontextmanager
async def faulty(target: str) -> AsyncGenerator[FaultProxy]:
    """Run a proxy in front of the counterpart at `target`, at first without faults."""
    proxy = FaultProxy(target)
    await proxy.open()
    try:
        yield proxy
    finally:
        await proxy.close()


def _answer(status: int, body: bytes, headers: dict[str, str]) -> web.Response:
    response = web.Response(status=status, body=body, headers=headers)
    response.force_close()  # a persistent connection would turn a refusal into a missing response
    return response


def _bind(port: int) -> socket.socket:
    """Bind without listening, so that connections are refused."""
    bound_socket = socket.socket()
    bound_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    bound_socket.bind(("127.0.0.1", port))
    return bound_socket
