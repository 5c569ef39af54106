"""A supervised process: its shared memory, and its connection to the supervisor."""

import asyncio
import os
import signal
import socket
import threading
import time
from collections.abc import Mapping, Sequence

from prometheus_client import CollectorRegistry

from payintent.runtime.log import get_logger
from payintent.runtime.processes import metrics
from payintent.runtime.processes.board import Board, ConnectionShare

READY = b"+"
_PUBLISH_EVERY_S = 5.0  # collecting a thousand series takes a quarter of a second
_END_MAX_S = 25.0  # from the supervisor's death until the process is killed

_log = get_logger("process")


class Member:
    """A supervised process, with a thread that publishes its metrics every 5 s.

    If the supervisor dies, its end of the socket pair is closed, and the thread ends the process
    with SIGTERM.
    """

    def __init__(
        self,
        number: int,
        board: Board,
        sockets: Mapping[str, Sequence[socket.socket]],
        channel: socket.socket,
    ) -> None:
        self.number = number
        self.sockets = sockets
        self._board = board
        self._channel = channel
        self._serial = time.time_ns()
        self._is_closing = threading.Event()
        self._publish_lock = threading.Lock()  # scrapes publish from their own threads
        self._thread = threading.Thread(target=self._run, name="supervisor", daemon=True)

    def start(self) -> None:
        self._channel.settimeout(_PUBLISH_EVERY_S)
        self._thread.start()

    def report_ready(self) -> None:
        self._channel.send(READY)

    def make_connection_share(self) -> ConnectionShare:
        return ConnectionShare(self._board, self.number)

    def make_registry(self) -> CollectorRegistry:
        return metrics.make_merged_registry(self._board, self._publish)

    def close(self) -> None:
        """Stop the thread, and publish the final metrics."""
        self._is_closing.set()
        self._channel.shutdown(socket.SHUT_RDWR)  # wakes the thread
        self._thread.join()
        self._publish()
        self._channel.close()

    def _publish(self) -> None:
        with self._publish_lock:
            has_published = metrics.publish(self._board, self.number, self._serial)
        if not has_published:
            _log.error("metrics_too_many", number=self.number)

    def _run(self) -> None:
        while self._has_supervisor():
            self._publish()
        if self._is_closing.is_set():
            return
        _log.error("supervisor_gone", number=self.number)
        os.kill(os.getpid(), signal.SIGTERM)
        if not self._is_closing.wait(_END_MAX_S):
            os.kill(os.getpid(), signal.SIGKILL)

    def _has_supervisor(self) -> bool:
        """Wait until the next publication. Returns False if the supervisor has closed its end."""
        try:
            return self._channel.recv(1) != b""
        except TimeoutError:
            return True


def reject_sighup(loop: asyncio.AbstractEventLoop) -> None:
    """Log an error on SIGHUP, because only a supervisor can replace its processes.

    By default, SIGHUP would end the process without a drain, and systemd would not restart it,
    because it considers this a clean exit.
    """
    loop.add_signal_handler(signal.SIGHUP, _log_missing_supervisor)


def _log_missing_supervisor() -> None:
    _log.error("roll_failed", why="--processes 1 has no supervisor; restart the process")
