"""Pictures of every page and state of the operator's console, for `make shots`."""

from pathlib import Path

from playwright.async_api import Browser

from tests.web.console_gallery import CONSOLE_PAGES, ConsoleGallery
from tests.web.visiting import SMALL_PX, screen

_WIDE_PX = 1280
CONSOLE_LOOKS = ("light", "dark", "320")


async def shoot_console(
    gallery: ConsoleGallery, browser: Browser, folder: Path, wanted: list[str]
) -> int:
    """Take the pictures of the pages that are wanted; gives how many."""
    contexts = {None: await screen(browser)}
    for name in wanted:
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
    return len(wanted) * len(CONSOLE_LOOKS)
