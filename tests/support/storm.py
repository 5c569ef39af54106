"""Send thousands of concurrent requests to real API processes, each on a separate socket."""

import asyncio
import os
import resource
import socket
import struct
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import cast

from payintent.runtime.settings import Settings
from tests.e2e.drill import variables_of
from tests.http.wire import WireAnswer
from tests.support import processes
from tests.support.ports import free_port
from tests.support.timeouts import PATIENCE_S

_LOOK_S = 0.05
#: While thousands of connections are being opened, the first ones are idle.
_PATIENT = {
    "PAYINTENT_HEADER_TIMEOUT_S": "100",
    "PAYINTENT_CONNECTIONS_MAX": "20000",
    "PAYINTENT_REQUESTS_WAITING_MAX": "20000",
}
_SPARE_FILES = 500
_CONNECTING_AT_ONCE = 200
#: A separate address, so that the thousands of client ports do not collide with listening ports.
_FROM = ("127.0.0.2", 0)
_IP_BIND_ADDRESS_NO_PORT = 24  # from ip(7); Python has no constant for it


@contextmanager
def many_files() -> Iterator[int]:
    """Raise the limit on open files to its maximum; return the number of usable sockets."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        yield hard - _SPARE_FILES if hard != resource.RLIM_INFINITY else 1_000_000
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextmanager
def api_process(settings: Settings, folder: Path) -> Iterator[int]:
    """Run an API process for the duration of the block, and yield its port."""
    port = free_port()
    log = folder / f"api-{port}.log"
    with log.open("wb") as output:
        running = processes.start(
            *("payintent", "api", "--processes", "1", "--port", str(port)),
            env=os.environ | variables_of(settings) | _PATIENT,
            output=output,
        )
    try:
        _wait_ready(running, port, log)
        yield port
    finally:
        running.terminate()
        status = running.wait(PATIENCE_S)
    assert status == 0, log.read_text()
    assert '"event": "bug"' not in log.read_text()


def _wait_ready(running: processes.Process, port: int, log: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        assert running.poll() is None, log.read_text()
        with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz"):
            return
        time.sleep(_LOOK_S)
    raise AssertionError(f"the API is not ready: {log.read_text()}")


class _Caller(asyncio.Protocol):
    """A connection that sends requests without waiting, and stores the responses."""

    def __init__(self) -> None:
        self._buffer = b""
        self._answers: list[WireAnswer] = []
        self._wanted = 0
        self._done: asyncio.Future[list[WireAnswer]] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def send(self, requests: Sequence[bytes]) -> "asyncio.Future[list[WireAnswer]]":
        self._wanted = len(requests)
        self._transport.write(b"".join(requests))
        return self._done

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (answer := self._next()) is not None:
            self._answers.append(answer)
        if len(self._answers) == self._wanted:
            self._done.set_result(self._answers)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._done.done():
            self._done.set_exception(ConnectionError(f"the API hung up: {exc}"))
            self._done.exception()  # asyncio must not warn if nobody awaits it

    def _next(self) -> WireAnswer | None:
        head, separator, rest = self._buffer.partition(b"\r\n\r\n")
        if not separator:
            return None
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines)
        }
        size = int(headers["content-length"])
        if len(rest) < size:
            return None
        self._buffer = rest[size:]
        return WireAnswer(int(first.split(" ")[1]), headers, rest[:size])

    def hang_up(self) -> None:
        """Close the connection immediately, discarding data in transit."""
        self._transport.abort()


async def callers(ports: Sequence[int], count: int) -> list[_Caller]:
    """Open connections, alternating between the ports."""
    loop, limit = asyncio.get_running_loop(), asyncio.Semaphore(_CONNECTING_AT_ONCE)

    async def one(number: int) -> _Caller:
        async with limit:
            ours = _socket()
            await loop.sock_connect(ours, ("127.0.0.1", ports[number % len(ports)]))
            return (await loop.create_connection(_Caller, sock=ours))[1]

    return list(await asyncio.gather(*(one(number) for number in range(count))))


def _socket() -> socket.socket:
    ours = socket.socket()
    ours.setblocking(False)
    # The kernel chooses a local port for each peer, and can reuse it immediately.
    ours.setsockopt(socket.IPPROTO_IP, _IP_BIND_ADDRESS_NO_PORT, 1)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    ours.bind(_FROM)
    return ours


async def storm(
    ports: Sequence[int], requests: Sequence[bytes], sockets_max: int
) -> list[WireAnswer]:
    """Send all requests at once, each on a separate connection if there are enough sockets."""
    open_ = await callers(ports, min(len(requests), sockets_max))
    async with asyncio.timeout(PATIENCE_S):
        answers = await asyncio.gather(
            *(caller.send(requests[at :: len(open_)]) for at, caller in enumerate(open_))
        )
    for item in open_:
        item.hang_up()
    return [answer for some in answers for answer in some]
