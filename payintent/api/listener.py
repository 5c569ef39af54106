"""Stop listening without losing a connection that a client has already made.

When a listening socket is closed, the kernel resets the connections that wait to be accepted, and
with them requests that their clients have sent. So new connections are held off first: a filter
on the socket drops the packets that open one. Their clients send them again a second later, are
refused by then, and go elsewhere; a proxy passes the request on, for nothing of it was sent.
"""

import asyncio
import ctypes
import socket
import struct
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Protocol

#: For handshakes under way to end, and for the event loop to accept their connections.
_SETTLE_S, _SETTLE_ROUNDS = 0.005, 5
_SO_ATTACH_FILTER = 26  # asm-generic/socket.h
#: Classic BPF over a TCP segment: code, jump if true, jump if false, operand.
_DROP_NEW = (
    (0x30, 0, 0, 13),  # load the byte of flags
    (0x54, 0, 0, 0x12),  # keep SYN and ACK
    (0x15, 0, 1, 0x02),  # SYN alone opens a connection
    (0x06, 0, 0, 0),  # drop
    (0x06, 0, 0, 0xFFFFFFFF),  # pass
)


class Listener(Protocol):
    @property
    def sockets(self) -> Sequence[socket.socket]: ...

    def close(self) -> None: ...


async def stop_listening(servers: Iterable[Listener]) -> None:
    """Accept what has been connected, then close; nothing that was connected is reset."""
    listening = list(servers)
    for server in listening:
        _hold_off(server.sockets)
    for _ in range(_SETTLE_ROUNDS):
        await asyncio.sleep(_SETTLE_S)
    for server in listening:
        server.close()


def _hold_off(sockets: Sequence[socket.socket]) -> None:
    """Drop the first packet of every new connection, where the system can."""
    if sys.platform != "linux":
        return
    program = b"".join(struct.pack("HBBI", *instruction) for instruction in _DROP_NEW)
    stored = ctypes.create_string_buffer(program)
    option = struct.pack("HP", len(_DROP_NEW), ctypes.addressof(stored))
    for listener in sockets:
        with suppress(OSError):  # then a connection made in this very moment is reset
            listener.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, option)
