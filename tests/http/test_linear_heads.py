"""The cost of hostile headers and parameters is proportional to their length.

The cost is counted in steps, not in seconds. A step is an executed line of Python, including
libraries, or a character that a string method or regular expression can scan. Characters matter:
`http.cookies` in Python 3.11.7 has few lines, but each of them scans the rest of the text.

A benign request to each route records the code that reads each header and parameter. Hostile text
is then sent to each of these readers through the first route that reaches it.
"""

import asyncio
import http.client
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from starlette.datastructures import Headers, ImmutableMultiDict
from starlette.routing import Route

from payintent.members.model import MemberRole
from payintent.portal.routes import PORTAL_ROUTES
from payintent.runtime.settings import Settings
from tests.console.operator_browser import sign_in_as
from tests.portal.member_browser import member
from tests.support.routes import OPERATOR_ROUTES, ROUTES
from tests.support.steps import count_scans, filled
from tests.support.world import Api

#: Counting each step of hundreds of requests is slow. It takes minutes if the machine is busy.
pytestmark = [pytest.mark.timeout(1200), pytest.mark.full]

_BYTES = 8 * 1024  # large enough to detect a quadratic scan
_SOME_STEPS = 300_000  # the variation between requests: caches, batches, bookkeeping
_SECRET = "edge-secret-of-the-test"
_ANY_PARAMETER = "anything"
_ALWAYS = ("cookie", "content-type", "content-length", "x-request-id", "expect", "host", "accept")
_COOKIES = ("payintent-console", "payintent-console-sign-in", "payintent_merchant", "other")
_PARTS = (b"\\1", b'"', b",", b"; ", b"a=", b"1", b"a,-", b"for=[", b"\xe9")
_QUERY_PARTS = ("%00", "&a=", "1", "%F0%9F", "a.-", "%5C1", "%2C")

