"""Listening sockets that several processes share, with about equally many connections each.

Without balancing, the process that wakes up first would accept a whole burst of connections, which
clients keep open. So a process that is ahead of a sharing process delays each accept, but only
briefly, because the process with fewer connections may hang.
"""

import asyncio
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress

from payintent.processes.board import ConnectionShare

_DELAY_S, _DELAYS_MAX = 0.001, 3
_RETRY_S = 1.0  # after an accept that failed, for example for lack of file descriptors


class SharedListener:
    def __init__(
        self, sockets: Sequence[socket.socket], backlog: int, share: ConnectionShare | None = None
    ) -> None:
        self.sockets = list(sockets)
        self._backlog = backlog
        self._share = share
        self._delays = 0
        self._opening: set[asyncio.Task[object]] = set()

    def start(
        self, make_protocol: Callable[[], asyncio.Protocol], count: Callable[[], int]
    ) -> None:
        """Start listening; `count` returns the number of connections of this process."""
        self._make_protocol = make_protocol
        self._count = count
        for listener in self.sockets:
            listener.listen(self._backlog)
            self._resume(listener)
        if self._share is not None:
            self._share.publish(0)

    def close(self) -> None:
        """Accept the pending connections, then close."""
        for listener in self.sockets:
            with suppress(OSError):
                while self._accept(listener):
                    pass
        self.leave()

    def leave(self) -> None:
        """Close without accepting pending connections, which remain for the sharing processes."""
        if self._share is not None:
            self._share.leave()
        for listener in self.sockets:
            asyncio.get_running_loop().remove_reader(listener)
            listener.close()
        self.sockets = []

    async def wait_closed(self) -> None:
        await asyncio.gather(*self._opening, return_exceptions=True)

    def _accept_or_delay(self, listener: socket.socket) -> None:
        if self._is_ahead() and self._delays < _DELAYS_MAX:
            self._delays += 1
            self._pause(listener, _DELAY_S)
            return
        self._delays = 0
        try:
            self._accept(listener)
        except OSError:
            self._pause(listener, _RETRY_S)

    def _is_ahead(self) -> bool:
        if self._share is None:
            return False
        count = self._count() + len(self._opening)
        self._share.publish(count)
        return self._share.is_ahead(count)

    def _pause(self, listener: socket.socket, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(listener)
        loop.call_later(seconds, self._resume, listener)

    def _resume(self, listener: socket.socket) -> None:
        if listener in self.sockets:
            asyncio.get_running_loop().add_reader(listener, self._accept_or_delay, listener)

    def _accept(self, listener: socket.socket) -> bool:
        """Accept a connection (`OSError`); return False if none is pending."""
        try:
            connection, _ = listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return False
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        loop = asyncio.get_running_loop()
        opening = loop.connect_accepted_socket(self._make_protocol, connection)
        task: asyncio.Task[object] = loop.create_task(opening)
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)
        if self._share is not None:
            self._share.publish(self._count() + len(self._opening))
        return True
