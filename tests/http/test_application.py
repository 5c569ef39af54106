"""The application's own routing and error handling, compared with Starlette's."""

import asyncio
import json
import re
from collections.abc import Iterable, Iterator
from copy import copy
from dataclasses import dataclass, field
from inspect import iscoroutinefunction
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Scope

from payintent.http.application import RoutedApplication
from payintent.portal.routes import PORTAL_ROUTES
from tests.support.routes import OPERATOR_ROUTES, ROUTES

_TABLES = {"public": [*ROUTES, *PORTAL_ROUTES], "operator": OPERATOR_ROUTES}
_METHODS = ("GET", "HEAD", "POST", "PATCH", "PUT", "DELETE", "OPTIONS", "get", "BREW")
#: Parameter values, including literals of other routes. The server decodes the path, so an encoded
#: slash is a slash.
_VALUES = (
    *("x", "static", "test", "wallet", "payments", "x.webp", ".svg", "a/b", "", " ", "."),
    *("..", "%2F", "\n", "x\n", "\x00", "é", "{checkout_id}", "static/x"),
)


@dataclass(slots=True)
class _Answer:
    """A response, and the application's values in the request's scope."""

    scope: Scope
    status: int = 0
    headers: dict[bytes, bytes] = field(default_factory=dict)
    body: bytes = b""
    error: str | None = None  # raised by the application

    def facts(self) -> tuple[Any, ...]:
        routing = self.scope.get("endpoint"), self.scope.get("path_params")
        return self.status, self.headers, self.body, self.error, routing


async def _request(app: ASGIApp, method: str, path: str) -> _Answer:
    scope = {"type": "http", "method": method, "path": path, "headers": [], "query_string": b""}
    answer = _Answer(scope)

    async def receive() -> Message:
        await asyncio.Event().wait()  # the client neither sends more data nor disconnects
        raise AssertionError

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            answer.status, answer.headers = message["status"], dict(message["headers"])
        else:
            answer.body += message.get("body", b"")

    try:
        await app(scope, receive, send)
    except Exception as error:  # noqa: BLE001
        answer.error = repr(error)
    return answer


def _echoing(number: int, route: Route) -> Route:
    """Return a route with the same path and methods, which responds with its input."""

    async def echo(request: Request) -> Response:
        return Response(json.dumps([number, request.method, request.path_params]))

    return Route(route.path, echo, methods=list(route.methods or ()))


def _paths(routes: Iterable[Route]) -> Iterator[str]:
    """List each route's path with various parameter values, and similar paths."""
    for route in routes:
        for value in _VALUES:
            yield re.sub(r"\{\w+\}", lambda _, value=value: value, route.path)
        path = re.sub(r"\{\w+\}", "x", route.path)
        for number, _ in enumerate(path.split("/")):
            segments = path.split("/")
            yield "/".join([*segments[:number], *segments[number + 1 :]])
            for literal in ("", "x", "static"):
                yield "/".join([*segments[:number], literal, *segments[number:]])
                yield "/".join([*segments[:number], literal, *segments[number + 1 :]])
        yield from (f"{path}/", f"{path}\n", f"{path}\n\n", f"{path}/\n", f"{path}x", path.upper())
        yield from (f"/{path}", f"{path}//", f"{path}?x", path[:-1], path[1:])
    yield from ("*", "", "/", "//", "\n", "http://localhost/v1/payments")


def _exact(route: Route) -> Route:
    """Return a copy whose pattern, unlike Starlette's, does not ignore a newline at the end."""
    exact = copy(route)
    exact.path_regex = re.compile(route.path_regex.pattern.removesuffix("$") + r"\Z")
    return exact


def _starlette(routes: list[Route]) -> Starlette:
    app = Starlette(routes=[_exact(route) for route in routes])
    app.router.redirect_slashes = False
    return app


