"""A server with scripted responses, and the calls that an SDK retries."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from aiohttp import web

#: The id of a different request, as if two processes shared a connection, and the correct id.
_REQUEST_IDS = {"mismatched": "another", "echoed": None}


@dataclass
class Scripted:
    """A server that returns these responses in order, and records idempotency keys."""

    answers: list[Any]
    url: str = ""
    keys: list[str | None] = field(default_factory=list)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.keys.append(request.headers.get("Idempotency-Key"))
        await request.read()
        answer = self.answers.pop(0)
        if answer == "reset":
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        if answer == "silence":
            await asyncio.sleep(30)
            return web.Response()
        if answer == "drip":  # every part arrives in time, but the whole response does not
            return await _drip(request)
        if answer == "garbled":  # as if a proxy failed or compressed incorrectly
            return web.Response(body=b"no gzip", headers={"Content-Encoding": "gzip"})
        if isinstance(answer, str) and answer in _REQUEST_IDS:
            request_id = _REQUEST_IDS[answer] or request.headers["X-Request-Id"]
            return web.json_response(PAYMENT, headers={"X-Request-Id": request_id})
        status, headers, body = answer
        return web.json_response(body, status=status, headers=headers)


async def _drip(request: web.Request) -> web.StreamResponse:
    dripping = web.StreamResponse(headers={"Content-Type": "application/json"})
    await dripping.prepare(request)
    with suppress(ConnectionError):
        for _ in range(50):
            await dripping.write(b" ")
            await asyncio.sleep(0.1)
    return dripping


@asynccontextmanager
async def scripted(*answers: Any) -> AsyncIterator[Scripted]:
    server = Scripted(list(answers))
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield server
    finally:
        await runner.cleanup()


def refusal(status: int, code: str, **headers: str) -> tuple[int, dict[str, str], Any]:
    response_headers = {name.replace("_", "-"): value for name, value in headers.items()}
    return status, response_headers, {"code": code, "message": "x"}


_AT = datetime(2026, 1, 2, tzinfo=UTC).isoformat().replace("+00:00", "Z")
PAYMENT = {
    **dict.fromkeys(("id", "checkout_id", "checkout_url", "status", "currency", "amount"), "1"),
    **dict.fromkeys(("payer_uid", "tax_amount", "refunded_amount", "tax_manager"), "1"),
    **dict.fromkeys(("created_at", "updated_at", "expires_at"), _AT),
    "merchant_id": 1,
    "include_pegged_assets": False,
    "metadata": {},
    "field_of_a_newer_service": {"x": 1},
}
GOOD: tuple[int, dict[str, str], Any] = (200, {}, PAYMENT)
UNAVAILABLE = refusal(503, "SERVICE_UNAVAILABLE")
BUSY = refusal(409, "CONFLICT", Retry_After="0")
_PAGE = (200, {}, {"data": [PAYMENT], "next_cursor": "2"})
_LAST_PAGE = (200, {}, {"data": [PAYMENT]})


#: The call, the server's responses, the result, and the expected number of requests.
_RETRIES: list[tuple[str, list[Any], Any, int]] = [
    ("create", [UNAVAILABLE, GOOD], "1", 2),
    ("create", ["reset", GOOD], "1", 2),
    ("create", ["silence", GOOD], "1", 2),
    ("create", ["drip", GOOD], "1", 2),
    ("create", ["garbled", GOOD], "1", 2),
    ("get", ["garbled"] * 3, ["NoAnswerError", None], 3),
    ("create", ["mismatched", "echoed"], "1", 2),
    ("get", ["mismatched"] * 3, ["NoAnswerError", None], 3),
    ("replay", ["mismatched"], ["NoAnswerError", None], 1),
    ("create", [BUSY, refusal(429, "RATE_LIMITED", Retry_After="0"), GOOD], "1", 3),
    ("create", [UNAVAILABLE, UNAVAILABLE, UNAVAILABLE, GOOD], ["ServiceError", None], 3),
    ("create", [refusal(429, "RATE_LIMITED", Retry_After="60")], ["RateLimitedError", 60], 1),
    ("create", [refusal(409, "IDEMPOTENCY_CONFLICT")], ["IdempotencyConflictError", None], 1),
    ("create", [refusal(422, "INVALID_AMOUNT")], ["InvalidAmountError", None], 1),
    ("create", [refusal(418, "A_NEW_CODE")], ["ApiError", None], 1),
    ("create", [(502, {}, "a page")] * 3, ["UnreadableAnswerError", None], 3),
    ("float", [], ["TypeError", None], 0),
    ("get", ["reset", UNAVAILABLE, GOOD], "1", 3),
    ("get", ["reset"] * 3, ["NoAnswerError", None], 3),
    ("replay", ["reset"], ["NoAnswerError", None], 1),
    ("replay", [UNAVAILABLE], ["ServiceError", None], 1),
    ("iterate", [_PAGE, UNAVAILABLE, _LAST_PAGE], "11", 3),
]


async def check_retries(run: Callable[[str], str]) -> None:
    """Run all calls with an SDK, and compare their results and numbers of requests."""
    async with AsyncExitStack() as stack:
        servers = [
            await stack.enter_async_context(scripted(*answers)) for _, answers, _, _ in _RETRIES
        ]
        calls = [
            (server.url, 0.5 if {"silence", "drip"} & set(map(str, answers)) else 20.0, kind)
            for server, (kind, answers, _, _) in zip(servers, _RETRIES, strict=True)
        ]
        endings = json.loads(await asyncio.to_thread(run, json.dumps(calls)))
    for case, server, ending in zip(_RETRIES, servers, endings, strict=True):
        kind, _, expected, request_count = case
        assert (ending, len(server.keys)) == (expected, request_count), case
        assert len(set(server.keys)) == min(request_count, 1), case
        assert all((key is not None) == (kind == "create") for key in server.keys), case
