"""Run our server in a test's event loop, without the fixed delays of a process's shutdown.

`uvicorn.Server.serve` checks every 0.1 s whether it should stop, and then waits another 0.1 s,
which is most of a small test's duration. Startup and shutdown are otherwise the same.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn

from tests.support.timeouts import PATIENCE_S

_LOOK_S = 0.001


@asynccontextmanager
async def listening(server: uvicorn.Server) -> AsyncIterator[None]:
    """Serve while the block runs, then wait until all connections are closed."""
    server.config.load()
    server.lifespan = server.config.lifespan_class(server.config)
    await server.startup()
    await server.on_tick(0)  # headers of every response
    try:
        yield
    finally:
        await _end(server)


async def _end(server: uvicorn.Server) -> None:
    state = server.server_state
    for listener in server.servers:
        listener.close()
    for connection in list(state.connections):
        connection.shutdown()
    async with asyncio.timeout(PATIENCE_S):
        while state.connections or state.tasks:
            await asyncio.sleep(_LOOK_S)
    await server.lifespan.shutdown()
