"""Waiting for signals and sockets without an event loop."""

import select
import signal
import socket
from collections.abc import Iterable
from contextlib import suppress

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)
_BYTES = 1_024


class Wakeup:
    """Receives the supervisor's signals; those that came together are one."""

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
        """Wait so long for signals or for sockets that can be read; returns both."""
        waiting = {item.fileno(): item for item in sockets}
        poll = select.poll()
        for descriptor in (self._reading.fileno(), *waiting):
            poll.register(descriptor, select.POLLIN)
        found = [descriptor for descriptor, _ in poll.poll(max(0.0, seconds) * 1000)]
        signals: set[int] = set()
        with suppress(BlockingIOError):
            signals.update(self._reading.recv(_BYTES))
        return signals, [waiting[descriptor] for descriptor in found if descriptor in waiting]

    def close_in_child(self) -> None:
        """Give a forked process its signals back as a program finds them when it starts."""
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
    """Hold the supervisor's signals back, so that none is lost while a process changes."""
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)


def unblock() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


def _ignore(number: int, frame: object) -> None:
    """Do nothing: the number of the signal is read from the socket."""
    del number, frame
