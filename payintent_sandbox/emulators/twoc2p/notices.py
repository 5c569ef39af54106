"""Backend notifications: signed JWTs, repeated until a merchant answers 200."""

import json

import aiohttp

from payintent_sandbox.emulators.twoc2p.envelope import sign
from payintent_sandbox.emulators.twoc2p.later import Later
from payintent_sandbox.emulators.twoc2p.model import Invoice

RETRY_WAITS_S = (10, 60, 300, 900, 3_600)
TRY_TIMEOUT_S = 10  # of real time: a merchant's answer does not come faster in scaled time
ANSWER_BYTES_MAX = 16 * 1024
_OK = 200


class Notices:
    """The sender; open while the application runs."""

    def __init__(self, later: Later) -> None:
        self._later = later
        self._http: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        """Get ready to send."""
        self._http = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=TRY_TIMEOUT_S), cookie_jar=aiohttp.DummyCookieJar()
        )

    async def close(self) -> None:
        """Close the connections."""
        if self._http:
            await self._http.close()

    async def send(self, invoice: Invoice) -> None:
        """Tell the merchant what has become of an invoice, however often it takes."""
        content = json.dumps(invoice.view(notified=True)).encode()
        body = json.dumps({"payload": sign(content, invoice.account.secret_key)}).encode()
        for wait_s in (0, *RETRY_WAITS_S):
            await self._later.wait(wait_s)
            if await self._try(invoice.order.backendReturnUrl, body):
                return

    async def _try(self, url: str, body: bytes) -> bool:
        assert self._http is not None  # noqa: S101 - open() came first
        headers = {"Content-Type": "application/json; charset=utf-8"}
        try:
            async with self._http.post(
                url, data=body, headers=headers, allow_redirects=False
            ) as answer:
                await answer.content.read(ANSWER_BYTES_MAX)
                return answer.status == _OK
        except (aiohttp.ClientError, TimeoutError, OSError):
            return False
