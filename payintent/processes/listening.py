"""Listening sockets that a supervisor opens for its processes."""

import socket
import sys


class BindError(Exception):
    """A listening address is unavailable; the message is for operators."""


def bind(host: str, port: int) -> list[socket.socket]:
    """Bind a socket to each address of a host, without listening (`BindError`)."""
    listeners: list[socket.socket] = []
    try:
        for family, _, _, _, address in socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        ):
            listener = socket.socket(family, socket.SOCK_STREAM)
            listeners.append(listener)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6 and sys.platform != "win32":
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.bind(address)
            listener.setblocking(False)
    except OSError as error:
        for listener in listeners:
            listener.close()
        reason = (error.strerror or str(error)).lower()
        raise BindError(f"cannot listen on {host} port {port}: {reason}") from error
    return listeners
