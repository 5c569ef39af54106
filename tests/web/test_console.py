"""The operator console in a browser: accessible pages, and the work of two people."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, BrowserContext, Page
from pytest_asyncio import fixture

from payintent.console import rendering
from tests.web import checks
from tests.web.console_gallery import CONSOLE_PAGES, ConsoleGallery, open_console
from tests.web.gallery import server_url
from tests.web.templates import record_templates, templates_of
from tests.web.test_html import judgement
from tests.web.visiting import SMALL_PX, screen

LOOP = "session"
pytestmark = [pytest.mark.asyncio(loop_scope=LOOP), pytest.mark.full]

_USUAL_PX = 1280
_SMALL = {"width": SMALL_PX, "height": 2 * SMALL_PX}
#: Whoever looks from a phone sees all of a row; the figures behind the chart alone scroll.
_SIDEWAYS = """() => [...document.querySelectorAll(".table:not(:has(#points))")]
  .filter((one) => one.scrollWidth > one.clientWidth + 1)
  .map((one) => `${one.ariaLabel} is ${one.scrollWidth} wide on ${one.clientWidth}`)"""
#: A record with everything about a payment; the tables within it are scrolled.
_SCROLLED = {"operation-nested"}
_OPERATORS = (None, *sorted({page.operator for page in CONSOLE_PAGES.values() if page.operator}))


@fixture(loop_scope=LOOP, scope="module")
async def console() -> AsyncIterator[ConsoleGallery]:
    """A console for all tests in this file, which do not affect each other."""
    async with open_console(server_url()) as gallery:
        yield gallery


@fixture(loop_scope=LOOP, scope="module")
async def desks(
    console: ConsoleGallery, browser: Browser
) -> AsyncIterator[dict[str | None, BrowserContext]]:
    """A signed-in browser for each operator."""
    contexts = {operator: await screen(browser) for operator in _OPERATORS}
    for operator, context in contexts.items():
        if operator is not None:
            await console.sign_in(context, operator)
    yield contexts
    for context in contexts.values():
        await context.close()


#: A page of each template; the fullest, since what it lacks is not looked at.
_ONE_OF_EACH = (
    "sign-in", "sessions", "today", "gateways", "chains", "operations", "operation-list",
    "operation-nested", "operation-form", "operation-refused", "operation-confirm",
    "operation-proposed", "operation-done", "approvals", "approval", "payments", "payment", "cases",
    "case", "refunds", "refund", "disputes", "webhooks", "events", "event", "merchants", "merchant",
    "audit",
    "not-found",
)  # fmt: skip


@pytest.mark.parametrize("name", _ONE_OF_EACH)
async def test_everybody_can_use_it(
    console: ConsoleGallery, desks: dict[str | None, BrowserContext], name: str
) -> None:
    page, _ = await console.show(desks[CONSOLE_PAGES[name].operator], name)
    async with page:
        found = await checks.tabbed(page)
        await checks.unfold(page)
        found += await checks.unsaid(page) + await _bright_dark_and_small(page)
    assert found == []


@pytest.mark.parametrize("name", sorted(CONSOLE_PAGES.keys() - set(_ONE_OF_EACH)))
async def test_every_other_page_fits_a_small_screen(
    console: ConsoleGallery, desks: dict[str | None, BrowserContext], name: str
) -> None:
    page, _ = await console.show(desks[CONSOLE_PAGES[name].operator], name)
    async with page:
        await page.set_viewport_size(_SMALL)  # type: ignore[arg-type]
        await checks.unfold(page)
        found = await checks.unsaid(page) + await checks.overflow(page)
        found += await page.evaluate(_SIDEWAYS)
    assert found == []


async def test_a_page_of_each_template_is_looked_at(
    console: ConsoleGallery,
    desks: dict[str | None, BrowserContext],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rendered = record_templates(rendering, monkeypatch)
    for name in _ONE_OF_EACH:
        await console.source(desks[CONSOLE_PAGES[name].operator], name)
    assert templates_of(rendering) - rendered == {"onward.html"}  # a browser leaves it at once


async def test_no_table_is_too_wide_for_a_usual_screen_and_no_word_is_broken(
    browser: Browser,
) -> None:
    """Production texts are long: gateway ids, addresses, names from an identity provider."""
    found: dict[str, list[str]] = {}
    async with open_console(server_url(), has_long_texts=True) as gallery:
        contexts = {operator: await screen(browser) for operator in _OPERATORS}
        for operator, context in contexts.items():
            if operator is not None:
                await gallery.sign_in(context, operator)
        for name, wanted in CONSOLE_PAGES.items():
            if name in _SCROLLED:
                continue
            page, _ = await gallery.show(contexts[wanted.operator], name)
            async with page:
                await page.set_viewport_size({"width": _USUAL_PX, "height": 800})
                found[name] = await checks.too_wide(page) + await checks.overflow(page)
        for context in contexts.values():
            await context.close()
    assert {name: troubles for name, troubles in found.items() if troubles} == {}


@pytest.mark.parametrize(
    ("html", "trouble"),
    [
        ('<div class="table"><table><td style="min-width: 90rem">x</td></table></div>', "wide"),
        ('<p style="width: 3rem; word-break: break-all">Stationery</p>', "Stationery is broken"),
    ],
)
async def test_a_wide_table_and_a_broken_word_are_found(
    browser: Browser, html: str, trouble: str
) -> None:
    context = await screen(browser)
    page = await context.new_page()
    await page.set_content(f"<style>.table {{ overflow: auto }}</style><main>{html}</main>")
    assert any(trouble in item for item in await checks.too_wide(page))
    await page.set_content("<main><p style='width: 8rem'>Nimbus Books and Stationery</p></main>")
    assert await checks.too_wide(page) == []
    await context.close()


async def test_every_page_is_valid_html(
    console: ConsoleGallery, desks: dict[str | None, BrowserContext], tmp_path: Path
) -> None:
    for name, wanted in CONSOLE_PAGES.items():
        html = await console.source(desks[wanted.operator], name)
        (tmp_path / f"{name}.html").write_text(html)
    assert await judgement(tmp_path) == ""


async def _bright_dark_and_small(page: Page) -> list[str]:
    found = await checks.axe(page)
    found += await checks.overflow(page) + await checks.too_small(page)
    await page.emulate_media(color_scheme="dark")
    found += await checks.axe(page, *checks.COLOURS)
    await page.set_viewport_size(_SMALL)  # type: ignore[arg-type]
    found += await checks.axe(page) + await page.evaluate(_SIDEWAYS)
    return found + await checks.overflow(page) + await checks.too_small(page)


async def test_one_person_proposes_by_keyboard_and_another_approves(
    console: ConsoleGallery, browser: Browser
) -> None:
    context = await browser.new_context(java_script_enabled=False)
    page = await context.new_page()
    await page.goto(console.base)
    for _ in ("the provider", "the token"):
        await page.keyboard.press("Tab")
    await page.keyboard.type(console.stage.tokens["Ada"])
    await page.keyboard.press("Enter")
    await page.wait_for_selector("text=Needs attention")
    await page.goto(f"{console.base}/operations/operator/issue")
    await page.focus("#name")
    for text in ("Barbara", "Tab", "Tab", "Tab", "Barbara begins on Friday", "Enter"):
        await (page.keyboard.press(text) if text in {"Tab", "Enter"} else page.keyboard.type(text))
    await page.wait_for_selector("text=This change needs approval")
    await page.click("text=View approval")
    address = page.url
    assert await page.get_by_role("button", name="Approve").count() == 0
    await page.get_by_role("button", name="Sign out").click()
    await page.wait_for_url("**/sign-in")

    await page.goto(address)
    await page.fill("[name=token]", console.stage.tokens["Alan"])
    await page.get_by_role("button", name="Sign in").click()
    await page.wait_for_url(address)
    await page.fill("[name=note]", "agreed by telephone")
    await page.get_by_role("button", name="Approve").click()
    await page.wait_for_selector("text=shown only once")
    assert "Barbara" in await page.inner_text("main")
    await page.goto(address)
    assert "Alan" in await page.inner_text("main")
    assert [cookie["name"] for cookie in await context.cookies()] == ["payintent-console"]
    await context.close()
