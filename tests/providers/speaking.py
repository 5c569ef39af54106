"""A server that says exactly the bytes it is told to, whatever it is asked."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

READ_MAX = 64 * 1024


@asynccontextmanager
async def speaking(said: bytes, asked: list[bytes] | None = None) -> AsyncGenerator[str]:
    """Answer every connection with `said`, then close it; gives the URL."""

    tasks: set[asyncio.Task[None]] = set()

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            heard = await reader.read(READ_MAX)
            if asked is not None:
                asked.append(heard)
            writer.write(said)
            await writer.drain()
            writer.close()
            await writer.wait_closed()
        except (ConnectionError, asyncio.CancelledError):
            writer.transport.abort()

    server = await asyncio.start_server(speak, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)  # in which aborted connections are closed


def reply(status: str, body: bytes, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body
