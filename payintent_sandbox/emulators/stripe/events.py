"""The events that localstripe does not send: signed as Stripe signs, repeated until received."""

import asyncio
import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from payintent_sandbox.emulators.stripe.model import Json

API_VERSION = "2026-10-28.endive"
RETRY_WAITS_S = (0.5, 2, 10, 60)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where events go, and the secret that signs them."""

    url: str
    secret: str = field(repr=False)


class Events:
    """The sender; it works while the application runs, which gives it `http`."""

    def __init__(self) -> None:
        self.endpoint: Endpoint | None = None
        self.http: aiohttp.ClientSession | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Give up what was not delivered."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def send(self, kind: str, about: Json) -> None:
        """Send an event about an object as it is now, in the background."""
        event = {
            "id": f"evt_{secrets.token_hex(12)}",
            "object": "event",
            "api_version": API_VERSION,
            "created": int(time.time()),
            "data": {"object": about},
            "livemode": False,
            "type": kind,
        }
        if self.endpoint is not None:
            self._start(self._deliver(self.endpoint, json.dumps(event).encode()))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _deliver(self, endpoint: Endpoint, body: bytes) -> None:
        for wait_s in (*RETRY_WAITS_S, None):
            if await self._try(endpoint, body) or wait_s is None:
                return
            await asyncio.sleep(wait_s)

    async def _try(self, endpoint: Endpoint, body: bytes) -> bool:
        assert self.http is not None  # noqa: S101 - only asked while the application runs
        headers = {
            "Content-Type": "application/json; charset=utf-8",
            "Stripe-Signature": signature(endpoint.secret, body, int(time.time())),
        }
        try:
            async with self.http.post(
                endpoint.url, data=body, headers=headers, allow_redirects=False
            ) as answer:
                return answer.status // 100 == 2  # noqa: PLR2004 - 2xx
        except (aiohttp.ClientError, OSError, TimeoutError):
            return False


def signature(secret: str, body: bytes, timestamp: int) -> str:
    """Word `Stripe-Signature`."""
    content = f"{timestamp}.".encode() + body
    digest = hmac.new(secret.encode(), content, hashlib.sha256).hexdigest()
    return f"t={timestamp},v1={digest}"
