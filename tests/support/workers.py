"""A worker's loops beside a test."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from payintent.service import Service
from payintent.worker import run_loops


@asynccontextmanager
async def working(service: Service) -> AsyncIterator[None]:
    """Run every loop of a worker in this process, until the block ends."""
    stop = asyncio.Event()
    running = asyncio.create_task(run_loops(service, stop))
    try:
        yield
    finally:
        stop.set()
        await running
