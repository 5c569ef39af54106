"""The page of cells in a browser, while one is away: for everybody to use, at every size."""

from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Browser
from pytest_asyncio import fixture

from tests.web import checks
from tests.web.console_cells import open_cells
from tests.web.console_gallery import ConsoleGallery
from tests.web.gallery import server_url
from tests.web.visiting import SMALL_PX, screen

LOOP = "session"
pytestmark = pytest.mark.asyncio(loop_scope=LOOP)
_WIDTHS = (1280, 412, SMALL_PX)


@fixture(loop_scope=LOOP, scope="module")
async def console() -> AsyncIterator[ConsoleGallery]:
    async with open_cells(server_url()) as gallery:
        yield gallery


@pytest.mark.parametrize("operator", ["Ada", "Vic"])
async def test_everybody_can_use_the_page_of_cells(
    console: ConsoleGallery, browser: Browser, operator: str
) -> None:
    context = await screen(browser)
    await console.sign_in(context, operator)
    page = await context.new_page()
    await page.goto(f"{console.base}/cells")
    assert await page.get_by_text("away", exact=True).count() == 1
    assert await page.get_by_role("link", name="Drain: cell 1").count() == (operator == "Ada")
    found = await checks.tabbed(page)
    for colours in ("light", "dark"):
        await page.emulate_media(color_scheme=colours)  # type: ignore[arg-type]
        for width in _WIDTHS:
            await page.set_viewport_size({"width": width, "height": 800})
            found += await checks.axe(page)
            found += await checks.overflow(page) + await checks.too_small(page)
    await context.close()
    assert found == []


async def test_the_notice_of_a_cell_that_is_away_is_on_every_page_and_leads_to_cells(
    console: ConsoleGallery, browser: Browser
) -> None:
    context = await screen(browser, viewport={"width": SMALL_PX, "height": 2 * SMALL_PX})
    await console.sign_in(context, "Vic")
    page = await context.new_page()
    for path in ("/", "/payments", "/operations", "/audit"):
        await page.goto(console.base + path)
        notice = page.get_by_text("Cell 2 has not answered for")
        assert await notice.count() == 1, path
        found = await checks.axe(page) + await checks.overflow(page) + await checks.too_small(page)
        assert found == [], path
    await page.get_by_role("link", name="What to do").click()
    await page.wait_for_selector("h1:text('Cells')")
    await context.close()