Reader = tuple[str, str, str]  # kind, name and code location


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Run behind a proxy, so that its headers about the viewer are read."""
    return settings.model_copy(
        update={
            "edge_secret": type(settings.edge_secret)(_SECRET),
            "edge_trusted_proxies": "127.0.0.1",
            "checkout_per_address_per_s": 0,
            "failed_logins_per_address_per_s": 0,
        }
    )


@contextmanager
def _record_readers(readers: set[Reader]) -> Iterator[None]:
    """Record the readers of each header and query parameter."""

    def recording_method(kind: type, method: str, label: str) -> Callable[..., Any]:
        original = getattr(kind, method)

        def read(self: Any, *names: str) -> Any:
            name = (
                names[0].lower() if names and label == "header" else (names or (_ANY_PARAMETER,))[0]
            )
            if name != "authorization" or "payintent" in _reader(sys._getframe(1)):
                readers.add((label, str(name), _reader(sys._getframe(1))))
            return original(self, *names)

        return read

    with pytest.MonkeyPatch.context() as patch:
        for method in ("__getitem__", "getlist", "__contains__"):
            patch.setattr(Headers, method, recording_method(Headers, method, "header"))
        for method in ("__getitem__", "__contains__", "keys", "items"):
            patch.setattr(
                ImmutableMultiDict, method, recording_method(ImmutableMultiDict, method, "query")
            )
        yield


def _reader(frame: FrameType | None) -> str:
    """Return the function of the service that reads the mapping."""
    while frame is not None and "payintent/" not in frame.f_code.co_filename:
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_code.co_name}" if frame else "a library"


def _routes(routes: list[Any]) -> list[tuple[str, str]]:
    return [
        (method, route.path)
        for route in routes
        if isinstance(route, Route)
        for method in sorted((route.methods or {"GET"}) - {"HEAD"})
    ]


def _exchange(base: str, method: str, target: str, headers: list[tuple[str, bytes]]) -> int:
    """Send a request. Call this in a separate thread, whose steps are not counted."""
    connection = http.client.HTTPConnection(urlsplit(base).netloc, timeout=30)
    connection.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
    if all(name != "host" for name, _ in headers):
        connection.putheader("Host", urlsplit(base).netloc)
    for name, value in headers:
        connection.putheader(name, value)
    connection.endheaders()
    try:
        answer = connection.getresponse()
        answer.read(1)
        return answer.status
    finally:
        connection.close()


class _Heads:
    """Sends headers to a port and counts the steps that the service needs."""

    def __init__(self, api: Api, parameters: Mapping[str, str], headers: Mapping[str, str]) -> None:
        self._base = api.base
        self._parameters = _PathParameters(parameters)
        self._headers = [(name.lower(), value.encode()) for name, value in headers.items()]

    async def find_readers(self, routes: list[tuple[str, str]]) -> dict[Reader, tuple[str, str]]:
        """Return each reader of a header or parameter, with the first route that reaches it."""
        readers: dict[Reader, tuple[str, str]] = {}
        for method, path in routes:
            if path.endswith(("/stream", "/events")) and method == "GET":
                continue  # streams do not end
            route_readers = {("header", name, "the server") for name in _ALWAYS}
            with _record_readers(route_readers):
                await self._send(method, path, "", [])
            for reader in route_readers:
                readers.setdefault(reader, (method, path))
        return readers

    async def hold_linear(self, reader: Reader, route: tuple[str, str]) -> None:
        kind, name, _ = reader
        for make in _hostile_queries(name) if kind == "query" else _hostile_headers(name):
            await self._steps(route, *make(8))
            half_cost, cost = [
                await self._steps(route, *make(size)) for size in (_BYTES // 2, _BYTES)
            ]
            if cost > 2 * half_cost + _SOME_STEPS:  # a background loop may have run
                cost = min(cost, await self._steps(route, *make(_BYTES)))
            assert cost <= 2 * half_cost + _SOME_STEPS, (reader, route, make(16), half_cost, cost)

    async def _steps(
        self, route: tuple[str, str], query: str, headers: list[tuple[str, bytes]]
    ) -> int:
        with count_scans() as steps:
            status = await self._send(*route, query, headers)
        assert status < 500, (route, query[:50], status)
        return steps.count

    async def _send(
        self, method: str, path: str, query: str, extra_headers: list[tuple[str, bytes]]
    ) -> int:
        replaced = {name for name, _ in extra_headers}
        headers = [header for header in self._headers if header[0] not in replaced] + extra_headers
        target = path.format_map(self._parameters) + (f"?{query}" if query else "")
        return await asyncio.to_thread(_exchange, self._base, method, target, headers)


class _PathParameters(dict[str, str]):
    def __missing__(self, name: str) -> str:
        return str(uuid4())


def _header(
    name: str, start: bytes, part: bytes, end: bytes, size: int
) -> tuple[str, list[tuple[str, bytes]]]:
    return "", [(name, filled(start, part, size) + end)]


def _hostile_headers(name: str) -> Iterator[Callable[[int], tuple[str, list[tuple[str, bytes]]]]]:
    starts = [f'{cookie}="'.encode() for cookie in _COOKIES] if name == "cookie" else [b"", b'"']
    if name == "authorization":
        starts = [b"Bearer "]
    for start in starts:
        for part in _PARTS:
            end = b'"' if start.endswith(b'"') else b""
            yield partial(_header, name, start, part, end)


def _hostile_queries(name: str) -> Iterator[Callable[[int], tuple[str, list[tuple[str, bytes]]]]]:
    for part in _QUERY_PARTS:
        yield lambda size, part=part: (f"{name}={part * (size // len(part))}", [])


def test_a_quadratic_scan_is_detected() -> None:
    import re

    pattern = re.compile(r"\\[0-3][0-7][0-7]")

    def unquote(text: str) -> None:
        for at in range(len(text)):
            pattern.search(text, at)

    def find(text: str) -> None:
        at = 0
        while at >= 0:
            at = text.find("\\", at + 1)
            text.count("z")

    for scan in (unquote, find):
        with count_scans() as half_steps:
            scan("\\1" * (_BYTES // 16))
        with count_scans() as steps:
            scan("\\1" * (_BYTES // 8))
        assert steps.count > 2 * half_steps.count + _SOME_STEPS


async def test_the_cost_of_hostile_headers_and_parameters_is_linear(api: Api) -> None:
    created = (await api.create()).json
    parameters = {
        "payment_id": created["id"],
        "checkout_id": created["checkout_id"],
        "provider": "fake",
        "account_id": str(api.world.account_id),
    }
    edge = {"X-Edge-Secret": _SECRET, "CloudFront-Viewer-Country": "DE"}
    heads = _Heads(api, parameters, api.bearer() | edge | {"Idempotency-Key": str(uuid4())})
    readers = await heads.find_readers(_routes(ROUTES))
    assert len(readers) > 30, readers
    for reader, route in readers.items():
        await heads.hold_linear(reader, route)


async def test_the_cost_of_hostile_headers_is_linear_in_the_portal(api: Api) -> None:
    person = await member(api, MemberRole.FINANCE)
    cookies = "; ".join(f"{name}={value}" for name, value in person.cookies.items())
    heads = _Heads(api, {}, {"Cookie": cookies})
    pages = [route for route in _routes(PORTAL_ROUTES) if route[0] == "GET"]
    for reader, route in (await heads.find_readers(pages)).items():
        await heads.hold_linear(reader, route)


async def test_the_cost_of_hostile_headers_is_linear_at_the_operator_port(operator: Api) -> None:
    visitor = await sign_in_as(operator)
    cookies = "; ".join(f"{name}={value}" for name, value in visitor.cookies.items())
    token = await operator.world.operator_token("bob")
    headers = operator.bearer(token) | {"Cookie": cookies, "Origin": operator.base}
    heads = _Heads(operator, {"subject": "tax", "verb": "list"}, headers)
    pages = [route for route in _routes(OPERATOR_ROUTES) if route[0] == "GET"]
    readers = await heads.find_readers(pages)
    for reader, route in readers.items():
        await heads.hold_linear(reader, route)
