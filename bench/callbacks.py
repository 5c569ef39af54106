"""Measure the latency of callbacks and of the resulting webhooks.

The benchmark acts as both the gateway and the shop.
"""

import asyncio
import hashlib
import hmac
import json
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, cast
from uuid import uuid4

import aiohttp
import asyncpg

from bench.http import body_start, request
from bench.installation import Installation
from bench.load import CREATE_BODY
from payintent.core import ids
from payintent.runtime.id_generator import IdGenerator

_CALLERS = 32
# These statements copy a payment, copy its session, and then link the two copies.
_COPIES = (
    """
    INSERT INTO payment
    SELECT copy.*
    FROM unnest($2::uuid[], $3::uuid[]) AS n (session_id, id)
    JOIN session s ON s.id = $1
    JOIN payment p ON p.id = s.payment_id
    CROSS JOIN LATERAL jsonb_populate_record(p, jsonb_build_object(
        'id', n.id, 'session_id', NULL, 'status', 'PENDING',
        'checkout_id', 'cs_' || left(md5(n.id::text), 16))) copy
    """,
    """
    INSERT INTO session
    SELECT copy.*
    FROM unnest($2::uuid[], $3::uuid[]) AS n (id, payment_id)
    JOIN session s ON s.id = $1
    CROSS JOIN LATERAL jsonb_populate_record(s, jsonb_build_object(
        'id', n.id, 'payment_id', n.payment_id)) copy
    """,
    """
    UPDATE payment p
    SET status = 'PROCESSING', session_id = n.session_id
    FROM unnest($2::uuid[], $3::uuid[]) AS n (session_id, id)
    WHERE p.id = n.id AND $1::uuid IS NOT NULL
    """,
)
_PREPARED_AT_ONCE = 16
_ARRIVE_WAIT_S = 30.0
_PAYMENT_ID = re.compile(rb"pay_[0-9A-Za-z]{22}")
_RECEIVED = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
_BODY = json.loads(CREATE_BODY)


@dataclass(frozen=True, slots=True)
class Pending:
    """A payment in PROCESSING, and the callback that reports it as paid."""

    payment_id: str
    callback: bytes


@dataclass(frozen=True, slots=True)
class Latencies:
    """Seconds from each callback's due time to its response, and to the webhook's first byte."""

    answered_s: list[float]
    webhook_s: list[float]


class _Receiver(asyncio.Protocol):
    """The shop. It records when the first byte of each payment's first webhook arrived."""

    def __init__(self, first_byte: dict[str, float], on_answer: Callable[[], None]) -> None:
        self._first_byte = first_byte
        self._on_answer = on_answer
        self._buffer = b""
        self._began = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if not self._buffer:
            self._began = time.perf_counter()
        self._buffer += data
        start = body_start(self._buffer)
        if not start:
            return
        match = _PAYMENT_ID.search(self._buffer, start)
        self._buffer = b""
        if match:
            self._first_byte.setdefault(match[0].decode(), self._began)
        self._transport.write(_RECEIVED)
        self._on_answer()


class _Caller(asyncio.Protocol):
    """A connection from the gateway."""

    def __init__(self) -> None:
        self._buffer = b""
        self._answer: asyncio.Future[float] | None = None  # while a call awaits its response

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    async def call(self, message: bytes) -> float:
        """Post a callback, and return the time of its response."""
        self._answer = answer = asyncio.get_running_loop().create_future()
        self._transport.write(message)
        return await answer

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if self._answer is None or not body_start(self._buffer):
            return
        if self._buffer.startswith(b"HTTP/1.1 200 "):
            self._answer.set_result(time.perf_counter())
        else:
            self._answer.set_exception(RuntimeError(self._buffer.decode(errors="replace")))
        self._buffer = b""

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionError(f"the API closed the connection: {exc}"))

    def close(self) -> None:
        self._transport.close()


async def prepare(installation: Installation, count: int) -> list[Pending]:
    """Create payments and select a card for each, using the API and the real simulator."""
    limit = asyncio.Semaphore(_PREPARED_AT_ONCE)
    async with aiohttp.ClientSession() as http:

        async def one() -> Pending:
            async with limit:
                payment_id, selected = await _select(installation, http)
                return Pending(payment_id, _callback(installation, selected))

        return list(await asyncio.gather(*(one() for _ in range(count))))


async def prepare_copies(
    installation: Installation, database: asyncpg.Connection, count: int
) -> list[Pending]:
    """Prepare one payment with the API, and copy its rows for the others."""
    async with aiohttp.ClientSession() as http:
        _, selected = await _select(installation, http)
    first = ids.parse_id(ids.SESSION, selected["session"]["id"])
    id_generator = IdGenerator()
    id_pairs = [(id_generator.new_id(), id_generator.new_id()) for _ in range(count)]
    columns = [list(column) for column in zip(*id_pairs, strict=True)]
    for statement in _COPIES:
        await database.execute(statement, first, *columns)
    return [
        Pending(
            ids.format_id(ids.PAYMENT, payment_id),
            _callback(
                installation,
                selected | {"session": {"id": ids.format_id(ids.SESSION, session_id)}},
            ),
        )
        for session_id, payment_id in id_pairs
    ]


