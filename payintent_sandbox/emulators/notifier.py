"""HTTP notifications to merchants, repeated until they are acknowledged."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp
from yarl import URL

from payintent_sandbox.emulators.clock import ScaledClock

ATTEMPT_TIMEOUT_S = 10  # in real time, because merchants do not respond faster in scaled time
RESPONSE_BYTES_MAX = 16 * 1024

#: Makes the attempt with this number (from 1), and returns whether it was acknowledged.
Attempt = Callable[[int], Awaitable[bool]]


@dataclass(frozen=True, slots=True)
class MerchantAnswer:
    """The merchant's response to a request; without a response, `error` is the exception."""

    status: int = 0
    body: bytes = b""
    error: str = ""

    @property
    def is_success(self) -> bool:
        """Return whether the status is 2xx."""
        return self.status // 100 == 2  # noqa: PLR2004


class Notifier:
    """Sends notifications within the `running` context.

    The gateway's `Attempt` returns whether the notification was acknowledged.
    """

    def __init__(self, clock: ScaledClock, retry_waits_s: Sequence[float]) -> None:
        self.clock = clock
        self._retry_waits_s = retry_waits_s
        self._http: aiohttp.ClientSession | None = None

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Keep the connections open.

        On exit, cancel the clock's tasks and close the connections.
        """
        timeout = aiohttp.ClientTimeout(total=ATTEMPT_TIMEOUT_S)
        async with aiohttp.ClientSession(
            timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()
        ) as self._http:
            try:
                yield
            finally:
                await self.clock.stop()

    async def send(self, attempt: Attempt) -> None:
        """Send a notification until it is acknowledged or the retries are used up."""
        if not await attempt(1):
            await self._retry(attempt)

    async def send_once(self, attempt: Attempt) -> None:
        """Make the first attempt; retries, if any, run in the background."""
        if not await attempt(1):
            self.clock.start(self._retry(attempt))

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> MerchantAnswer:
        """Send a request; redirects are not followed."""
        assert self._http is not None  # noqa: S101 - the emulator is running
        try:
            async with self._http.post(
                URL(url, encoded=True), data=body, headers=headers, allow_redirects=False
            ) as answer:
                return MerchantAnswer(answer.status, await answer.content.read(RESPONSE_BYTES_MAX))
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            return MerchantAnswer(error=type(error).__name__)

    async def _retry(self, attempt: Attempt) -> None:
        for number, wait_s in enumerate(self._retry_waits_s, start=2):
            await self.clock.wait(wait_s)
            if await attempt(number):
                return
