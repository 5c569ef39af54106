"""The ASGI application, which routes requests by path segments and handles exceptions.

Starlette tries its routes one after another and wraps each request in three exception layers, which
cost more than most handlers. The cost of this application does not depend on the number of routes.
Its responses are the same as Starlette's, except that a 405 response lists all methods of the path,
and that a path with a trailing newline does not match a route without one: it would be admitted to
the wrong lane.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Lifespan, Message, Receive, Scope, Send

from payintent.core.errors import ErrorCode, NotFoundError, RefusedError

#: Scope key: the path template of the request's route, if any.
ROUTE = "payintent.route"
Handler = Callable[[Request], Awaitable[Response]]
ErrorHandler = Callable[[Request, Exception], Awaitable[Response]]


def require_state(request: Request, name: str) -> Any:
    """Return the application state `name`.

    Raises `SERVICE_UNAVAILABLE` while the service is still starting.
    """
    value = getattr(request.app.state, name, None)
    if value is None:
        raise _make_starting_error()
    return value


def read_path_uuid(request: Request, name: str, message: str) -> UUID:
    """Parse a UUID path parameter. Raises `NOT_FOUND` with `message` if it is malformed."""
    try:
        return UUID(request.path_params[name])
    except ValueError:
        raise NotFoundError(message) from None


def _make_starting_error() -> RefusedError:
    return RefusedError(ErrorCode.SERVICE_UNAVAILABLE, "the service is starting", retry_after_s=1)


@dataclass(frozen=True, slots=True)
class _Node:
    routes: list[Route]  # routes whose path ends at this node, in table order
    literals: "dict[str, _Node]"
    parameter: "_Node | None"  # for segments that do not match a literal


class RoutedApplication(Starlette):
    """An application that can start serving before all of its routes are available.

    If `is_starting`, unknown paths return a 503 until `add_routes` adds the remaining routes.
    """

    def __init__(
        self,
        routes: Sequence[Route],
        handlers: Mapping[type[Exception], ErrorHandler],
        handle_bug: ErrorHandler,
        lifespan: Lifespan["RoutedApplication"] | None = None,
        *,
        is_starting: bool = False,
    ) -> None:
        super().__init__(routes=routes, lifespan=lifespan)
        self._handlers = handlers
        self._handle_bug = handle_bug
        self._is_starting = is_starting
        self._tree = _build_tree([(route.path.split("/"), route) for route in routes])

    def add_routes(self, routes: Sequence[Route]) -> None:
        """Add the routes that depend on the started service."""
        self.router.routes.extend(routes)
        all_routes = [route for route in self.routes if isinstance(route, Route)]
        self._tree = _build_tree([(route.path.split("/"), route) for route in all_routes])
        self._is_starting = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await super().__call__(scope, receive, send)
            return
        scope["app"] = self
        has_response_started = False

        async def send_response(message: Message) -> None:
            nonlocal has_response_started
            has_response_started = True
            await send(message)

        request = Request(scope, receive, send_response)
        try:
            try:
                response = await self._find_route(scope).endpoint(request)
                await response(scope, receive, send_response)
            except Exception as error:
                handler = self._find_handler(error)
                if handler is None or has_response_started:
                    raise
                response = await handler(request, error)
                await response(scope, receive, send_response)
                error.__traceback__ = None  # it would grow each time a shared error is raised
        except Exception as error:
            response = await self._handle_bug(request, error)
            if has_response_started:
                raise
            await response(scope, receive, send_response)

    def _find_route(self, scope: Scope) -> Route:
        """Find the request's route and store it in the scope.

        Raises `HTTPException` with status 404 or 405 if there is no matching route.
        """
        node: _Node | None = self._tree
        path, method = scope["path"], scope["method"]
        for segment in path.split("/"):
            node = node.literals.get(segment) or node.parameter
            if node is None:
                raise self._make_no_route_error()
        allowed_methods = set[str]()
        for route in node.routes:
            match, methods = route.path_regex.fullmatch(path), route.methods or ()
            if match is None:
                continue
            if method in methods or not allowed_methods:  # a 405 is attributed to the first route
                scope["endpoint"], scope["path_params"] = route.endpoint, match.groupdict()
                scope[ROUTE] = route.path
            if method in methods:
                return route
            allowed_methods.update(methods)
        if not allowed_methods:
            raise self._make_no_route_error()
        raise HTTPException(405, headers={"Allow": ", ".join(sorted(allowed_methods))})

    def _make_no_route_error(self) -> Exception:
        return _make_starting_error() if self._is_starting else HTTPException(404)

    def _find_handler(self, error: Exception) -> ErrorHandler | None:
        bases = type(error).__mro__
        return next((self._handlers[base] for base in bases if base in self._handlers), None)


def _build_tree(routes: Sequence[tuple[Sequence[str], Route]], depth: int = 0) -> _Node:
    """Index routes by path segment, starting with the segment at `depth`.

    A route with a parameter is also added under each literal that the parameter can match.
    """
    longer_routes = [(segments, route) for segments, route in routes if len(segments) > depth]
    parameter_routes = [entry for entry in longer_routes if "{" in entry[0][depth]]
    literals = {segments[depth] for segments, _ in longer_routes if "{" not in segments[depth]}
    return _Node(
        [route for segments, route in routes if len(segments) == depth],
        {
            literal: _build_tree(
                [
                    (segments, route)
                    for segments, route in longer_routes
                    if segments[depth] == literal or "{" in segments[depth]
                ],
                depth + 1,
            )
            for literal in literals
        },
        _build_tree(parameter_routes, depth + 1) if parameter_routes else None,
    )
