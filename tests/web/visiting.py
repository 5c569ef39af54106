"""A browser's steps to a checkout state: the URL, the input, and the wait."""

import asyncio
import re
from dataclasses import dataclass, field

from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Page, Response

from tests.support.patience import PATIENCE_S
from tests.web.gallery import Gallery
from tests.web.states import STATES, Visit
from tests.web.wallet import ANNOUNCED

WIDE_PX = 1024
HIGH_PX = 900
SMALL_PX = 320
# A browser tells of every answer that is an error; some states are one.
_DAILY = re.compile(r"Failed to load resource")


@dataclass
class Look:
    """A state on a screen, and its errors."""

    page: Page
    visit: Visit
    troubles: list[str] = field(default_factory=list[str])

    def hear(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"} and not _DAILY.search(message.text):
            self.troubles.append(f"console: {message.text}")


async def screen(browser: Browser, **options: object) -> BrowserContext:
    """Open a wide, light screen without animations."""
    fields: dict[str, object] = {
        "viewport": {"width": WIDE_PX, "height": HIGH_PX},
        "color_scheme": "light",
        "reduced_motion": "reduce",
        "locale": "en",
    }
    context = await browser.new_context(**(fields | options))  # type: ignore[arg-type]
    context.set_default_timeout(PATIENCE_S * 1000)
    return context


async def look_at(context: BrowserContext, gallery: Gallery, name: str, lang: str = "") -> Look:
    """Create a state, and show it completely."""
    return await show(context, gallery, await STATES[name](gallery), lang)


async def show(context: BrowserContext, gallery: Gallery, visit: Visit, lang: str = "") -> Look:
    """Show an existing state completely."""
    page = await context.new_page()
    look = Look(page, visit)
    page.on("console", look.hear)
    page.on("pageerror", lambda error: look.troubles.append(f"script: {error}"))
    if visit.headers:
        await page.set_extra_http_headers(dict(visit.headers))
    if visit.wallet:
        await page.add_init_script(ANNOUNCED)
    await _go(page, address(gallery, visit, lang), visit)
    # Even where it is hidden: what shows is for the looks to say.
    await page.wait_for_selector(visit.ready, state="visible")
    return look


def address(gallery: Gallery, visit: Visit, lang: str = "") -> str:
    """Return a state's full URL, in a language."""
    joint = "&" if "?" in visit.path else "?"
    said = f"{joint}lang={lang}" if lang else ""
    return f"{gallery.base.removesuffix('/c')}{visit.path}{said}"


async def _go(page: Page, url: str, visit: Visit) -> None:
    """Repeat a request until its response is as expected, because a limit allows one per second."""
    answer: Response | None = None
    async with asyncio.timeout(PATIENCE_S):
        while answer is None or answer.status != visit.status:
            answer = await page.goto(url)
            if visit.posts:
                if visit.entry:
                    await page.fill("main textarea, main [name=amount]", visit.entry)
                async with page.expect_navigation() as posted:
                    await page.click(visit.posts)
                answer = await posted.value
            if answer is not None and visit.status not in {answer.status, 429}:
                raise AssertionError(f"{url} answers {answer.status}")
