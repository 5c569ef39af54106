"""The merged metrics over HTTP, served by whichever process accepts the connection."""

import socket
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast
from wsgiref.simple_server import WSGIRequestHandler

from prometheus_client import (
    CollectorRegistry,
    make_wsgi_app,  # pyright: ignore[reportUnknownVariableType]
)
from prometheus_client.exposition import ThreadingWSGIServer

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication

_BACKLOG = 16


class _QuietHandler(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
        del format, args


class _SharedServer(ThreadingWSGIServer):
    """Serves from a socket that several processes accept from."""

    def __init__(self, listener: socket.socket, registry: CollectorRegistry) -> None:
        address = listener.getsockname()
        super().__init__(address, _QuietHandler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.server_name, self.server_port = address[0], address[1]
        self.setup_environ()
        self.set_app(cast("WSGIApplication", make_wsgi_app(registry)))
        listener.listen(_BACKLOG)


def serve_metrics(listeners: Sequence[socket.socket], registry: CollectorRegistry) -> None:
    """Serve metrics from threads that end with the process."""
    for listener in listeners:
        server = _SharedServer(listener, registry)
        threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
