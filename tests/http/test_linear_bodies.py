"""The cost of a hostile body is proportional to its length, on every route with a body.

The cost is counted in executed lines of the service, not in seconds: if a body has twice the bytes,
it may execute at most twice the lines. C code has no lines: the decoder makes a single pass, and
separate tests cover the nesting depth (`test_nesting_depth.py`) and regular expressions
(`test_linear_patterns.py`).
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from starlette.routing import Route

import payintent
from payintent.core.ids import PAYMENT_LINK, format_id
from tests.payment_links.link_setup import make_link
from tests.support.routes import OPERATOR_ROUTES, ROUTES
from tests.support.steps import HOSTILE, count_steps, filled, hostile
from tests.support.world import Api

pytestmark = pytest.mark.full

_CODE = str(Path(payintent.__file__).parent)
_BYTES = 64 * 1024 - 64
_CALLBACK_BYTES = 16 * 1024 - 64  # the limit of most adapters
_SOME_LINES = 600  # the variation between requests: caches, waits, bookkeeping


_METHODS = {"POST", "PATCH"}


def _routes_with_body(routes: list[Any]) -> list[tuple[str, str]]:
    return [
        (method, route.path)
        for route in routes
        if isinstance(route, Route)
        for method in sorted(_METHODS & (route.methods or set()))
    ]


async def _lines(api: Api, method: str, path: str, body: bytes, headers: dict[str, str]) -> int:
    with count_steps(_CODE) as lines:
        answer = await api.send(method, path, data=body, headers=headers)
    assert answer.status < 500, (path, answer.body[:200])
    return lines.count


async def _check_linear(
    api: Api,
    method: str,
    path: str,
    headers: dict[str, str],
    bodies: dict[str, Callable[[int], bytes]] = HOSTILE,
) -> None:
    size = _CALLBACK_BYTES if "/callbacks/" in path else _BYTES
    kind = "application/x-www-form-urlencoded" if path.startswith("/c/") else "application/json"

    async def lines(body: bytes) -> int:
        all_headers = headers | {"Content-Type": kind, "Idempotency-Key": str(uuid4())}
        return await _lines(api, method, path, body, all_headers)

    for name, make in bodies.items():
        await lines(make(1))  # fills the caches
        half, whole = await lines(make(size // 2)), await lines(make(size))
        if whole > 2 * half + _SOME_LINES:  # a background loop may have run
            whole = min(whole, await lines(make(size)))
        assert 0 < whole <= 2 * half + _SOME_LINES, (method, path, name, half, whole)


def test_quadratic_growth_is_detected() -> None:
    """The test's scanner restarts at each byte."""
    source = "def scan(text):\n for at in range(len(text)):\n  for _ in text[at:]:\n   pass\n"
    names: dict[str, Any] = {}
    exec(compile(source, f"{_CODE}/of_the_test.py", "exec"), names)  # noqa: S102

    def lines(size: int) -> int:
        with count_steps(_CODE) as steps:
            names["scan"](b"x" * size)
        return steps.count

    assert lines(100) > 2 * lines(50) + _SOME_LINES


@pytest.mark.parametrize(("method", "path"), _routes_with_body(ROUTES), ids=str)
async def test_the_cost_of_a_hostile_body_is_linear(api: Api, method: str, path: str) -> None:
    await _check_linear(api, method, path.format_map(await _path_parameters(api)), api.bearer())


async def _path_parameters(api: Api) -> dict[str, str]:
    """Return values for the parameters in the routes' paths."""
    created = (await api.create()).json
    link = await make_link(api.world)
    return {
        "payment_id": created["id"],
        "checkout_id": created["checkout_id"],
        "session_id": str(uuid4()),
        "event_id": str(uuid4()),
        "provider": "fake",
        "code": "A" * 44,  # an unknown refund
        "account_id": str(api.world.account_id),
        "link_id": format_id(PAYMENT_LINK, link.id),
        "token": link.token,
    }


@pytest.mark.parametrize(("method", "path"), _routes_with_body(OPERATOR_ROUTES), ids=str)
async def test_the_cost_of_a_hostile_body_is_linear_at_the_operator_port(
    operator: Api, method: str, path: str
) -> None:
    ids = {name: str(uuid4()) for name in ("event_id", "session_id", "approval_id")}
    parameters = ids | {"subject": "tax", "verb": "set", "decision": "approve"}
    headers = operator.bearer(await operator.world.operator_token())
    await _check_linear(operator, method, path.format_map(parameters), headers)


async def test_the_cost_of_a_random_body_is_linear(api: Api) -> None:
    parameters, loop = await _path_parameters(api), asyncio.get_running_loop()

    @settings(
        max_examples=60,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(route=st.sampled_from(_routes_with_body(ROUTES)), body=hostile())
    def check_body(route: tuple[str, str], body: tuple[bytes, bytes, bytes]) -> None:
        (method, path), (start, part, end) = route, body
        bodies = {repr(body): lambda size: filled(start, part, size - len(end)) + end}
        check = _check_linear(api, method, path.format_map(parameters), api.bearer(), bodies)
        # Hypothesis runs in a thread. The service runs in this loop, which counts its lines.
        asyncio.run_coroutine_threadsafe(check, loop).result(60)

    await asyncio.to_thread(check_body)
