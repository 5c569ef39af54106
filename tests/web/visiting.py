"""Open a checkout state in a browser: navigate, enter input, and wait."""

import asyncio
import re
from dataclasses import dataclass, field

from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Page, Response

from tests.support.timeouts import PATIENCE_S
from tests.web.gallery import Gallery
from tests.web.states import STATES, Visit
from tests.web.wallet import ANNOUNCED

WIDE_PX = 1024
HIGH_PX = 900
SMALL_PX = 320
# Browsers log every error response, and some states are error responses.
_EXPECTED_MESSAGE = re.compile(r"Failed to load resource")


@dataclass
class OpenState:
    """A page that shows a state, and the page's errors."""

    page: Page
    visit: Visit
    errors: list[str] = field(default_factory=list[str])

    def record_message(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"} and not _EXPECTED_MESSAGE.search(message.text):
            self.errors.append(f"console: {message.text}")


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


async def open_state(
    context: BrowserContext, gallery: Gallery, name: str, lang: str = ""
) -> OpenState:
    """Create a state, and wait until its page is complete."""
    return await show(context, gallery, await STATES[name](gallery), lang)


async def show(
    context: BrowserContext, gallery: Gallery, visit: Visit, lang: str = ""
) -> OpenState:
    """Open an existing state, and wait until its page is complete."""
    page = await context.new_page()
    view = OpenState(page, visit)
    page.on("console", view.record_message)
    page.on("pageerror", lambda error: view.errors.append(f"script: {error}"))
    if visit.headers:
        await page.set_extra_http_headers(dict(visit.headers))
    if visit.wallet:
        await page.add_init_script(ANNOUNCED)
    await _navigate(page, address(gallery, visit, lang), visit)

    await page.wait_for_selector(visit.ready, state="visible")
    return view


def address(gallery: Gallery, visit: Visit, lang: str = "") -> str:
    """Return a state's full URL, with the language if it is given."""
    joint = "&" if "?" in visit.path else "?"
    query = f"{joint}lang={lang}" if lang else ""
    return f"{gallery.base.removesuffix('/c')}{visit.path}{query}"


async def _navigate(page: Page, url: str, visit: Visit) -> None:
    """Repeat a rate-limited request until the response has the expected status."""
    answer: Response | None = None
    async with asyncio.timeout(PATIENCE_S):
        while answer is None or answer.status != visit.status:
            answer = await page.goto(url)
            if visit.posts:
                if visit.entry:
                    await page.fill("main textarea, main [name=amount]", visit.entry)
                async with page.expect_navigation() as navigation:
                    await page.click(visit.posts)
                answer = await navigation.value
            if answer is not None and visit.status not in {answer.status, 429}:
                raise AssertionError(f"{url} answers {answer.status}")
