"""Stop listening without losing established connections.

When a listening socket is closed, the kernel resets the connections in its accept queue, including
requests that clients have already sent. So a socket filter first drops the packets that open new
connections. Clients repeat them after a second, are refused by then and try another process; a
proxy can do so safely because it has not sent the request yet.
"""

import asyncio
import ctypes
import socket
import struct
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Protocol

#: Time for handshakes to complete and for the event loop to accept their connections.
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
    """Accept the connections in the queue, then close the sockets; no connection is reset."""
    open_servers = list(servers)
    for server in open_servers:
        _drop_new_connections(server.sockets)
    for _ in range(_SETTLE_ROUNDS):
        await asyncio.sleep(_SETTLE_S)
    for server in open_servers:
        server.close()


def _drop_new_connections(sockets: Sequence[socket.socket]) -> None:
    """Drop the first packet of every new connection, if the system supports it."""
    if sys.platform != "linux":
        return
    program = b"".join(struct.pack("HBBI", *instruction) for instruction in _DROP_NEW)
    buffer = ctypes.create_string_buffer(program)
    option = struct.pack("HP", len(_DROP_NEW), ctypes.addressof(buffer))
    for listener in sockets:
        with suppress(OSError):  # then a connection that opens at this moment is reset
            listener.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, option)
