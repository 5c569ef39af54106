"""The application's own routing and error handling, compared with Starlette's."""

import asyncio
import json
import re
from collections.abc import Iterable, Iterator
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
#: Values of a parameter, among them literals of other routes. The server has decoded the path, so
#: an encoded slash is a slash.
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
        noted = self.scope.get("endpoint"), self.scope.get("path_params")
        return self.status, self.headers, self.body, self.error, noted


async def _ask(app: ASGIApp, method: str, path: str) -> _Answer:
    scope = {"type": "http", "method": method, "path": path, "headers": [], "query_string": b""}
    answer = _Answer(scope)

    async def receive() -> Message:
        await asyncio.Event().wait()  # the client sends no more, and does not hang up
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
            for other in ("", "x", "static"):
                yield "/".join([*segments[:number], other, *segments[number:]])
                yield "/".join([*segments[:number], other, *segments[number + 1 :]])
        yield from (f"{path}/", f"{path}\n", f"{path}\n\n", f"{path}/\n", f"{path}x", path.upper())
        yield from (f"/{path}", f"{path}//", f"{path}?x", path[:-1], path[1:])
    yield from ("*", "", "/", "//", "\n", "http://localhost/v1/payments")


def _starlette(routes: list[Route]) -> Starlette:
    app = Starlette(routes=routes)
    app.router.redirect_slashes = False
    return app


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return Response(error.detail, error.status_code, error.headers, "text/plain")


async def _bug(_: Request, error: Exception) -> Response:
    return Response(f"bug: {error!r}", 500)


@pytest.mark.parametrize("table", _TABLES)
async def test_every_path_and_method_is_answered_as_starlette_answers(table: str) -> None:
    routes = [_echoing(number, route) for number, route in enumerate(_TABLES[table])]
    theirs = _starlette(routes)
    ours = RoutedApplication(routes, {HTTPException: _refused}, _bug)
    statuses = set[int]()
    for path in sorted(set(_paths(routes))):
        matching = [route for route in routes if route.path_regex.match(path)]
        methods = _METHODS if matching else ("GET", "POST")
        for method in methods:
            answer, expected = await _ask(ours, method, path), await _ask(theirs, method, path)
            if expected.status == 405:  # Starlette lists the methods of the first route only
                allowed = set[str]().union(*(route.methods or () for route in matching))
                expected.headers[b"allow"] = ", ".join(sorted(allowed)).encode()
            assert answer.facts() == expected.facts(), (method, path)
            statuses.add(answer.status)
    assert statuses == {200, 404, 405}


async def test_the_first_of_two_routes_for_a_path_is_chosen() -> None:
    templates = ("/a/{x}/c", "/a/b/{y}", "/{z}/b/c", "/a/b/c", "/a/b/{y}.{z}", "/{x}", "/a")
    for turned in range(len(templates)):
        routes = [
            _echoing(number, Route(path, _bug, methods=["POST" if number % 3 else "GET"]))
            for number, path in enumerate(templates[turned:] + templates[:turned])
        ]
        ours = RoutedApplication(routes, {HTTPException: _refused}, _bug)
        for path in ("/a/b/c", "/a/b/d", "/a/x/c", "/x/b/c", "/a/b/c.d", "/a", "/b", "/a/b"):
            for method in ("GET", "POST"):
                expected = await _ask(_starlette(routes), method, path)
                answer = await _ask(ours, method, path)
                assert answer.body == expected.body, (method, path, turned)
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
async def test_errors_are_answered_as_starlette_answers_them(error: Exception) -> None:
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
        HTTPException: _refused,
        _RefusalError: _on_refusal,
        _FailingHandlerError: _on_failing,
    }
    ours = RoutedApplication(routes, handlers, _bug)
    theirs = Starlette(routes=routes, exception_handlers={**handlers, Exception: _bug})
    answer, expected = await _ask(ours, "GET", "/fail"), await _ask(theirs, "GET", "/fail")
    # Starlette also raises a bug that it has answered; the server would log its message.
    assert (answer.status, answer.headers, answer.body) == (
        *(expected.status, expected.headers, expected.body),
    )
    assert answer.error is None
    answer, expected = await _ask(ours, "GET", "/late"), await _ask(theirs, "GET", "/late")
    assert (answer.status, answer.body) == (expected.status, expected.body) == (200, b"begun")
    assert answer.error is not None
    assert expected.error is not None


async def test_an_error_after_the_answer_began_is_reported_as_a_bug_once() -> None:
    bugs: list[Exception] = []

    async def note(request: Request, error: Exception) -> Response:
        bugs.append(error)
        return await _bug(request, error)

    async def fail(request: Request) -> Response:
        del request

        async def pieces() -> Any:
            yield b"begun"
            raise _RefusalError("late")

        return StreamingResponse(pieces())

    app = RoutedApplication([Route("/late", fail)], {_RefusalError: _on_refusal}, note)
    answer = await _ask(app, "GET", "/late")
    assert (answer.status, answer.body) == (200, b"begun")
    assert [repr(bug) for bug in bugs] == ["_RefusalError('late')"]
