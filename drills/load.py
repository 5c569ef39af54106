"""An open-loop load: requests start by the clock, whatever becomes of those before them."""

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import uuid4

from drills.client import CallFailedError, Client, Target

#: Requests that wait for an answer at once; more are not sent, and counted.
_WAITING_MAX = 2_000
_CREATED, _OK = 201, 200
CREATE, GET = "create", "get"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request, and what became of it; times are of the monotonic clock."""

    kind: str
    due: float  # when it was to be sent
    seconds: float  # from then to the end of its answer
    outcome: str  # `ok`, a status, or how it failed
    key: str  # of a create: its Idempotency-Key
    payment_id: str

    @property
    def is_ok(self) -> bool:
        """Tell whether the answer was the one that was hoped for."""
        return self.outcome == "ok"


@dataclass(slots=True)
class Load:
    """Creates payments and reads them, so many a second, until it is stopped or has sent all."""

    target: Target
    api_key: str
    per_s: float
    requests_max: int
    timeout_s: float = 30.0
    reads: float = 0.5  # the share of requests that read a payment
    body: Mapping[str, object] = field(
        default_factory=lambda: {"currency": "THB", "amount": "1590.00", "payer_uid": "drill"}
    )
    calls: list[Call] = field(default_factory=list[Call])
    is_stopped: bool = False
    _created: list[str] = field(default_factory=list[str])

    async def run(self) -> None:
        """Send requests by the clock, then wait for the last answers."""
        client = Client(self.target, self.timeout_s)
        start = time.monotonic()
        waiting: set[asyncio.Task[None]] = set()
        for number in range(self.requests_max):
            due = start + number / self.per_s
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            if self.is_stopped:
                break
            if len(waiting) >= _WAITING_MAX:
                self._keep(CREATE, due, "not sent", "", "")
                continue
            task = asyncio.create_task(self._call(client, due))
            waiting.add(task)
            task.add_done_callback(waiting.discard)
        await asyncio.gather(*waiting)
        await client.close()

    def stop(self) -> None:
        """Send no more; `run` ends with the last answer."""
        self.is_stopped = True

    async def _call(self, client: Client, due: float) -> None:
        if self._created and random.random() < self.reads:
            await self._get(client, due, random.choice(self._created))
        else:
            await self._create(client, due)

    async def _create(self, client: Client, due: float) -> None:
        key = str(uuid4())
        headers = self._headers() | {"Idempotency-Key": key, "Content-Type": "application/json"}
        body = json.dumps({**self.body, "payer_uid": key}).encode()
        try:
            reply = await client.call("POST", "/v1/payments", headers, body)
        except CallFailedError as error:
            self._keep(CREATE, due, str(error), key, "")
            return
        payment_id = json.loads(reply.body)["id"] if reply.status == _CREATED else ""
        if payment_id:
            self._created.append(payment_id)
        self._keep(CREATE, due, "ok" if payment_id else str(reply.status), key, payment_id)

    async def _get(self, client: Client, due: float, payment_id: str) -> None:
        try:
            reply = await client.call("GET", f"/v1/payments/{payment_id}", self._headers())
        except CallFailedError as error:
            self._keep(GET, due, str(error), "", payment_id)
            return
        is_right = reply.status == _OK and json.loads(reply.body)["id"] == payment_id
        self._keep(GET, due, "ok" if is_right else str(reply.status), "", payment_id)

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.api_key}"}

    def _keep(self, kind: str, due: float, outcome: str, key: str, payment_id: str) -> None:
        self.calls.append(
            Call(
                kind=kind,
                due=due,
                seconds=time.monotonic() - due,
                outcome=outcome,
                key=key,
                payment_id=payment_id,
            )
        )


def failures(calls: list[Call]) -> Counter[str]:
    """Count what was not answered as hoped, by kind of request and outcome."""
    return Counter(f"{call.kind}: {call.outcome}" for call in calls if not call.is_ok)
