"""A server for all merchants' webhooks, which rejects some of them."""

import random
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

_REFUSED = 0.05  # share of webhooks that are rejected even if the merchant is not down


@dataclass(slots=True)
class Receivers:
    """The webhook IDs received by each merchant. Merchants in `down` respond with 503."""

    base: str = ""
    came: defaultdict[int, set[str]] = field(default_factory=lambda: defaultdict(set))
    down: set[int] = field(default_factory=set[int])

    def url(self, number: int) -> str:
        """Return the callback URL for a merchant's number in the drill."""
        return f"{self.base}/{number}"

    async def receive(self, request: web.Request) -> web.Response:
        number = int(request.match_info["number"])
        await request.read()
        if number in self.down or random.random() < _REFUSED:
            return web.Response(status=503)
        self.came[number].add(request.headers["webhook-id"])
        return web.Response(status=204)


@asynccontextmanager
async def receiving() -> AsyncIterator[Receivers]:
    receivers = Receivers()
    app = web.Application()
    app.router.add_post("/{number}", receivers.receive)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    receivers.base = f"http://127.0.0.1:{port}"
    try:
        yield receivers
    finally:
        await runner.cleanup()
