"""The ASGI application: finds the route of a request by path segments and handles exceptions.

Starlette tries its routes one after another and passes each request through three exception layers,
which cost more than most handlers. This application gives the same responses at a cost that does
not depend on the number of routes. A 405 response lists all methods of the path in `Allow`.
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

#: Key of a request's scope: the path template of its route, if any.
ROUTE = "payintent.route"
Handler = Callable[[Request], Awaitable[Response]]
ErrorHandler = Callable[[Request, Exception], Awaitable[Response]]


def require_state(request: Request, name: str) -> Any:
    """Return the application state `name`, which is set when the service is open.

    Raises `SERVICE_UNAVAILABLE` until then.
    """
    value = getattr(request.app.state, name, None)
    if value is None:
        raise _starting()
    return value


def read_path_uuid(request: Request, name: str, message: str) -> UUID:
    """Parse a UUID in the path; raise `NOT_FOUND` with the message if it is malformed."""
    try:
        return UUID(request.path_params[name])
    except ValueError:
        raise NotFoundError(message) from None


def _starting() -> RefusedError:
    return RefusedError(ErrorCode.SERVICE_UNAVAILABLE, "the service is starting", retry_after_s=1)


@dataclass(frozen=True, slots=True)
class _Node:
    routes: list[Route]  # with this path, in the order of the table
    literals: "dict[str, _Node]"
    parameter: "_Node | None"  # for a segment that is not among the literals


class RoutedApplication(Starlette):
    """An application that may begin with a part of its routes.

    If `is_starting`, unknown paths get a 503 until `complete` adds the remaining routes.
    """

    def __init__(
        self,
        routes: Sequence[Route],
        handlers: Mapping[type[Exception], ErrorHandler],
        answer_bug: ErrorHandler,
        lifespan: Lifespan["RoutedApplication"] | None = None,
        *,
        is_starting: bool = False,
    ) -> None:
        super().__init__(routes=routes, lifespan=lifespan)
        self._handlers = handlers
        self._answer_bug = answer_bug
        self._is_starting = is_starting
        self._tree = _build_tree([(route.path.split("/"), route) for route in routes])

    def complete(self, routes: Sequence[Route]) -> None:
        """Add the routes that exist only once the application has started."""
        self.router.routes.extend(routes)
        table = [route for route in self.routes if isinstance(route, Route)]
        self._tree = _build_tree([(route.path.split("/"), route) for route in table])
        self._is_starting = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await super().__call__(scope, receive, send)
            return
        scope["app"] = self
        is_started = False

        async def note_start(message: Message) -> None:
            nonlocal is_started
            is_started = True
            await send(message)

        request = Request(scope, receive, note_start)
        try:
            try:
                response = await self._find_route(scope).endpoint(request)
                await response(scope, receive, note_start)
            except Exception as error:
                handler = self._find_handler(error)
                if handler is None or is_started:
                    raise
                response = await handler(request, error)
                await response(scope, receive, note_start)
                error.__traceback__ = None  # it would grow if the error is raised again
        except Exception as error:
            response = await self._answer_bug(request, error)
            if is_started:
                raise
            await response(scope, receive, note_start)

    def _find_route(self, scope: Scope) -> Route:
        """Return the route of a request and store it in the scope (`HTTPException` 404 or 405)."""
        node: _Node | None = self._tree
        path, method = scope["path"], scope["method"]
        # A route's pattern also matches a path with a newline at its end.
        for segment in path.removesuffix("\n").split("/"):
            node = node.literals.get(segment) or node.parameter
            if node is None:
                raise self._no_route()
        allowed = set[str]()
        for route in node.routes:
            match, methods = route.path_regex.match(path), route.methods or ()
            if match is None:
                continue
            if method in methods or not allowed:  # with a 405, the first route counts
                scope["endpoint"], scope["path_params"] = route.endpoint, match.groupdict()
                scope[ROUTE] = route.path
            if method in methods:
                return route
            allowed.update(methods)
        if not allowed:
            raise self._no_route()
        raise HTTPException(405, headers={"Allow": ", ".join(sorted(allowed))})

    def _no_route(self) -> Exception:
        return _starting() if self._is_starting else HTTPException(404)

    def _find_handler(self, error: Exception) -> ErrorHandler | None:
        kinds = (kind for kind in type(error).__mro__ if kind in self._handlers)
        return next((self._handlers[kind] for kind in kinds), None)


def _build_tree(routes: Sequence[tuple[Sequence[str], Route]], depth: int = 0) -> _Node:
    """Index routes by their segments, beginning with the segment at `depth`.

    A route with a parameter is also below the literals that the parameter can match.
    """
    longer = [(segments, route) for segments, route in routes if len(segments) > depth]
    parametrized = [item for item in longer if "{" in item[0][depth]]
    literals = {segments[depth] for segments, _ in longer if "{" not in segments[depth]}
    return _Node(
        [route for segments, route in routes if len(segments) == depth],
        {
            literal: _build_tree(
                [item for item in longer if item[0][depth] == literal or "{" in item[0][depth]],
                depth + 1,
            )
            for literal in literals
        },
        _build_tree(parametrized, depth + 1) if parametrized else None,
    )
