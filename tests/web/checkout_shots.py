"""Take screenshots of the checkout states for `make shots` and the documentation."""

from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from PIL import Image
from playwright.async_api import Browser, BrowserContext, Page

from payintent.core.languages import LOCALES
from tests.web.gallery import Gallery
from tests.web.states import STATES, Visit
from tests.web.visiting import screen, show

WIDTHS_PX = (320, 390, 768, 1280)
_PHONE_PX = 390
_HEIGHTS_PX = {320: 568, 390: 844, 768: 1024, 1280: 800}  # of common screens
_LIGHT, _DARK = "light", "dark"
_WEBP_QUALITY = 60


@dataclass(frozen=True, slots=True)
class Portrait:
    """A screenshot in the documentation: a state on a screen of this width."""

    state: str
    width_px: int = _PHONE_PX

    @property
    def file_name(self) -> str:
        return f"{self.state}-{self.width_px}.webp"


PORTRAITS = (
    Portrait("choose-shop"),
    Portrait("choose-shop", 1280),
    Portrait("choose-everything"),
    Portrait("card"),
    Portrait("wallet-found"),
    Portrait("deposit"),
    Portrait("wait"),
    Portrait("paid-shop"),
    Portrait("failed-declined"),
    Portrait("expired"),
    Portrait("cancelled"),
)


async def shoot_checkout(
    gallery: Gallery, browser: Browser, folder: Path, names: list[str], *, is_complete: bool
) -> int:
    """Take screenshots of states at each width, and return their number.

    If `is_complete`, also take them in the dark theme and in each language.
    """
    count, context = 0, await screen(browser)
    for name in names:
        visit = await STATES[name](gallery)
        count += await _shoot_widths(context, gallery, visit, folder / name, is_complete)
        if is_complete:
            for locale in LOCALES[1:]:
                count += await _shoot_language(context, gallery, visit, folder / name, locale)
    await context.close()
    return count


async def _shoot_widths(
    context: BrowserContext, gallery: Gallery, visit: Visit, path: Path, is_complete: bool
) -> int:
    page = (await show(context, gallery, visit)).page
    await page.set_viewport_size({"width": _PHONE_PX, "height": _HEIGHTS_PX[_PHONE_PX]})
    await page.screenshot(path=f"{path}-{_PHONE_PX}-screen.png")
    schemes = (_LIGHT, _DARK) if is_complete else (_LIGHT,)
    for scheme in schemes:
        await page.emulate_media(color_scheme=scheme)
        for width in WIDTHS_PX:
            suffix = "" if scheme == _LIGHT else f"-{scheme}"
            await take_whole_page(page, Path(f"{path}-{width}{suffix}.png"), width)
    await page.close()
    return 1 + len(schemes) * len(WIDTHS_PX)


async def _shoot_language(
    context: BrowserContext, gallery: Gallery, visit: Visit, path: Path, locale: str
) -> int:
    page = (await show(context, gallery, visit, locale)).page
    await take_whole_page(page, Path(f"{path}-{_PHONE_PX}-{locale}.png"), _PHONE_PX)
    await page.close()
    return 1


async def take_whole_page(page: Page, path: Path, width: int) -> None:
    """Take a full-page screenshot on a tall screen, because browsers stitch screenshots badly."""
    height, needed = 0, _HEIGHTS_PX[width]
    while needed > height:  # until a row is on the screen, its height is an estimate
        height = needed
        await page.set_viewport_size({"width": width, "height": height})
        await page.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
        needed = await page.evaluate("document.documentElement.scrollHeight")
    await page.screenshot(path=path)


async def shoot_portraits(gallery: Gallery, browser: Browser, folder: Path) -> int:
    """Take the documentation's screenshots of the initial screens."""
    folder.mkdir(parents=True, exist_ok=True)
    for portrait in PORTRAITS:
        size = {"width": portrait.width_px, "height": _HEIGHTS_PX[portrait.width_px]}
        is_phone = portrait.width_px == _PHONE_PX
        context = await screen(
            browser, viewport=size, device_scale_factor=2 if is_phone else 1, has_touch=is_phone
        )
        page = (await show(context, gallery, await STATES[portrait.state](gallery))).page
        picture = Image.open(BytesIO(await page.screenshot()))
        picture.save(folder / portrait.file_name, quality=_WEBP_QUALITY, method=6)
        await context.close()
    return len(PORTRAITS)
