"""Test the operator console in a browser: accessibility, and approval by a second operator."""

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
from tests.web.test_html import validate_html
from tests.web.visiting import SMALL_PX, screen

LOOP = "session"
pytestmark = [pytest.mark.asyncio(loop_scope=LOOP), pytest.mark.full]

_USUAL_PX = 1280
_SMALL = {"width": SMALL_PX, "height": 2 * SMALL_PX}
#: Finds tables that scroll horizontally on a phone. Only the chart's figures may scroll.
_SIDEWAYS = """() => [...document.querySelectorAll(".table:not(:has(#points))")]
  .filter((element) => element.scrollWidth > element.clientWidth + 1)
  .map(({ ariaLabel, scrollWidth, clientWidth }) =>
    `${ariaLabel} is ${scrollWidth} wide on ${clientWidth}`)"""
#: A record with all details of a payment. Its inner tables scroll.
_SCROLLED = {"operation-nested"}
_OPERATORS = (None, *sorted({page.operator for page in CONSOLE_PAGES.values() if page.operator}))


@fixture(loop_scope=LOOP, scope="module")
async def console() -> AsyncIterator[ConsoleGallery]:
    """A console for all tests in this module, because the tests are independent."""
    async with open_console(server_url()) as gallery:
        yield gallery


@fixture(loop_scope=LOOP, scope="module")
async def signed_in_contexts(
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


#: The page with the most content for each template.
_ONE_OF_EACH = (
    "sign-in", "sessions", "today", "gateways", "chains", "operations", "operation-list",
    "operation-nested", "operation-form", "operation-refused", "operation-confirm",
    "operation-proposed", "operation-done", "approvals", "approval", "payments", "payment", "cases",
    "case", "refunds", "refund", "disputes", "webhooks", "events", "event", "merchants", "merchant",
    "audit",
    "not-found",
)  # fmt: skip


@pytest.mark.parametrize("name", _ONE_OF_EACH)
async def test_every_template_is_accessible(
    console: ConsoleGallery, signed_in_contexts: dict[str | None, BrowserContext], name: str
) -> None:
    page, _ = await console.show(signed_in_contexts[CONSOLE_PAGES[name].operator], name)
    async with page:
        problems = await checks.tab_problems(page)
        await checks.unfold(page)
        problems += await checks.raw_texts(page) + await _check_schemes_and_sizes(page)
    assert problems == []


@pytest.mark.parametrize("name", sorted(CONSOLE_PAGES.keys() - set(_ONE_OF_EACH)))
async def test_the_remaining_pages_fit_a_small_screen(
    console: ConsoleGallery, signed_in_contexts: dict[str | None, BrowserContext], name: str
) -> None:
    page, _ = await console.show(signed_in_contexts[CONSOLE_PAGES[name].operator], name)
    async with page:
        await page.set_viewport_size(_SMALL)  # type: ignore[arg-type]
        await checks.unfold(page)
        problems = await checks.raw_texts(page) + await checks.overflow(page)
        problems += await page.evaluate(_SIDEWAYS)
    assert problems == []


async def test_the_accessibility_tests_cover_every_template(
    console: ConsoleGallery,
    signed_in_contexts: dict[str | None, BrowserContext],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rendered = record_templates(rendering, monkeypatch)
    for name in _ONE_OF_EACH:
        await console.source(signed_in_contexts[CONSOLE_PAGES[name].operator], name)
    # Browsers leave this page immediately.
    assert templates_of(rendering) - rendered == {"onward.html"}


async def test_tables_fit_a_usual_screen_and_words_are_not_broken(
    browser: Browser,
) -> None:
    """Production data is long: gateway ids, addresses, names from an identity provider."""
    problems: dict[str, list[str]] = {}
    async with open_console(server_url(), has_long_texts=True) as gallery:
        contexts = {operator: await screen(browser) for operator in _OPERATORS}
        for operator, context in contexts.items():
            if operator is not None:
                await gallery.sign_in(context, operator)
        for name, console_page in CONSOLE_PAGES.items():
            if name in _SCROLLED:
                continue
            page, _ = await gallery.show(contexts[console_page.operator], name)
            async with page:
                await page.set_viewport_size({"width": _USUAL_PX, "height": 800})
                problems[name] = await checks.too_wide(page) + await checks.overflow(page)
        for context in contexts.values():
            await context.close()
    assert {name: items for name, items in problems.items() if items} == {}


@pytest.mark.parametrize(
    ("html", "problem"),
    [
        ('<div class="table"><table><td style="min-width: 90rem">x</td></table></div>', "wide"),
        ('<p style="width: 3rem; word-break: break-all">Stationery</p>', "Stationery is broken"),
    ],
)
async def test_the_checks_detect_a_wide_table_and_a_broken_word(
    browser: Browser, html: str, problem: str
) -> None:
    context = await screen(browser)
    page = await context.new_page()
    await page.set_content(f"<style>.table {{ overflow: auto }}</style><main>{html}</main>")
    assert any(problem in item for item in await checks.too_wide(page))
    await page.set_content("<main><p style='width: 8rem'>Nimbus Books and Stationery</p></main>")
    assert await checks.too_wide(page) == []
    await context.close()


async def test_every_page_is_valid_html(
    console: ConsoleGallery, signed_in_contexts: dict[str | None, BrowserContext], tmp_path: Path
) -> None:
    for name, console_page in CONSOLE_PAGES.items():
        html = await console.source(signed_in_contexts[console_page.operator], name)
        (tmp_path / f"{name}.html").write_text(html)
    assert await validate_html(tmp_path) == ""


async def _check_schemes_and_sizes(page: Page) -> list[str]:
    problems = await checks.axe(page)
    problems += await checks.overflow(page) + await checks.too_small(page)
    await page.emulate_media(color_scheme="dark")
    problems += await checks.axe(page, *checks.COLOURS)
    await page.set_viewport_size(_SMALL)  # type: ignore[arg-type]
    problems += await checks.axe(page) + await page.evaluate(_SIDEWAYS)
    return problems + await checks.overflow(page) + await checks.too_small(page)


async def test_an_operator_proposes_by_keyboard_and_a_second_operator_approves(
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
