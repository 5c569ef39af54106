"""A pause that ends early when the process is to stop."""

import asyncio


async def wait_until_stopped(stop: asyncio.Event, seconds: float) -> None:
    """Wait for `stop`, at most the given number of seconds."""
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        pass
