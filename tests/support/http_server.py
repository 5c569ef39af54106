"""Stop a test's HTTP server, regardless of its clients."""

import asyncio

from aiohttp import web

_TURNS = 5  # turns of the loop until the server knows an accepted connection


async def clean_up(runner: web.AppRunner) -> None:
    """Stop accepting, let the server register accepted connections, then stop it.

    If a server closes one turn after it accepted a connection, asyncio drops it without closing it.
    """
    loop = asyncio.get_running_loop()
    for site in runner.sites:
        for listening in site._server.sockets:
            loop.remove_reader(listening.fileno())
    for _ in range(_TURNS):
        await asyncio.sleep(0)
    await runner.cleanup()
