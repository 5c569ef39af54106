"""A small server that stores raw callbacks, and sends the adapter's acknowledgement."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from payintent.gateways.port import (
    CallbackRequest,
    Gateway,
    GatewayAccount,
    InvalidCallbackError,
    VerifiedCallback,
)
from tests.support.http_server import clean_up
from tests.support.timeouts import PATIENCE_S


class Receiver:
    """Listens at `url`. It responds with 503 until `serve` is called, so that gateways retry."""

    def __init__(self) -> None:
        self.url = ""
        self.received: list[CallbackRequest] = []  # all received callbacks, including rejected ones
        self._served: tuple[Gateway, GatewayAccount] | None = None
        self._arrived = asyncio.Condition()

    def serve(self, gateway: Gateway, account: GatewayAccount) -> None:
        """Verify callbacks with this account, and acknowledge them as the adapter does."""
        self._served = gateway, account

    def parsed(self) -> list[tuple[CallbackRequest, VerifiedCallback]]:
        """List the verified callbacks in order of arrival."""
        return [
            (request, callback)
            for request in self.received
            if isinstance(callback := self._parse(request), VerifiedCallback)
        ]

    async def wait_for(
        self, matches: Callable[[VerifiedCallback], bool]
    ) -> tuple[CallbackRequest, VerifiedCallback]:
        """Wait for the first verified callback that matches, which may have arrived already."""

        def found() -> list[tuple[CallbackRequest, VerifiedCallback]]:
            return [item for item in self.parsed() if matches(item[1])]

        async with asyncio.timeout(PATIENCE_S), self._arrived:
            await self._arrived.wait_for(lambda: bool(found()))
        return found()[0]

    async def handle(self, request: web.Request) -> web.Response:
        callback_request = CallbackRequest(
            method=request.method,
            headers={name.lower(): value for name, value in request.headers.items()},
            query=dict(request.query),
            body=await request.read(),
        )
        async with self._arrived:
            self.received.append(callback_request)
            self._arrived.notify_all()
        return self._answer(callback_request)

    def _answer(self, request: CallbackRequest) -> web.Response:
        if self._served is None:
            return web.Response(status=503)
        callback = self._parse(request)
        if callback is None:
            return web.Response(status=401)
        ack = self._served[0].acknowledge(callback)
        return web.Response(body=ack.body, headers={"Content-Type": ack.content_type})

    def _parse(self, request: CallbackRequest) -> VerifiedCallback | None:
        if self._served is None:
            return None
        gateway, account = self._served
        try:
            return gateway.parse_callback(account, request)
        except InvalidCallbackError:
            return None


@asynccontextmanager
async def receiving() -> AsyncGenerator[Receiver]:
    """Run a receiver on a free port."""
    receiver = Receiver()
    app = web.Application()
    app.router.add_route("*", "/callback", receiver.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    receiver.url = f"http://{host}:{port}/callback"
    try:
        yield receiver
    finally:
        await clean_up(runner)
