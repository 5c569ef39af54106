"""The servers next to a checkout: a provider's script, images, and the shop."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from io import BytesIO

from aiohttp import web
from PIL import Image, ImageDraw

from tests.support.http_server import clean_up
from tests.support.world import free_port

_FIELDS = """<!doctype html><html lang="en"><title>Card</title><style>
:root { color-scheme: light dark }
body { margin: 0; font: 1rem system-ui, sans-serif; background: #fff; color: #1b1f24 }
@media (prefers-color-scheme: dark) { body { background: #16191d; color: #e8eaed } }
h1 { position: absolute; clip-path: inset(50%) }
label { display: block } input { box-sizing: border-box; width: 100%; min-height: 2.75rem }
</style><main><h1>Card</h1><label>Card number <input></label></main>"""

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
          frame.style.cssText = "border: 0; width: 100%; height: 5rem";
          frame.onload = () => heard.ready?.();
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
    written = BytesIO()
    picture.save(written, "PNG")
    return written.getvalue()


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
async def beside() -> AsyncIterator[str]:
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
        app.router.add_get(path, _giving(kind, content))
    app.router.add_get("/shop", _nothing)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    yield origin
    await clean_up(runner)


def _giving(kind: str, content: str | bytes):
    async def give(_: web.Request) -> web.Response:
        body = content if isinstance(content, bytes) else content.encode()
        return web.Response(body=body, content_type=kind)

    return give


async def _nothing(_: web.Request) -> web.Response:
    """Keep the buyer on the page, so that a page that returns to its shop can be seen."""
    return web.Response(status=204)
