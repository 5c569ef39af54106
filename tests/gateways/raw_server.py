"""A server that sends exactly the given bytes, whatever the request is."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from tests.support.tcp_server import TcpServer

READ_MAX = 64 * 1024


@asynccontextmanager
async def serve_responses(
    responses: bytes | list[bytes], requests: list[bytes] | None = None
) -> AsyncGenerator[str]:
    """Respond to every connection with `said`, or with its items in order; yield the URL."""

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = await reader.read(READ_MAX)
            if requests is not None:
                requests.append(request)
            writer.write(responses if isinstance(responses, bytes) else responses.pop(0))
            await writer.drain()
            writer.close()
            await writer.wait_closed()
        except ConnectionError:
            writer.transport.abort()

    async with TcpServer(respond) as server:
        yield f"http://127.0.0.1:{server.port}"


def reply(status: str, body: bytes, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body