async def _on_http_exception(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return Response(error.detail, error.status_code, error.headers, "text/plain")


async def _on_bug(_: Request, error: Exception) -> Response:
    return Response(f"bug: {error!r}", 500)


@pytest.mark.parametrize("table", _TABLES)
async def test_every_path_and_method_gets_the_same_response_as_from_starlette(table: str) -> None:
    routes = [_echoing(number, route) for number, route in enumerate(_TABLES[table])]
    starlette = _starlette(routes)
    routed = RoutedApplication(routes, {HTTPException: _on_http_exception}, _on_bug)
    statuses = set[int]()
    for path in sorted(set(_paths(routes))):
        matching = [route for route in routes if route.path_regex.fullmatch(path)]
        methods = _METHODS if matching else ("GET", "POST")
        for method in methods:
            answer, expected = (
                await _request(routed, method, path),
                await _request(starlette, method, path),
            )
            if expected.status == 405:  # Starlette lists only the methods of the first route
                allowed = set[str]().union(*(route.methods or () for route in matching))
                expected.headers[b"allow"] = ", ".join(sorted(allowed)).encode()
            assert answer.facts() == expected.facts(), (method, path)
            statuses.add(answer.status)
    assert statuses == {200, 404, 405}


async def test_the_first_matching_route_is_selected() -> None:
    templates = ("/a/{x}/c", "/a/b/{y}", "/{z}/b/c", "/a/b/c", "/a/b/{y}.{z}", "/{x}", "/a")
    for offset in range(len(templates)):
        routes = [
            _echoing(number, Route(path, _on_bug, methods=["POST" if number % 3 else "GET"]))
            for number, path in enumerate(templates[offset:] + templates[:offset])
        ]
        routed = RoutedApplication(routes, {HTTPException: _on_http_exception}, _on_bug)
        for path in ("/a/b/c", "/a/b/d", "/a/x/c", "/x/b/c", "/a/b/c.d", "/a", "/b", "/a/b"):
            for method in ("GET", "POST"):
                expected = await _request(_starlette(routes), method, path)
                answer = await _request(routed, method, path)
                assert answer.body == expected.body, (method, path, offset)
                assert answer.scope.get("endpoint") is expected.scope.get("endpoint")


def test_every_handler_is_asynchronous() -> None:
    routes = [route for table in _TABLES.values() for route in table]
    assert [route.path for route in routes if not iscoroutinefunction(route.endpoint)] == []


class _RefusalError(Exception):
    pass


class _LaterRefusalError(_RefusalError):
    pass


class _FailingHandlerError(Exception):
    pass


async def _on_refusal(_: Request, error: Exception) -> Response:
    return Response(repr(error), 418, {"X-Kind": type(error).__name__})


async def _on_failing(_: Request, error: Exception) -> Response:
    raise LookupError(str(error))


@pytest.mark.parametrize(
    "error",
    [
        *(_RefusalError("a"), _LaterRefusalError("b"), ValueError("c"), HTTPException(403, "d")),
        *(HTTPException(404), _FailingHandlerError("e")),
    ],
    ids=repr,
)
async def test_errors_get_the_same_response_as_from_starlette(error: Exception) -> None:
    async def fail(request: Request) -> Response:
        del request
        raise error

    async def fail_late(request: Request) -> Response:
        del request

        async def pieces() -> Any:
            yield b"begun"
            raise error

        return StreamingResponse(pieces())

    routes = [Route("/fail", fail), Route("/late", fail_late)]
    handlers = {
        HTTPException: _on_http_exception,
        _RefusalError: _on_refusal,
        _FailingHandlerError: _on_failing,
    }
    routed = RoutedApplication(routes, handlers, _on_bug)
    starlette = Starlette(routes=routes, exception_handlers={**handlers, Exception: _on_bug})
    answer, expected = (
        await _request(routed, "GET", "/fail"),
        await _request(starlette, "GET", "/fail"),
    )
    # Starlette raises the exception again after its response, and the server would log its message.
    assert (answer.status, answer.headers, answer.body) == (
        *(expected.status, expected.headers, expected.body),
    )
    assert answer.error is None
    answer, expected = (
        await _request(routed, "GET", "/late"),
        await _request(starlette, "GET", "/late"),
    )
    assert (answer.status, answer.body) == (expected.status, expected.body) == (200, b"begun")
    assert answer.error is not None
    assert expected.error is not None


async def test_an_error_during_a_streamed_response_is_reported_once_as_a_bug() -> None:
    bugs: list[Exception] = []

    async def record(request: Request, error: Exception) -> Response:
        bugs.append(error)
        return await _on_bug(request, error)

    async def fail(request: Request) -> Response:
        del request

        async def pieces() -> Any:
            yield b"begun"
            raise _RefusalError("late")

        return StreamingResponse(pieces())

    app = RoutedApplication([Route("/late", fail)], {_RefusalError: _on_refusal}, record)
    answer = await _request(app, "GET", "/late")
    assert (answer.status, answer.body) == (200, b"begun")
    assert [repr(bug) for bug in bugs] == ["_RefusalError('late')"]
