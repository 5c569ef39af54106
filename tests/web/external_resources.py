"""Serve the resources around a checkout: a provider's script, images, and the shop."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from io import BytesIO

from aiohttp import web
from PIL import Image, ImageDraw

from tests.support.http_server import clean_up
from tests.support.ports import free_port

_FIELDS = """<!doctype html><html lang="en"><title>Card</title><style>
:root { color-scheme: light dark }
body { margin: 0; font: 1rem system-ui, sans-serif; background: #fff; color: #1b1f24 }
@media (prefers-color-scheme: dark) { body { background: #16191d; color: #e8eaed } }
h1 { position: absolute; clip-path: inset(50%) }
label { display: block } input { box-sizing: border-box; width: 100%; min-height: 2.75rem }
</style><main><h1>Card</h1><label>Card number <input></label></main>"""

# The part of the provider's script that card.js needs. It shows the fields in a separate frame.
_SCRIPT = """
window.Stripe = () => ({
  retrievePaymentIntent: async () => ({ paymentIntent: { status: "requires_payment_method" } }),
  confirmPayment: async () => ({ error: { type: "card_error", message: "It was declined." } }),
  elements: () => ({
    create: () => {
      const listeners = {};
      return {
        on: (name, listener) => { listeners[name] = listener; },
        mount: (place) => {
          const frame = document.createElement("iframe");
          frame.title = "Secure payment input frame";
          frame.src = "BASE/fields";
          frame.style.cssText = "border: 0; width: 100%; height: 5rem";
          frame.onload = () => listeners.ready?.();
          place.append(frame);
        },
      };
    },
  }),
});
"""


def _png(draw: Callable[[ImageDraw.ImageDraw], None], size: int) -> bytes:
    picture = Image.new("RGBA", (size, size))
    draw(ImageDraw.Draw(picture))
    output = BytesIO()
    picture.save(output, "PNG")
    return output.getvalue()


def _book(draw: ImageDraw.ImageDraw) -> None:
    draw.rectangle((0, 0, 400, 400), fill="#123a5c")
    draw.ellipse((240, 50, 340, 150), fill="#f2b134")
    for row in range(6):
        draw.arc((-40, 200 + 30 * row, 440, 330 + 30 * row), 200, 340, fill="#8fc1e3", width=6)


def _cloud(draw: ImageDraw.ImageDraw) -> None:
    draw.rounded_rectangle((0, 0, 200, 200), 40, fill="#6f42c1")
    draw.ellipse((40, 80, 110, 150), fill="#fff")
    draw.ellipse((80, 60, 160, 150), fill="#fff")


@asynccontextmanager
async def serve_external_sites() -> AsyncIterator[str]:
    """Serve on a free port; yield the origin."""
    port = free_port()
    origin = f"http://127.0.0.1:{port}"
    app = web.Application()
    contents: dict[str, tuple[str, str | bytes]] = {
        "/v3.js": ("text/javascript", _SCRIPT.replace("BASE", origin)),
        "/fields": ("text/html", _FIELDS),
        "/picture.png": ("image/png", _png(_book, 400)),
        "/logo.png": ("image/png", _png(_cloud, 200)),
    }
    for path, (kind, content) in contents.items():
        app.router.add_get(path, _respond_with(kind, content))
    app.router.add_get("/shop", _no_content)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    yield origin
    await clean_up(runner)


def _respond_with(kind: str, content: str | bytes):
    async def respond(_: web.Request) -> web.Response:
        body = content if isinstance(content, bytes) else content.encode()
        return web.Response(body=body, content_type=kind)

    return respond


async def _no_content(_: web.Request) -> web.Response:
    """Keep the buyer on the current page, even if it returns to the shop automatically."""
    return web.Response(status=204)
