"""A worker's loops during a test."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from payintent.service import Service
from payintent.worker import run_loops


@asynccontextmanager
async def working(service: Service) -> AsyncIterator[None]:
    """Run all loops of a worker in this process while the block runs."""
    stop = asyncio.Event()
    running = asyncio.create_task(run_loops(service, stop))
    try:
        yield
    finally:
        stop.set()
        await running
