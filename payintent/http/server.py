"""The HTTP server: startup and graceful shutdown."""

import asyncio
import logging
import signal
import socket
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol, cast

import uvicorn
import uvloop
from starlette.types import ASGIApp
from uvicorn.lifespan.on import LifespanOn

from payintent.http.listeners import SharedListener, stop_listening
from payintent.http.protocol import LimitedProtocol, SharedState, make_protocol_class
from payintent.runtime.processes.board import ConnectionShare
from payintent.runtime.processes.member import reject_sighup
from payintent.runtime.settings import Settings
from payintent.runtime.waiting import raise_file_limit, tune_garbage_collector

_KEEP_ALIVE_S = 75
_STOP_WAIT_S = 20  # from SIGTERM to the last response, including the drain
_POLL_S, _POLLS_MAX = 0.02, 100  # while the last requests arrive
_BACKLOG = 2_048
_STARTUP_FAILURE_STATUS = 3  # uvicorn's exit status for a failed startup
RETIRE_SIGNAL = signal.SIGUSR1  # another process has taken over
_SILENT_LOGGER = logging.getLogger("payintent.start")
_SILENT_LOGGER.addHandler(logging.NullHandler())
_SILENT_LOGGER.propagate = False


class StoppableApplication(Protocol):
    """An application that is notified before the process stops."""

    def on_drain(self) -> None:
        """Report through `/readyz` that this process is about to stop."""
        ...

    def on_stop(self) -> None:
        """End streaming responses, which would otherwise remain open."""
        ...


def serve_until_stopped(
    servers: "Sequence[DrainingServer]", application: StoppableApplication, drain_s: float
) -> None:
    """Serve on all ports until SIGTERM or Ctrl-C, then finish the requests in progress.

    After SIGTERM, requests are still accepted for `drain_s`, but each response closes its
    connection, so that load balancers switch to a different process before this process refuses
    connections. Ctrl-C stops without draining. After `RETIRE_SIGNAL`, which requires shared ports,
    only existing connections are served for `drain_s`.
    """
    tune_garbage_collector()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(servers, application, drain_s))
    if not all(server.started for server in servers):
        raise SystemExit(_STARTUP_FAILURE_STATUS)


async def _serve(
    servers: "Sequence[DrainingServer]", application: StoppableApplication, drain_s: float
) -> None:
    group = _ServerGroup(servers, application, drain_s)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, group.drain)
    loop.add_signal_handler(signal.SIGINT, group.stop)
    if group.is_shared:
        loop.add_signal_handler(RETIRE_SIGNAL, group.retire)
    else:
        reject_sighup(loop)
    await asyncio.gather(*(group.run(server) for server in servers))


class _ServerGroup:
    """The servers of a process, which start and stop together."""

    def __init__(
        self, servers: "Sequence[DrainingServer]", application: StoppableApplication, drain_s: float
    ) -> None:
        self._servers = servers
        self._application = application
        self._drain_s = drain_s

    @property
    def is_shared(self) -> bool:
        return all(server.is_shared for server in self._servers)

    async def run(self, server: "DrainingServer") -> None:
        await server.serve()
        if not server.started:
            self.stop()

    def stop(self) -> None:
        self._application.on_stop()
        for server in self._servers:
            server.should_exit = True

    def drain(self) -> None:
        """Continue serving for `drain_s`, so that clients move to a new process.

        A second call stops the process. With several processes, a second call has no effect,
        because systemd and the supervisor both signal each process. The supervisor ends a drain
        with SIGINT.
        """
        is_first = not any(server.is_draining for server in self._servers)
        is_started = all(server.started for server in self._servers)
        if is_first and self._drain_s > 0 and is_started:
            self._application.on_drain()
            for server in self._servers:
                server.drain()
            asyncio.get_running_loop().call_later(self._drain_s, self.stop)
        elif is_first or not self.is_shared:
            self.stop()

    def retire(self) -> None:
        """Leave new connections to the processes that share the ports, then drain."""
        for server in self._servers:
            server.retire()
        asyncio.get_running_loop().call_later(self._drain_s, self.stop)


class DrainingServer(uvicorn.Server):
    """A server that stops without losing requests; `serve_until_stopped` handles signals."""

    def __init__(self, config: uvicorn.Config, shared: SharedState) -> None:
        super().__init__(config)
        self._protocol_state = shared
        self._listener: SharedListener | None = None
        self._on_started: Callable[[], None] | None = None

    def use_shared_sockets(
        self,
        sockets: Sequence[socket.socket],
        share: ConnectionShare | None = None,
        on_started: Callable[[], None] | None = None,
    ) -> None:
        """Listen on shared sockets, and call `on_started` once the server is listening."""
        self._listener = SharedListener(sockets, _BACKLOG, share)
        self._on_started = on_started

    @property
    def is_shared(self) -> bool:
        """Whether the sockets are shared with other processes."""
        return self._listener is not None

    @property
    def is_draining(self) -> bool:
        return self._protocol_state.is_draining

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the server. A failure makes the server exit as if it had been stopped.

        By default, uvicorn raises SystemExit, which would leave the other servers' sockets open.
        The application logs the reason for the failure.
        """
        if isinstance(self.lifespan, LifespanOn):
            self.lifespan.logger = _SILENT_LOGGER
        try:
            await super().startup(sockets if self._listener is None else [])
        except SystemExit:
            self.should_exit = True
        if self.started and self._listener is not None:
            self._listen(self._listener)
        if self.started and self._on_started is not None:
            self._on_started()
        if isinstance(self.lifespan, LifespanOn):
            self.lifespan.logger = logging.getLogger("uvicorn.error")

    def _listen(self, listener: SharedListener) -> None:
        protocol = cast("type[LimitedProtocol]", self.config.http_protocol_class)
        listener.start(
            lambda: protocol(
                config=self.config,
                server_state=self.server_state,
                app_state=self.lifespan.state,
            ),
            lambda: len(self.server_state.connections),
        )
        self.servers = [cast("asyncio.Server", listener)]

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        return nullcontext()

    def drain(self) -> None:
        """Close each connection after its next response. Idle connections stay open."""
        self._protocol_state.is_draining = True
        for connection in self._list_connections():
            connection.drain()

    def retire(self) -> None:
        if self._listener is not None:
            self._listener.detach()
        self.drain()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close the listening sockets, then each connection once its requests have finished."""
        await stop_listening(self.servers)
        if self.is_draining:
            await self._wait_for_last_requests()
        await super().shutdown(sockets)

    async def _wait_for_last_requests(self) -> None:
        """Wait for the first requests on connections that have just been accepted."""
        for _ in range(_POLLS_MAX):
            if not any(connection.expects_request for connection in self._list_connections()):
                return
            await asyncio.sleep(_POLL_S)

    def _list_connections(self) -> list[LimitedProtocol]:
        return [cast("LimitedProtocol", protocol) for protocol in self.server_state.connections]


def make_server(
    app: ASGIApp, settings: Settings, host: str, port: int, *, lifespan: bool = True
) -> DrainingServer:
    protocol = make_protocol_class(settings, raise_file_limit(settings.connections_max))
    return DrainingServer(
        uvicorn.Config(
            app,
            host=host,
            port=port,
            http=protocol,
            ws="none",
            loop="uvloop",
            backlog=_BACKLOG,
            access_log=False,
            proxy_headers=False,  # the peer address must not be taken from a header
            log_level="error",
            server_header=False,
            lifespan="on" if lifespan else "off",
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=max(1, int(_STOP_WAIT_S - settings.drain_s)),
        ),
        protocol.shared,
    )