async def storm(installation: Installation, pending: list[Pending]) -> None:
    """Post all callbacks over 32 connections, sequentially on each connection."""
    waiting = iter(pending)

    async def call() -> None:
        caller = await _connect(installation)
        for item in waiting:
            await caller.call(item.callback)
        caller.close()

    await asyncio.gather(*(call() for _ in range(_CALLERS)))


async def measure(installation: Installation, pending: list[Pending], per_s: float) -> Latencies:
    """Post callbacks at a steady rate, regardless of responses, and wait for every webhook."""
    loop = asyncio.get_running_loop()
    first_byte: dict[str, float] = {}
    arrived = asyncio.Event()

    def count() -> None:
        if len(first_byte) == len(pending):
            arrived.set()

    ports = installation.world.ports
    shop = await loop.create_server(lambda: _Receiver(first_byte, count), "127.0.0.1", ports.shop)
    idle: asyncio.Queue[_Caller] = asyncio.Queue()
    callers = [await _connect(installation) for _ in range(_CALLERS)]
    for caller in callers:
        idle.put_nowait(caller)

    async def call(one: Pending) -> tuple[str, float, float]:
        sent_s = time.perf_counter()
        # The latency includes the wait for a free caller: real callbacks do not wait for us.
        caller = await idle.get()
        answered = await caller.call(one.callback)
        idle.put_nowait(caller)
        return one.payment_id, sent_s, answered

    start = loop.time()
    calls: list[asyncio.Task[tuple[str, float, float]]] = []
    for number, one in enumerate(pending):
        await asyncio.sleep(start + number / per_s - loop.time())
        calls.append(loop.create_task(call(one)))
    timings = await asyncio.gather(*calls)
    async with asyncio.timeout(_ARRIVE_WAIT_S):
        await arrived.wait()
    for caller in callers:
        caller.close()
    shop.close()
    return Latencies(
        [answered_s - sent_s for _, sent_s, answered_s in timings],
        [first_byte[payment_id] - sent_s for payment_id, sent_s, _ in timings],
    )


async def _select(
    installation: Installation, http: aiohttp.ClientSession
) -> tuple[str, dict[str, Any]]:
    """Create a payment and select a card; return the payment's id and the selection response."""
    base = installation.world.api_url
    headers = {
        "Authorization": f"Bearer {installation.api_key}",
        "Idempotency-Key": str(uuid4()),
    }
    payment = await _post(http, f"{base}/payments", _BODY, headers)
    checkout = f"{base}/checkout/{payment['checkout_id']}/quotes"
    async with http.get(checkout) as answer:
        [card, *_] = (await answer.json())["quotes"]
    selection = {"payment_method_id": card["payment_method_id"]}
    return payment["id"], await _post(http, checkout, selection, {})


async def _connect(installation: Installation) -> _Caller:
    loop, port = asyncio.get_running_loop(), installation.world.ports.api
    return (await loop.create_connection(_Caller, "127.0.0.1", port))[1]


async def _post(
    http: aiohttp.ClientSession, url: str, body: dict[str, Any], headers: dict[str, str]
) -> dict[str, Any]:
    async with http.post(url, json=body, headers=headers) as answer:
        if answer.status not in {200, 201}:
            raise RuntimeError(f"{url}: {answer.status} {await answer.text()}")
        return await answer.json()


def _callback(installation: Installation, selected: dict[str, Any]) -> bytes:
    """Create and sign the simulator's callback for a paid session."""
    quote = selected["quote"]
    money = {
        "amount_minor": int(Decimal(quote["total_amount"]) * 100),
        "currency": quote["currency"],
    }
    url = selected["next_action"]["redirect"]["url"]
    session = {
        "id": url.rpartition("/")[2],
        "reference": selected["session"]["id"],
        "status": "paid",
        "pay_url": url,
        **money,
        "capture": {"id": f"cap_{secrets.token_hex(8)}", **money, "at": "2026-01-01T00:00:00.000Z"},
    }
    event_id, timestamp = f"evt_{secrets.token_hex(12)}", str(int(time.time()))
    event = {"id": event_id, "type": "session.paid", "session": session}
    body = json.dumps(event, separators=(",", ":")).encode()
    stored_settings = installation.world.kept
    content = f"{event_id}.{timestamp}.".encode() + body
    signature = hmac.new(
        stored_settings["simulator"]["signing_secret"].encode(), content, hashlib.sha256
    )
    headers = {
        "content-type": "application/json",
        "sim-id": event_id,
        "sim-timestamp": timestamp,
        "sim-signature": f"v1={signature.hexdigest()}",
    }
    return request(
        "POST", f"/v1/callbacks/simulator/{stored_settings['account_id']}", headers, body
    )
