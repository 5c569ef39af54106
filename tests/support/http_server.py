"""How an HTTP server of a test ends, whatever its clients are doing."""

import asyncio

from aiohttp import web

_TURNS = 5  # of the loop, until an accepted connection is known to the server


async def clean_up(runner: web.AppRunner) -> None:
    """Accept no more, let the server hear of what was accepted, then end it.

    asyncio drops a connection unclosed when its server closes a turn after it was accepted.
    """
    loop = asyncio.get_running_loop()
    for site in runner.sites:
        for listening in site._server.sockets:
            loop.remove_reader(listening.fileno())
    for _ in range(_TURNS):
        await asyncio.sleep(0)
    await runner.cleanup()
