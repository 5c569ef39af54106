"""Memory that a supervisor and its processes share, without a lock that one could keep.

Every process has a slot of its own, which it alone writes: the number of its connections, and bytes
of its choice. The supervisor's own slot is 0.
"""

import mmap
import os
import struct
import sys
import tempfile
from zlib import crc32

SUPERVISOR = 0
BYTES_MAX = 128 * 1024
ABSENT = -1  # the number of connections of a process that accepts none

_HEADER = struct.Struct("=QII")  # how often it was written, length, checksum
_BUFFER = BYTES_MAX + _HEADER.size
_NUMBER = 8  # bytes of a number of connections
_SLACK = 1  # by so many connections a process may be ahead of another


class Board:
    """A slot for each process; what it holds outlives the process that wrote it."""

    def __init__(self, descriptor: int, slots: int) -> None:
        self.descriptor = descriptor
        self.slots = slots
        self._start = slots * _NUMBER
        size = self._start + slots * 2 * _BUFFER
        os.ftruncate(descriptor, size)  # pages that were never written take no memory
        self._memory = mmap.mmap(descriptor, size)

    @classmethod
    def create(cls, slots: int) -> "Board":
        """Make an empty board, in memory alone where the system can."""
        if sys.platform == "linux":
            descriptor = os.memfd_create("payintent")
        else:
            with tempfile.TemporaryFile() as file:
                descriptor = os.dup(file.fileno())
        board = cls(descriptor, slots)
        for slot in range(slots):
            board.set_connections(slot, ABSENT)
        return board

    def set_connections(self, slot: int, count: int) -> None:
        """Write how many connections a process has, or `ABSENT`."""
        struct.pack_into("=q", self._memory, slot * _NUMBER, count)

    def connections(self) -> tuple[int, ...]:
        return struct.unpack_from(f"={self.slots}q", self._memory)

    def write(self, slot: int, content: bytes) -> bool:
        """Replace the bytes of a slot; False where they are too many.

        There are two buffers, so that a process that dies meanwhile leaves what it wrote before.
        """
        if len(content) > BYTES_MAX:
            return False
        written = max(self._header(slot, buffer)[0] for buffer in (0, 1)) + 1
        at = self._at(slot, written % 2)
        self._memory[at + _HEADER.size : at + _HEADER.size + len(content)] = content
        header = _HEADER.pack(written, len(content), _checksum(written, content))
        self._memory[at : at + _HEADER.size] = header
        return True

    def read(self, slot: int) -> bytes:
        """Return what was written last and whole; empty where nothing was."""
        found: list[tuple[int, bytes]] = []
        for buffer in (0, 1):
            written, length, checksum = self._header(slot, buffer)
            at = self._at(slot, buffer) + _HEADER.size
            content = self._memory[at : at + min(length, BYTES_MAX)]
            if written and checksum == _checksum(written, content):
                found.append((written, content))
        return max(found, default=(0, b""))[1]

    def _header(self, slot: int, buffer: int) -> tuple[int, int, int]:
        return _HEADER.unpack_from(self._memory, self._at(slot, buffer))

    def _at(self, slot: int, buffer: int) -> int:
        return self._start + (2 * slot + buffer) * _BUFFER


def _checksum(written: int, content: bytes) -> int:
    return crc32(content, crc32(written.to_bytes(8)))


class ConnectionShare:
    """How many connections one of several processes has, and whether it should leave some."""

    def __init__(self, board: Board, slot: int) -> None:
        self._board = board
        self._slot = slot

    def publish(self, count: int) -> None:
        """Tell the other processes how many connections this one has."""
        self._board.set_connections(self._slot, count)

    def leave(self) -> None:
        self._board.set_connections(self._slot, ABSENT)

    def is_ahead(self, count: int) -> bool:
        """Tell whether another process has fewer connections, by more than the slack."""
        others = [
            other
            for slot, other in enumerate(self._board.connections())
            if slot != self._slot and other != ABSENT
        ]
        return count > min(others, default=count) + _SLACK
