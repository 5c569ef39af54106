"""Generates an open-loop load: requests start on schedule, even if earlier requests are slow."""

import asyncio
import json
import math
import random
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import uuid4

from drills.client import CallFailedError, Client, Reply, Target

#: Maximum number of concurrent requests. Further requests are not sent, but counted as failed.
_WAITING_MAX = 2_000
_CREATED, _OK = 201, 200
CREATE, GET, CANCEL = "create", "get", "cancel"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A request and its outcome. Times are from the monotonic clock."""

    kind: str
    due: float  # scheduled start
    seconds: float  # from the scheduled start to the end of the response
    outcome: str  # `ok`, a status code, or the kind of failure
    key: str  # Idempotency-Key of a create request
    payment_id: str

    @property
    def is_ok(self) -> bool:
        return self.outcome == "ok"


@dataclass(slots=True)
class Load:
    """Creates, reads and cancels payments at a fixed rate.

    It ends after `requests_max` requests, or earlier if `stop` is called.
    """

    target: Target
    api_key: str
    per_s: float
    requests_max: int
    timeout_s: float = 30.0
    idle_max_s: float = math.inf  # maximum idle time of reused connections; 0 disables reuse
    reads: float = 0.5  # share of requests that read a payment
    cancels: float = 0.0  # share of requests that cancel a payment, which creates an event
    body: Mapping[str, object] = field(
        default_factory=lambda: {"currency": "THB", "amount": "1590.00", "payer_uid": "drill"}
    )
    calls: list[Call] = field(default_factory=list[Call])
    is_stopped: bool = False
    _created: list[str] = field(default_factory=list[str])
    _open: list[str] = field(default_factory=list[str])  # payments that are not cancelled

    async def run(self) -> None:
        """Send requests on schedule, then wait for the last responses."""
        client = Client(self.target, self.timeout_s, self.idle_max_s)
        start = time.monotonic()
        waiting: set[asyncio.Task[None]] = set()
        async with asyncio.TaskGroup() as work:
            for number in range(self.requests_max):
                due = start + number / self.per_s
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                if self.is_stopped:
                    break
                if len(waiting) >= _WAITING_MAX:
                    self.calls.append(_made(CREATE, due, "not sent"))
                    continue
                task = work.create_task(self._call(client, due))
                waiting.add(task)
                task.add_done_callback(waiting.discard)
        await client.close()

    def stop(self) -> None:
        """Stop sending requests. `run` returns after the last response."""
        self.is_stopped = True

    async def resend(self, client: Client) -> list[Call]:
        """Repeat each unsuccessful create with the same key, and return the new calls."""
        fine = {call.key for call in self.calls if call.is_ok}
        open_keys = {call.key for call in self.calls if call.kind == CREATE} - fine - {""}
        return [await self._create(client, time.monotonic(), key) for key in sorted(open_keys)]

    async def _call(self, client: Client, due: float) -> None:
        chance = random.random()
        if self._created and chance < self.reads:
            call = await self._get(client, due, random.choice(self._created))
        elif self._open and chance < self.reads + self.cancels:
            call = await self._cancel(client, due, self._open.pop())
        else:
            call = await self._create(client, due, str(uuid4()))
            if call.is_ok:
                self._created.append(call.payment_id)
                self._open.append(call.payment_id)
        self.calls.append(call)

    async def _create(self, client: Client, due: float, key: str) -> Call:
        headers = self._headers() | {"Idempotency-Key": key, "Content-Type": "application/json"}
        body = json.dumps({**self.body, "payer_uid": key}).encode()
        try:
            reply = await client.call("POST", "/v1/payments", headers, body)
        except CallFailedError as error:
            return _made(CREATE, due, str(error), key=key)
        if reply.status != _CREATED:
            return _made(CREATE, due, str(reply.status), key=key)
        return _made(CREATE, due, "ok", key=key, payment_id=_id(reply))

    async def _cancel(self, client: Client, due: float, payment_id: str) -> Call:
        path = f"/v1/payments/{payment_id}/cancel"
        return await self._ask(client, due, (CANCEL, "POST", path), payment_id)

    async def _get(self, client: Client, due: float, payment_id: str) -> Call:
        path = f"/v1/payments/{payment_id}"
        return await self._ask(client, due, (GET, "GET", path), payment_id)

    async def _ask(
        self, client: Client, due: float, what: tuple[str, str, str], payment_id: str
    ) -> Call:
        kind, method, path = what
        try:
            reply = await client.call(method, path, self._headers())
        except CallFailedError as error:
            return _made(kind, due, str(error), payment_id=payment_id)
        # The response to a cancel contains no payment. A read must return the requested payment.
        is_right = kind == CANCEL or reply.status != _OK or _id(reply) == payment_id
        outcome = "ok" if reply.status == _OK and is_right else str(reply.status)
        return _made(kind, due, outcome, payment_id=payment_id)

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.api_key}"}


def _id(reply: Reply) -> str:
    return json.loads(reply.body)["id"]


def _made(kind: str, due: float, outcome: str, *, key: str = "", payment_id: str = "") -> Call:
    """Return the record of a request that has just ended."""
    return Call(
        kind=kind,
        due=due,
        seconds=time.monotonic() - due,
        outcome=outcome,
        key=key,
        payment_id=payment_id,
    )


def failures(calls: list[Call]) -> Counter[str]:
    """Count failed requests by kind and outcome."""
    return Counter(f"{call.kind}: {call.outcome}" for call in calls if not call.is_ok)
