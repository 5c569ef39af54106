"""The merchant's webhook endpoint: keeps which payments it was told of."""

import json
from typing import Any

from aiohttp import web


class Receiver:
    """Takes webhooks on a port of loopback, and answers each with 204."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.told: dict[str, set[str]] = {}  # by payment, the ids of its webhooks
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Listen."""
        app = web.Application()
        app.router.add_post("/webhooks", self._take)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port).start()

    async def stop(self) -> None:
        """Listen no more."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _take(self, request: web.Request) -> web.Response:
        body: dict[str, Any] = json.loads(await request.read())
        payment_id: str = body["data"]["payment"]["id"]
        self.told.setdefault(payment_id, set()).add(request.headers["webhook-id"])
        return web.Response(status=204)
