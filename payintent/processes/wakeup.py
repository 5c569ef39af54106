"""Wait for signals and sockets without an event loop."""

import select
import signal
import socket
from collections.abc import Iterable
from contextlib import suppress

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)
_BYTES = 1_024


class Wakeup:
    """Receives the supervisor's signals; equal signals are merged until they are read."""

    def __init__(self) -> None:
        self._reading, self._writing = socket.socketpair()
        self._reading.setblocking(False)
        self._writing.setblocking(False)
        signal.set_wakeup_fd(self._writing.fileno(), warn_on_full_buffer=False)
        for number in SIGNALS:
            signal.signal(number, _ignore)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)

    def wait(
        self, sockets: Iterable[socket.socket], seconds: float
    ) -> tuple[set[int], list[socket.socket]]:
        by_descriptor = {item.fileno(): item for item in sockets}
        poll = select.poll()
        for descriptor in (self._reading.fileno(), *by_descriptor):
            poll.register(descriptor, select.POLLIN)
        descriptors = [descriptor for descriptor, _ in poll.poll(max(0.0, seconds) * 1000)]
        signals: set[int] = set()
        with suppress(BlockingIOError):
            signals.update(self._reading.recv(_BYTES))
        return signals, [by_descriptor[item] for item in descriptors if item in by_descriptor]

    def close_in_child(self) -> None:
        """Restore the default signal handlers in a forked process."""
        for number in SIGNALS:
            default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
            signal.signal(number, default)
        self.close()
        unblock()

    def close(self) -> None:
        signal.set_wakeup_fd(-1)
        self._reading.close()
        self._writing.close()


def block() -> None:
    """Block the supervisor's signals, so that none is lost during a fork or exec."""
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)


def unblock() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


def _ignore(number: int, frame: object) -> None:
    """Do nothing, because signal numbers are read from the socket."""
    del number, frame
