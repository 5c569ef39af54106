"""A plain HTTP/1.1 client with persistent connections that never repeats a request.

HTTP libraries repeat a GET, and some also repeat a POST, if a persistent connection is closed. A
drill must count these failures, because a client that does not repeat requests encounters them.
"""

import asyncio
import math
import ssl
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus

_NO_BODY = frozenset({HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED})


@dataclass(frozen=True, slots=True)
class Target:
    """The address of a server, and the TLS context that verifies its certificate."""

    host: str
    port: int
    tls: ssl.SSLContext | None = None
    name: str = ""  # host name in the certificate and the Host header


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    body: bytes


class CallFailedError(Exception):
    """No complete response arrived. The message is a short, stable name of the failure."""


@dataclass(slots=True)
class _Connection:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    idle_since: float = 0.0


class Client:
    """Sends each request once, over an idle or a new connection.

    A connection that was idle for `idle_max_s` is not reused. 0 means that none is ever reused.
    """

    def __init__(self, target: Target, timeout_s: float, idle_max_s: float = math.inf) -> None:
        self._target = target
        self._timeout_s = timeout_s
        self._idle_max_s = idle_max_s
        self._free: list[_Connection] = []

    async def call(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes = b""
    ) -> Reply:
        """Send a request and return the response, or raise `CallFailedError`."""
        lines = [f"{method} {path} HTTP/1.1", f"Host: {self._target.name or self._target.host}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if body or method != "GET":
            lines.append(f"Content-Length: {len(body)}")
        request = "\r\n".join([*lines, "", ""]).encode() + body
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._exchange(request)
        except TimeoutError as error:
            raise CallFailedError("no response in time") from error

    async def close(self) -> None:
        for connection in self._free:
            await _close(connection)
        self._free.clear()

    async def _exchange(self, request: bytes) -> Reply:
        connection = await self._connection()
        is_kept = False
        try:
            connection.writer.write(request)
            reply, is_kept = await _read(connection.reader)
        except asyncio.IncompleteReadError as error:
            raise CallFailedError("closed" if error.partial else "closed without reply") from error
        except OSError as error:
            raise CallFailedError("reset") from error
        finally:
            if is_kept and self._idle_max_s > 0:
                connection.idle_since = time.monotonic()
                self._free.append(connection)
            else:
                connection.writer.transport.abort()
        return reply

    async def _connection(self) -> _Connection:
        while self._free:
            connection = self._free.pop()
            is_open = not connection.reader.at_eof() and not connection.writer.is_closing()
            if is_open and time.monotonic() - connection.idle_since < self._idle_max_s:
                return connection
            connection.writer.transport.abort()
        target = self._target
        name = target.name if target.tls else None
        try:
            streams = await asyncio.open_connection(
                target.host, target.port, ssl=target.tls, server_hostname=name
            )
        except OSError as error:
            raise CallFailedError("not connected") from error
        return _Connection(*streams)


async def _read(reader: asyncio.StreamReader) -> tuple[Reply, bool]:
    """Return a response, and whether the connection can be reused."""
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")[:-2]
    fields = {
        name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)
    }
    status = int(first.split(" ", 2)[1])
    if fields.get("transfer-encoding", "").lower() == "chunked":
        body = await _read_chunks(reader)
    elif status in _NO_BODY:
        body = b""
    else:
        body = await reader.readexactly(int(fields["content-length"]))
    return Reply(status, body), fields.get("connection", "").lower() != "close"


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while size := int((await reader.readuntil(b"\r\n")).partition(b";")[0], 16):
        body += await reader.readexactly(size)
        await reader.readexactly(2)
    await reader.readuntil(b"\r\n")
    return body


async def _close(connection: _Connection) -> None:
    connection.writer.close()
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(1):
            await connection.writer.wait_closed()
