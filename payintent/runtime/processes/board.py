"""The board: memory that a supervisor and its processes share without locks.

Each process writes only to its own slot, which contains its connection count and arbitrary bytes.
Slot 0 belongs to the supervisor.
"""

import mmap
import os
import struct
import sys
import tempfile
from zlib import crc32

SUPERVISOR = 0
BYTES_MAX = 128 * 1024
ABSENT = -1  # the connection count of a process that does not accept connections

_HEADER = struct.Struct("=QII")  # version, length, checksum
_BUFFER = BYTES_MAX + _HEADER.size
_COUNT_BYTES = 8
_TOLERANCE = 1  # tolerated difference between the connection counts of processes


class Board:
    """Shared memory with a slot for each process. A slot's content survives the process."""

    def __init__(self, descriptor: int, slots: int) -> None:
        self.descriptor = descriptor
        self.slots = slots
        self._start = slots * _COUNT_BYTES
        size = self._start + slots * 2 * _BUFFER
        os.ftruncate(descriptor, size)  # unwritten pages do not use memory
        self._memory = mmap.mmap(descriptor, size)

    @classmethod
    def create(cls, slots: int) -> "Board":
        """Create an empty board. On Linux, it is not backed by a file."""
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
        struct.pack_into("=q", self._memory, slot * _COUNT_BYTES, count)

    def connections(self) -> tuple[int, ...]:
        return struct.unpack_from(f"={self.slots}q", self._memory)

    def write(self, slot: int, content: bytes) -> bool:
        """Replace a slot's content. Returns False if it is too large.

        Writes alternate between two buffers, so the previous content survives if the process dies
        during a write.
        """
        if len(content) > BYTES_MAX:
            return False
        version = max(self._read_header(slot, buffer)[0] for buffer in (0, 1)) + 1
        offset = self._compute_offset(slot, version % 2)
        self._memory[offset + _HEADER.size : offset + _HEADER.size + len(content)] = content
        header = _HEADER.pack(version, len(content), _compute_checksum(version, content))
        self._memory[offset : offset + _HEADER.size] = header
        return True

    def read(self, slot: int) -> bytes:
        """Return the last content that was written completely, or b"" if there is none."""
        contents: list[tuple[int, bytes]] = []
        for buffer in (0, 1):
            version, length, checksum = self._read_header(slot, buffer)
            offset = self._compute_offset(slot, buffer) + _HEADER.size
            content = self._memory[offset : offset + min(length, BYTES_MAX)]
            if version and checksum == _compute_checksum(version, content):
                contents.append((version, content))
        return max(contents, default=(0, b""))[1]

    def _read_header(self, slot: int, buffer: int) -> tuple[int, int, int]:
        return _HEADER.unpack_from(self._memory, self._compute_offset(slot, buffer))

    def _compute_offset(self, slot: int, buffer: int) -> int:
        return self._start + (2 * slot + buffer) * _BUFFER


def _compute_checksum(version: int, content: bytes) -> int:
    return crc32(content, crc32(version.to_bytes(8)))


class ConnectionShare:
    """A process's connection count, which it publishes and compares with other processes."""

    def __init__(self, board: Board, slot: int) -> None:
        self._board = board
        self._slot = slot

    def publish(self, count: int) -> None:
        self._board.set_connections(self._slot, count)

    def withdraw(self) -> None:
        self._board.set_connections(self._slot, ABSENT)

    def is_above_minimum(self, count: int) -> bool:
        """Return whether `count` exceeds another process's count by more than the tolerance."""
        counts = [
            connections
            for slot, connections in enumerate(self._board.connections())
            if slot != self._slot and connections != ABSENT
        ]
        return count > min(counts, default=count) + _TOLERANCE
