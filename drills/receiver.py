"""The merchant's webhook endpoint, which records the webhooks that it receives."""

import json
from typing import Any

from aiohttp import web


class Receiver:
    """Accepts webhooks on a loopback port, and responds to each with 204."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.told: dict[str, set[str]] = {}  # webhook IDs by payment ID
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        app = web.Application()
        app.router.add_post("/webhooks", self._take)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port).start()

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _take(self, request: web.Request) -> web.Response:
        body: dict[str, Any] = json.loads(await request.read())
        payment_id: str = body["data"]["payment"]["id"]
        self.told.setdefault(payment_id, set()).add(request.headers["webhook-id"])
        return web.Response(status=204)
