"""Sockets that several processes accept from, each about as many connections as the others.

Whichever process is awake first would take all connections that come at once, and clients keep
them. So a process that has more than another waits a moment before it takes a further one, and
takes it all the same where the other does not: that one may hang.
"""

import asyncio
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress

from payintent.processes.board import ConnectionShare

_WAIT_S, _WAITS_MAX = 0.001, 3
_NO_FILES_S = 1.0  # until the next try where no file can be opened


class SharedListener:
    def __init__(
        self, sockets: Sequence[socket.socket], backlog: int, share: ConnectionShare | None = None
    ) -> None:
        self.sockets = list(sockets)
        self._backlog = backlog
        self._share = share
        self._waits = 0
        self._opening: set[asyncio.Task[object]] = set()

    def start(
        self, make_protocol: Callable[[], asyncio.Protocol], count: Callable[[], int]
    ) -> None:
        """Listen; `count` tells how many connections this process has."""
        self._make_protocol = make_protocol
        self._count = count
        for listener in self.sockets:
            listener.listen(self._backlog)
            self._resume(listener)
        if self._share is not None:
            self._share.publish(0)

    def close(self) -> None:
        """Accept what waits, then close."""
        for listener in self.sockets:
            with suppress(OSError):
                while self._take(listener):
                    pass
        self.leave()

    def leave(self) -> None:
        """Close; what waits to be accepted is left to the other processes."""
        if self._share is not None:
            self._share.leave()
        for listener in self.sockets:
            asyncio.get_running_loop().remove_reader(listener)
            listener.close()
        self.sockets = []

    async def wait_closed(self) -> None:
        await asyncio.gather(*self._opening, return_exceptions=True)

    def _accept(self, listener: socket.socket) -> None:
        if self._is_ahead() and self._waits < _WAITS_MAX:
            self._waits += 1
            self._pause(listener, _WAIT_S)
            return
        self._waits = 0
        try:
            self._take(listener)
        except OSError:
            self._pause(listener, _NO_FILES_S)

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
            asyncio.get_running_loop().add_reader(listener, self._accept, listener)

    def _take(self, listener: socket.socket) -> bool:
        """Accept a connection (`OSError`); False where none waits."""
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
