"""Serve a shop's pages with the browser SDK and misbehaving services on a single origin."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

from tests.support.http_server import clean_up

_SHOP = """<!doctype html><html lang="en"><title>Shop</title><body><div id="pay"></div>
<script src="{origin}/sdk/v1.js"></script>
<script>
  globalThis.events = [];
  globalThis.sdk = PayIntent();
</script>"""
_BARE = """<!doctype html><html lang="en"><title>Bare</title><body>
<script type="module">
  import * as loader from "{origin}/sdk/loader.js";
  globalThis.loader = loader;
</script>"""
_WORKER = """import {{ loadCheckout }} from "{origin}/sdk/loader.js";
loadCheckout({{ src: "{origin}/sdk/v1.js" }}).catch((error) => postMessage(error.toJSON()));"""
_UNASKED = """<!doctype html><html lang="en"><title>Unasked</title><body>
<script src="{origin}/sdk/v1.js"></script>
<script>
  const checkoutUrl = "{origin}/c/cs_0000000000000000";
  PayIntent().openPopup({{ checkoutUrl }}).catch((error) => (globalThis.failed = error.toJSON()));
</script>"""
_EMPTY = {"Content-Type": "text/html"}


@dataclass
class Shop:
    """The shop's pages, and the requests to the misbehaving services."""

    service: str  # the real service's origin
    url: str = ""
    request_counts: Counter[str] = field(default_factory=Counter)
    posted_forms: list[Mapping[str, object]] = field(default_factory=list)

    async def page(self, request: web.Request) -> web.Response:
        text = {"bare": _BARE, "unasked": _UNASKED}.get(request.match_info["name"], _SHOP)
        return web.Response(text=text.format(origin=self.service), content_type="text/html")

    async def script(self, request: web.Request) -> web.Response:
        self.request_counts[request.path] += 1
        if request.match_info["kind"] == "worker":
            text = _WORKER.format(origin=self.service)
            return web.Response(text=text, content_type="text/javascript")
        if request.match_info["kind"] == "hang":
            await asyncio.Event().wait()
        if request.match_info["kind"] == "late" and self.request_counts[request.path] == 1:
            return web.Response(status=500)
        text = "globalThis.PayIntent = () => 1;" if request.match_info["kind"] == "late" else "1;"
        return web.Response(text=text, content_type="text/javascript")

    async def gateway(self, request: web.Request) -> web.Response:
        """Respond like a gateway's page, and record the submitted form."""
        if request.method == "POST":
            self.posted_forms.append(dict(await request.post()))
        text = "<!doctype html><html lang=en><title>Gateway</title><h1>Gateway</h1>"
        return web.Response(text=text, content_type="text/html")

    async def api(self, request: web.Request) -> web.StreamResponse:
        """Respond like a misbehaving service."""
        kind = request.match_info["kind"]
        self.request_counts[f"{request.method} {kind}"] += 1
        match kind:
            case "hang":
                await asyncio.Event().wait()
            case "stall":
                answer = web.StreamResponse(headers={"Content-Type": "application/json"})
                await answer.prepare(request)
                await answer.write(b'{"status":')
                await asyncio.Event().wait()
            case "cut":
                assert request.transport is not None
                request.transport.close()
            case "busy":
                problem = {"code": "RATE_LIMITED", "message": "slow down"}
                return web.json_response(problem, status=429, headers={"Retry-After": "7"})
            case "soon":  # succeeds on the third attempt
                if self.request_counts[f"{request.method} {kind}"] < 3:
                    return web.Response(status=503, text="<h1>sorry</h1>", headers=_EMPTY)
                return web.json_response({"status": "PENDING", "version": 1})
        status, text = _UNEXPECTED.get(kind, (200, "{}"))
        return web.Response(status=status, text=text, content_type="application/json")


_UNEXPECTED = {
    "html": (200, "<h1>welcome</h1>"),
    "null": (200, "null"),
    "lacking": (200, '{"version":1}'),
    "nocode": (400, "{}"),
    "html400": (400, "<h1>bad</h1>"),
    "down": (503, "<h1>sorry</h1>"),
    "crowded": (429, "<h1>slow down</h1>"),
    "unbuilt": (501, '{"code":"NOT_IMPLEMENTED","message":"later"}'),
    "alien": (200, '{"status":"ASCENDED","version":1,"server_time":"2026-01-02T03:04:05Z"}'),
    "unsure": (200, '{"fds":{"outcome":"REVIEW"}}'),
    "both": (200, '{"status":"PAID","version":1,"fds":{"outcome":"DENY","code":"NEW_ONE"}}'),
}


@asynccontextmanager
async def running_shop(service: str) -> AsyncIterator[Shop]:
    shop = Shop(service)
    app = web.Application()
    app.router.add_get("/{kind}/sdk/v1.js", shop.script)
    app.router.add_route("*", "/gateway", shop.gateway)
    app.router.add_route("*", "/{kind}/v1/{rest:.*}", shop.api)
    app.router.add_get("/{name}", shop.page)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    shop.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield shop
    finally:
        await clean_up(runner)
