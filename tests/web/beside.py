"""What stands beside a checkout in its states: a provider's script, pictures, and the shop."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from tests.support.http_server import clean_up
from tests.support.world import free_port

_FIELDS = """<!doctype html><html lang="en"><title>Card</title><style>
body { margin: 0; font: 1rem system-ui, sans-serif; background: #fff; color: #1b1f24 }
label { display: block } input { box-sizing: border-box; width: 100%; min-height: 2.75rem }
</style><main><h1 style="font-size: 1rem">Card</h1><label>Card number <input></label></main>"""

# What card.js asks of the provider's script: fields in a frame of the provider's own.
_SCRIPT = """
window.Stripe = () => ({
  retrievePaymentIntent: async () => ({ paymentIntent: { status: "requires_payment_method" } }),
  confirmPayment: async () => ({ error: { type: "card_error", message: "It was declined." } }),
  elements: () => ({
    create: () => {
      const heard = {};
      return {
        on: (name, hear) => { heard[name] = hear; },
        mount: (place) => {
          const frame = document.createElement("iframe");
          frame.title = "Secure payment input frame";
          frame.src = "BASE/fields";
          frame.style.cssText = "border: 0; width: 100%; height: 7rem; color-scheme: light";
          frame.onload = () => heard.ready?.();
          place.append(frame);
        },
      };
    },
  }),
});
"""
_PICTURE = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 64 64"><rect width="64" \
height="64" fill="#0b5bd3"/><path d="M16 14h32v36H16z" fill="#fff"/></svg>"""
_LOGO = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 48 48"><circle cx="24" cy="24" \
r="22" fill="#6f42c1"/></svg>"""


@asynccontextmanager
async def beside() -> AsyncIterator[str]:
    """Serve it on a free port; gives the origin."""
    port = free_port()
    origin = f"http://127.0.0.1:{port}"
    app = web.Application()
    contents = {
        "/v3.js": ("text/javascript", _SCRIPT.replace("BASE", origin)),
        "/fields": ("text/html", _FIELDS),
        "/picture.svg": ("image/svg+xml", _PICTURE),
        "/logo.svg": ("image/svg+xml", _LOGO),
    }
    for path, (kind, text) in contents.items():
        app.router.add_get(path, _giving(kind, text))
    app.router.add_get("/shop", _nothing)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    yield origin
    await clean_up(runner)


def _giving(kind: str, text: str):
    async def give(_: web.Request) -> web.Response:
        return web.Response(text=text, content_type=kind)

    return give


async def _nothing(_: web.Request) -> web.Response:
    """Leave the buyer where he is: a page that goes back to its shop stays to be looked at."""
    return web.Response(status=204)
