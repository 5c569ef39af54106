"""Take screenshots of the console for `python -m tests.web.shots`."""

from collections.abc import Mapping
from io import BytesIO
from pathlib import Path

from PIL import Image
from playwright.async_api import Browser

from tests.web.console_gallery import CONSOLE_PAGES, ConsoleGallery
from tests.web.visiting import SMALL_PX, screen

_WIDE_PX = 1280
CONSOLE_LOOKS = ("light", "dark", "320")
#: The pages in `docs/operate/console.md`, and the heights of their screenshots.
IN_THE_DOCS = {
    "today": 1_000,
    "payment": 1_100,
    "approval": 640,
    "merchant": 1_000,
    "gateways": 700,
}
_COLOURS = 64  # sufficient for pages, and reduces the size to a third


async def shoot_console(
    gallery: ConsoleGallery, browser: Browser, folder: Path, names: list[str]
) -> int:
    """Take screenshots of the selected pages; return their number."""
    contexts = {None: await screen(browser)}
    for name in names:
        operator = CONSOLE_PAGES[name].operator
        if operator not in contexts:
            contexts[operator] = await screen(browser)
            await gallery.sign_in(contexts[operator], operator or "")
        page, _ = await gallery.show(contexts[operator], name)
        for look, colours, width in (
            ("light", "light", _WIDE_PX),
            ("dark", "dark", _WIDE_PX),
            ("320", "light", SMALL_PX),
        ):
            await page.emulate_media(color_scheme=colours)
            await page.set_viewport_size({"width": width, "height": 800})
            await page.screenshot(path=folder / f"console-{name}-{look}.png", full_page=True)
        await page.close()
    for context in contexts.values():  # otherwise the server would wait for their streams
        await context.close()
    return len(names) * len(CONSOLE_LOOKS)


async def shoot_for_the_docs(
    gallery: ConsoleGallery, browser: Browser, folder: Path, heights: Mapping[str, int]
) -> int:
    """Take the screenshots in `docs/operate/console.md`, compressed for the repository."""
    for name, height in heights.items():
        context = await screen(browser, viewport={"width": _WIDE_PX, "height": height})
        await gallery.sign_in(context, CONSOLE_PAGES[name].operator or "")
        page, _ = await gallery.show(context, name)
        save_small(await page.screenshot(), folder / f"console-{name}.png")
        await context.close()
    return len(heights)


def save_small(screenshot: bytes, path: Path) -> None:
    """Save a screenshot with a reduced palette."""
    picture = Image.open(BytesIO(screenshot)).convert("RGB")
    picture.quantize(_COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)
