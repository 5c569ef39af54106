"""A server of ours in the loop of a test, without the fixed waits of a process that ends.

`uvicorn.Server.serve` looks for its end every 0.1 s and then waits 0.1 s more, which is most of the
time of a small test. What it starts and ends is the same here.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn

from tests.support.patience import PATIENCE_S

_LOOK_S = 0.001


@asynccontextmanager
async def listening(server: uvicorn.Server) -> AsyncIterator[None]:
    """Serve while the block runs, then wait until no connection is left."""
    server.config.load()
    server.lifespan = server.config.lifespan_class(server.config)
    await server.startup()
    await server.on_tick(0)  # headers of every answer
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
