"""Tools for all SDK calls, each with the call's name and parameters."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Annotated, Any, get_type_hints

from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations
from payintent_sdk import AsyncClient, PayintentError, calls
from payintent_sdk.calls import Call
from pydantic import Field

from payintent_mcp.descriptions import LEFT_OUT, PARAMETERS, REQUIRED, TOOLS

_AMOUNT = str | Decimal
_IDEMPOTENT = frozenset(
    {
        *("create_payment", "create_payment_link", "create_refund", "cancel_payment"),
        "deactivate_payment_link",
    }
)


@dataclass(frozen=True, kw_only=True)
class Tool:
    """A tool: its SDK call and its permissions."""

    name: str
    run: Callable[..., Awaitable[dict[str, Any]]]
    annotations: ToolAnnotations


def tools(client: AsyncClient, *, write: bool, test: bool) -> Iterator[Tool]:
    """Yield the tools of a session, with write tools and test tools if they are enabled."""
    for name, build in _builders():
        reads = name.startswith(("get_", "list_"))
        if (reads or write) and (test or not _is_test_tool(name)):
            yield Tool(
                name=name, run=_runner(client, name, build), annotations=_hints(name, reads=reads)
            )


def _builders() -> Iterator[tuple[str, Callable[..., Call[Any]]]]:
    for name, build in inspect.getmembers(calls, inspect.isfunction):
        if build.__module__ == calls.__name__ and not name.startswith("_"):
            yield name, build


def _is_test_tool(name: str) -> bool:
    return "test" in name.split("_")


def _hints(name: str, *, reads: bool) -> ToolAnnotations:
    return ToolAnnotations(
        read_only_hint=reads,
        destructive_hint=not reads and not name.startswith("create_payment"),
        # Safe to repeat because of their idempotency key or the payment's state.
        idempotent_hint=reads or name in _IDEMPOTENT,
        open_world_hint=False,
    )


def _runner(
    client: AsyncClient, name: str, build: Callable[..., Call[Any]]
) -> Callable[..., Awaitable[dict[str, Any]]]:
    async def run(**given: Any) -> dict[str, Any]:
        try:
            call = build(**given)
            return await client.send(replace(call, read=_check_object))
        except PayintentError as error:
            raise ToolError(str(error)) from error
        except (TypeError, ValueError) as error:
            raise ToolError(f"the request was not sent: {error}") from error

    parameters = list(_parameters(name, build))
    run.__name__ = name
    run.__doc__ = TOOLS[name]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__annotations__["return"] = dict[str, Any]
    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        parameters, return_annotation=dict[str, Any]
    )
    return run


def _check_object(answer: Any) -> dict[str, Any]:
    if not isinstance(answer, dict):
        raise ToolError("the response is not from the service")
    return answer


def _parameters(name: str, build: Callable[..., Any]) -> Iterator[inspect.Parameter]:
    hints = get_type_hints(build)
    for parameter in inspect.signature(build).parameters.values():
        if parameter.name in LEFT_OUT.get(name, ()):
            continue
        kind = hints[parameter.name]
        default = parameter.default
        if parameter.name in REQUIRED.get(name, ()):
            default = inspect.Parameter.empty
            kind = str
        elif kind in (_AMOUNT, _AMOUNT | None):  # most clients parse JSON numbers as floats
            kind = str if kind == _AMOUNT else str | None
        described = Annotated[kind, Field(description=PARAMETERS[parameter.name])]
        yield inspect.Parameter(
            parameter.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=described
        )
