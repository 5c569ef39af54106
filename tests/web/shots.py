"""`make shots` takes screenshots of every checkout state, or of the named pages."""

import asyncio
import os
import sys
import tempfile
from pathlib import Path

from playwright.async_api import Browser, Page, async_playwright

from payintent.members.model import MemberRole
from payintent_sandbox.postgres import Postgres
from tests.support import browser as programs
from tests.web.checkout_shots import shoot_checkout, shoot_portraits, take_whole_page
from tests.web.console_gallery import CONSOLE_PAGES, open_console
from tests.web.console_shots import (
    IN_THE_DOCS,
    save_small,
    shoot_console,
    shoot_for_the_docs,
)
from tests.web.gallery import Gallery, open_gallery
from tests.web.portal_pages import FINANCE_PAGES, PAGES, arrange_portal, sign_in_by_link
from tests.web.states import STATES
from tests.web.visiting import SMALL_PX, open_state, screen

FOLDER = Path(os.environ.get("VAR_DIR", "var")) / "screenshots"
_IS_COMPLETE = os.environ.get("ALL") == "1"  # also in dark mode and in every language
_CONSOLE = "console-"  # prefix for console pages
_WIDE_PX = 1280
_PORTAL = "portal"  # every page of the merchant portal
_README_STATE = "choose-shop"
_DOCS = "docs"  # the documentation's screenshots, which are part of the repository
_DOCS_FOLDER = Path(__file__).parents[2] / "docs" / "pictures"
_PORTRAITS = "portraits"  # the documentation's screenshots of the checkout


async def shoot_portal(gallery: Gallery, browser: Browser, folder: Path) -> int:
    """Take screenshots of the merchant portal; return their number."""
    scene, count = await arrange_portal(gallery.plain), 0
    context = await screen(browser)
    pages = {
        role: await sign_in_by_link(await screen(browser), scene, role, f"{role}@nimbus.example")
        for role in MemberRole
    }
    for name in PAGES:
        page = pages[MemberRole.FINANCE if name in FINANCE_PAGES else MemberRole.DEVELOPER]
        count += await _portal_looks(page, folder, name, scene.address(name))
    page = await context.new_page()
    for name in ("sign-in", "link/" + "A" * 43):
        page_name = name.partition("/")[0]
        count += await _portal_looks(page, folder, page_name, f"{scene.base}/{name}")
    return count


async def _portal_looks(page: Page, folder: Path, name: str, address: str) -> int:
    await page.goto(address)
    for look, scheme, width in (
        ("light", "light", _WIDE_PX),
        ("dark", "dark", _WIDE_PX),
        ("320", "light", SMALL_PX),
    ):
        await page.emulate_media(color_scheme=scheme)
        await take_whole_page(page, folder / f"portal-{name}-{look}.png", width)
    return 3


async def shoot_checkout_for_the_docs(gallery: Gallery, browser: Browser) -> int:
    """Take the screenshot of the checkout in README.md; return the number of screenshots."""
    context = await screen(browser)
    page = (await open_state(context, gallery, _README_STATE)).page
    await page.set_viewport_size({"width": 900, "height": 1_000})
    save_small(await page.screenshot(), _DOCS_FOLDER / "checkout.png")
    await context.close()
    return 1


async def _run(server_url: str, folder: Path, selected_names: list[str]) -> int:
    program = programs.find()
    if program is None:
        sys.exit(programs.MISSING)
    buyers = [name for name in selected_names if name in STATES]
    operators = [
        name.removeprefix(_CONSOLE) for name in selected_names if name.startswith(_CONSOLE)
    ]
    count = 0
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=program)
        try:
            if buyers or _PORTAL in selected_names:
                async with open_gallery(server_url) as gallery:
                    count += await shoot_checkout(
                        gallery, browser, folder, buyers, is_complete=_IS_COMPLETE
                    )
                    if _PORTAL in selected_names:
                        count += await shoot_portal(gallery, browser, folder)
            if {_DOCS, _PORTRAITS} & {*selected_names}:
                async with open_gallery(server_url) as gallery:
                    count += await shoot_checkout_for_the_docs(gallery, browser)
                    count += await shoot_portraits(gallery, browser, _DOCS_FOLDER / "after")
            if operators or _DOCS in selected_names:
                async with open_console(server_url) as console:
                    count += await shoot_console(console, browser, folder, operators)
                    if _DOCS in selected_names:
                        count += await shoot_for_the_docs(
                            console, browser, _DOCS_FOLDER, IN_THE_DOCS
                        )
        finally:
            await browser.close()
    return count


def main() -> None:
    """Take screenshots of all checkout states, or of the pages named in the arguments."""
    names = [*STATES, _PORTAL, *(f"{_CONSOLE}{name}" for name in CONSOLE_PAGES)]
    selected_names = sys.argv[1:] or list(STATES)
    if unknown := set(selected_names) - {*names, _DOCS, _PORTRAITS}:
        sys.exit(f"there is no state {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    FOLDER.mkdir(parents=True, exist_ok=True)
    _DOCS_FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="payintent-shots-") as place:
        Path(place).chmod(0o711)  # so that the server's system user can reach its data
        postgres = Postgres(Path(place) / "postgres", durable=False)
        try:
            count = asyncio.run(_run(postgres.start(), FOLDER, selected_names))
        finally:
            postgres.stop()
    print(f"{count} pictures in {FOLDER}")


if __name__ == "__main__":
    main()
