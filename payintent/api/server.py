"""The HTTP server: start, shutdown, and the number of files it may open."""

import asyncio
import gc
import resource
import signal
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

import uvicorn
import uvloop
from starlette.types import ASGIApp

from payintent.api.protocol import limited_protocol
from payintent.config import Settings

_KEEP_ALIVE_S = 75
_STOP_WAIT_S = 20
_BACKLOG = 2_048
# Requests leave few reference cycles; collecting every 700 objects takes a tenth of the CPU.
_GARBAGE_OBJECTS = 50_000
_NOT_STARTED = 3  # uvicorn's own exit status for this
_FILES_SPARE = 256  # for the database, gateways and other files


def serve_until_stopped(
    servers: Sequence[uvicorn.Server], stopping: Callable[[], None] = lambda: None
) -> None:
    """Serve on several ports until SIGTERM or Ctrl-C, then finish what is under way.

    `stopping` is called first, to end answers that would otherwise go on for ever.
    """
    gc.freeze()  # what is loaded by now is never collected
    gc.set_threshold(_GARBAGE_OBJECTS)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(servers, stopping))
    if not all(server.started for server in servers):
        raise SystemExit(_NOT_STARTED)


async def _serve(servers: Sequence[uvicorn.Server], stopping: Callable[[], None]) -> None:
    def stop() -> None:
        stopping()
        for server in servers:
            server.should_exit = True

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    await asyncio.gather(*(server.serve() for server in servers))


class _Server(uvicorn.Server):
    """A server that leaves signals to the code that runs several servers."""

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        return nullcontext()


def make_server(
    app: ASGIApp, settings: Settings, host: str, port: int, *, lifespan: bool = True
) -> uvicorn.Server:
    """Build a server with our limits; `lifespan` tells whether the app opens something first."""
    return _Server(
        uvicorn.Config(
            app,
            host=host,
            port=port,
            http=limited_protocol(settings, _connections_max(settings.connections_max)),
            ws="none",
            loop="uvloop",
            backlog=_BACKLOG,
            access_log=False,
            proxy_headers=False,  # the address we see must not come from a header
            log_level="error",
            server_header=False,
            lifespan="on" if lifespan else "off",
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=_STOP_WAIT_S,
        )
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
