"""Raw HTTP connections: any bytes can be sent, and any response is read.

The first response on a connection belongs to the first request. It is checked against the contract,
like the responses that aiohttp clients read.
"""

import asyncio
import json
import re
import ssl
from dataclasses import dataclass
from typing import Any, Self

from payintent.http.listeners import MALFORMED_REQUEST
from tests.support.conformance import check
from tests.support.proxy import NAME
from tests.support.timeouts import PATIENCE_S

_FIRST_LINE = re.compile(rb"(GET|POST|PATCH) (/[!-~]*) HTTP/1\.1\r\n")


@dataclass(frozen=True)
class WireAnswer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Wire:
    """A connection to the service, without an HTTP client's restrictions."""

    def __init__(self, base: str, trusting: ssl.SSLContext | None = None) -> None:
        self._trusting = trusting
        self._host, _, port = base.removeprefix("http://").partition(":")
        self._port = int(port)
        self._sent = b""  # until the first response
        self._is_answered = False

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection(
            self._host,
            self._port,
            ssl=self._trusting,
            server_hostname=NAME if self._trusting else None,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.transport.abort()

    async def send(self, data: bytes) -> None:
        """Send bytes. The test does not fail if the connection is closed."""
        if not self._is_answered:
            self._sent += data
        try:
            self._writer.write(data)
            await self._writer.drain()
        except ConnectionError:
            pass

    async def settle(self) -> None:
        """Let the service, which runs in the same event loop, read the data before more is sent."""
        for _ in range(10):
            await asyncio.sleep(0)

    def half_close(self) -> None:
        """Close the sending side."""
        self._writer.write_eof()

    def read_slowly(self) -> None:
        """Stop reading from the service."""
        self._writer.transport.pause_reading()

    async def head(self) -> bytes:
        """Read the head of a response without its body."""
        async with asyncio.timeout(PATIENCE_S):
            return await self._reader.readuntil(b"\r\n\r\n")

    def is_lost(self) -> bool:
        """Return whether the connection is closed."""
        return self._writer.transport.is_closing()

    async def answer(self, timeout_s: float = PATIENCE_S) -> WireAnswer | None:
        """Read a response. Return None if the service has closed the connection."""
        async with asyncio.timeout(timeout_s):
            try:
                head = await self._reader.readuntil(b"\r\n\r\n")
                first, *lines = head.decode("latin-1").split("\r\n")[:-2]
                headers = {
                    name.lower(): value.strip()
                    for name, _, value in (line.partition(":") for line in lines)
                }
                size = int(headers.get("content-length", "0"))
                body = await self._reader.readexactly(size)
            except (asyncio.IncompleteReadError, ConnectionError):
                return None
        answer = WireAnswer(int(first.split(" ")[1]), headers, body)
        self._check_first(answer)
        return answer

    def _check_first(self, answer: WireAnswer) -> None:
        """Check a response against the contract, except for nginx's own responses."""
        request = None if self._is_answered else _FIRST_LINE.match(self._sent)
        self._is_answered, self._sent = True, b""
        is_ours = "x-request-id" in answer.headers and "server" not in answer.headers
        if (
            request and is_ours and answer.body != MALFORMED_REQUEST[1]
        ):  # a malformed request has no route
            path = request[2].decode().partition("?")[0]
            check(request[1].decode(), path, answer.status, answer.headers, answer.body)

    async def answers(self, timeout_s: float = PATIENCE_S) -> list[WireAnswer]:
        """Read every response until the service closes the connection."""
        responses = []
        while (response := await self.answer(timeout_s)) is not None:
            responses.append(response)
        return responses


async def exchange(base: str, data: bytes) -> WireAnswer | None:
    """Send bytes on a separate connection, and read the first response."""
    async with Wire(base) as wire:
        await wire.send(data)
        return await wire.answer()
