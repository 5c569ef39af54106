"""A pause that ends early when the process is told to stop."""

import asyncio


async def wait_until_stopped(stop: asyncio.Event, seconds: float) -> None:
    """Wait for `stop`, so many seconds at most."""
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        pass
