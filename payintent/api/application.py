"""The ASGI application: finds a request's route by the segments of its path, and answers errors.

Starlette tries its routes in turn and passes every request through three exception layers, which
cost more than most handlers. This application gives the same answers, whatever the number of
routes. A 405 answer lists the methods of every route of the path in `Allow`.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Lifespan, Message, Receive, Scope, Send

from payintent.domain.errors import ErrorCode, RefusedError

Handler = Callable[[Request], Awaitable[Response]]
ErrorHandler = Callable[[Request, Exception], Awaitable[Response]]


def require_state(request: Request, name: str) -> Any:
    """Return what the application stores under `name` once its service is open.

    Raises `SERVICE_UNAVAILABLE` until then.
    """
    value = getattr(request.app.state, name, None)
    if value is None:
        raise RefusedError(
            ErrorCode.SERVICE_UNAVAILABLE, "the service is starting", retry_after_s=1
        )
    return value


@dataclass(frozen=True, slots=True)
class _Node:
    routes: list[Route]  # those that end here, in the order of the table
    literals: "dict[str, _Node]"
    parameter: "_Node | None"  # for a segment that is not one of the literals


class RoutedApplication(Starlette):
    def __init__(
        self,
        routes: Sequence[Route],
        handlers: Mapping[type[Exception], ErrorHandler],
        answer_bug: ErrorHandler,
        lifespan: Lifespan["RoutedApplication"] | None = None,
    ) -> None:
        super().__init__(routes=routes, lifespan=lifespan)
        self._handlers = handlers
        self._answer_bug = answer_bug
        self._tree = _build_tree([(route.path.split("/"), route) for route in routes])

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
                error.__traceback__ = None  # an error that is raised again would gather them
        except Exception as error:
            response = await self._answer_bug(request, error)
            if is_started:
                raise
            await response(scope, receive, note_start)

    def _find_route(self, scope: Scope) -> Route:
        """Return the route of a request and note it in the scope (`HTTPException` 404 or 405)."""
        node: _Node | None = self._tree
        path, method = scope["path"], scope["method"]
        # A route's pattern also matches a path with a newline at its end.
        for segment in path.removesuffix("\n").split("/"):
            node = node.literals.get(segment) or node.parameter
            if node is None:
                raise HTTPException(404)
        allowed = set[str]()
        for route in node.routes:
            match, methods = route.path_regex.match(path), route.methods or ()
            if match is None:
                continue
            if method in methods or not allowed:  # a refused method names the first route
                scope["endpoint"], scope["path_params"] = route.endpoint, match.groupdict()
            if method in methods:
                return route
            allowed.update(methods)
        if not allowed:
            raise HTTPException(404)
        raise HTTPException(405, headers={"Allow": ", ".join(sorted(allowed))})

    def _find_handler(self, error: Exception) -> ErrorHandler | None:
        kinds = (kind for kind in type(error).__mro__ if kind in self._handlers)
        return next((self._handlers[kind] for kind in kinds), None)


def _build_tree(routes: Sequence[tuple[Sequence[str], Route]], depth: int = 0) -> _Node:
    """Sort routes by their segments from `depth` on.

    A route with a parameter is also below the literals that the parameter may equal.
    """
    longer = [(segments, route) for segments, route in routes if len(segments) > depth]
    parametrized = [each for each in longer if "{" in each[0][depth]]
    literals = {segments[depth] for segments, _ in longer if "{" not in segments[depth]}
    return _Node(
        [route for segments, route in routes if len(segments) == depth],
        {
            literal: _build_tree(
                [each for each in longer if each[0][depth] == literal or "{" in each[0][depth]],
                depth + 1,
            )
            for literal in literals
        },
        _build_tree(parametrized, depth + 1) if parametrized else None,
    )
