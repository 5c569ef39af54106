"""The HTTP server: start, shutdown, and the number of files it may open."""

import asyncio
import logging
import resource
import signal
import socket
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol, cast

import uvicorn
import uvloop
from starlette.types import ASGIApp
from uvicorn.lifespan.on import LifespanOn

from payintent.api.listener import stop_listening
from payintent.api.protocol import Bounds, LimitedProtocol, limited_protocol
from payintent.api.shared_listener import SharedListener
from payintent.config import Settings
from payintent.garbage_collection import collect_rarely
from payintent.processes.board import ConnectionShare
from payintent.processes.unsupervised import refuse_roll

_KEEP_ALIVE_S = 75
_STOP_WAIT_S = 20  # from SIGTERM to the last answer; the drain is a part of it
_LOOK_S = 0.02
_LAST_LOOKS = 100  # at connections that were made at the very last, until their requests are there
_BACKLOG = 2_048
_NOT_STARTED = 3  # uvicorn's own exit status for this
RETIRE = signal.SIGUSR1
_SILENT = logging.getLogger("payintent.start")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False
_FILES_SPARE = 256  # for the database, gateways and other files


class Stoppable(Protocol):
    """An application that is told of the end of its process."""

    def draining(self) -> None:
        """Tell load balancers that other processes should be asked."""
        ...

    def stopping(self) -> None:
        """End answers that would otherwise go on for ever."""
        ...


def serve_until_stopped(
    servers: "Sequence[DrainingServer]", application: Stoppable, drain_s: float
) -> None:
    """Serve on several ports until SIGTERM or Ctrl-C, then finish what is under way.

    After SIGTERM requests are still accepted for `drain_s`, each the last one of its connection,
    so that balancers find another process before this one refuses them. Ctrl-C waits for nothing.
    `RETIRE` is for a process whose ports others go on to serve: it takes no new connection, and
    answers those that it has for so long.
    """
    collect_rarely()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(servers, application, drain_s))
    if not all(server.started for server in servers):
        raise SystemExit(_NOT_STARTED)


async def _serve(
    servers: "Sequence[DrainingServer]", application: Stoppable, drain_s: float
) -> None:
    serving = _Serving(servers, application, drain_s)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, serving.drain)
    loop.add_signal_handler(signal.SIGINT, serving.stop)
    if serving.is_shared:
        loop.add_signal_handler(RETIRE, serving.retire)
    else:
        refuse_roll(loop)
    await asyncio.gather(*(serving.run(server) for server in servers))


class _Serving:
    def __init__(
        self, servers: "Sequence[DrainingServer]", application: Stoppable, drain_s: float
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
        self._application.stopping()
        for server in self._servers:
            server.should_exit = True

    def drain(self) -> None:
        """Go on for a while, so that clients find another process; a second time, stop.

        Among several processes a second time is nothing: systemd signals them all, and so does
        the supervisor, which ends a drain by SIGINT.
        """
        is_first = not any(server.is_draining for server in self._servers)
        is_started = all(server.started for server in self._servers)
        if is_first and self._drain_s > 0 and is_started:
            self._application.draining()
            for server in self._servers:
                server.drain()
            asyncio.get_running_loop().call_later(self._drain_s, self.stop)
        elif is_first or not self.is_shared:
            self.stop()

    def retire(self) -> None:
        """Leave new connections to the other processes, and drain: the ports go on to serve."""
        for server in self._servers:
            server.retire()
        asyncio.get_running_loop().call_later(self._drain_s, self.stop)


class DrainingServer(uvicorn.Server):
    """A server that leaves signals to its caller, and loses no request when it stops."""

    def __init__(self, config: uvicorn.Config, bounds: Bounds) -> None:
        super().__init__(config)
        self._bounds = bounds
        self._shared: SharedListener | None = None
        self._on_started: Callable[[], None] | None = None

    def share(
        self,
        sockets: Sequence[socket.socket],
        share: ConnectionShare | None = None,
        on_started: Callable[[], None] | None = None,
    ) -> None:
        """Listen on sockets that other processes have too; `on_started` is called when it does."""
        self._shared = SharedListener(sockets, _BACKLOG, share)
        self._on_started = on_started

    @property
    def is_shared(self) -> bool:
        return self._shared is not None

    @property
    def is_draining(self) -> bool:
        return self._bounds.draining

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start; one that cannot ends as if it was stopped, and the application says why.

        uvicorn raises SystemExit there, which would leave other servers' sockets open.
        """
        if isinstance(self.lifespan, LifespanOn):
            self.lifespan.logger = _SILENT
        try:
            await super().startup(sockets if self._shared is None else [])
        except SystemExit:
            self.should_exit = True
        if self.started and self._shared is not None:
            self._listen(self._shared)
        if self.started and self._on_started is not None:
            self._on_started()
        if isinstance(self.lifespan, LifespanOn):
            self.lifespan.logger = logging.getLogger("uvicorn.error")

    def _listen(self, shared: SharedListener) -> None:
        protocol = cast("type[LimitedProtocol]", self.config.http_protocol_class)
        shared.start(
            lambda: protocol(
                config=self.config,
                server_state=self.server_state,
                app_state=self.lifespan.state,
            ),
            lambda: len(self.server_state.connections),
        )
        self.servers = [cast("asyncio.Server", shared)]

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        return nullcontext()

    def drain(self) -> None:
        """Let every answer be the last one of its connection; idle ones are left to clients."""
        self._bounds.draining = True
        for connection in self._connections():
            connection.drain()

    def retire(self) -> None:
        """Leave new connections to the other processes, and drain."""
        if self._shared is not None:
            self._shared.leave()
        self.drain()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close the listening sockets, then the connections as their requests end."""
        await stop_listening(self.servers)
        if self.is_draining:
            await self._last_requests()
        await super().shutdown(sockets)

    async def _last_requests(self) -> None:
        """Wait for the requests of connections that were made at the very last."""
        for _ in range(_LAST_LOOKS):
            if not any(connection.expects_request for connection in self._connections()):
                return
            await asyncio.sleep(_LOOK_S)

    def _connections(self) -> list[LimitedProtocol]:
        return [cast("LimitedProtocol", found) for found in self.server_state.connections]


def make_server(
    app: ASGIApp, settings: Settings, host: str, port: int, *, lifespan: bool = True
) -> DrainingServer:
    protocol = limited_protocol(settings, _connections_max(settings.connections_max))
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
            proxy_headers=False,  # the address we see must not come from a header
            log_level="error",
            server_header=False,
            lifespan="on" if lifespan else "off",
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=max(1, int(_STOP_WAIT_S - settings.drain_s)),
        ),
        protocol.bounds,
    )


def _connections_max(wanted: int) -> int:
    """Raise the limit of open files if needed; returns how many connections it allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + _FILES_SPARE
    if hard != resource.RLIM_INFINITY:
        needed = min(needed, hard)
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    return max(1, needed - _FILES_SPARE)
