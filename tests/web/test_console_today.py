"""Test the console's Today, Gateways and Chains pages in a browser."""

import asyncio
import re
from collections.abc import AsyncGenerator

import pytest
from playwright.async_api import Browser, Page, Route, expect
from pytest_asyncio import fixture

from payintent.runtime.settings import Settings
from payintent.service import Service
from tests.console.test_chains import CURSOR, REASON
from tests.console.test_today import count
from tests.refunds.refund_setup import create_paid_payment
from tests.support.running_service import serving_operator
from tests.support.timeouts import PATIENCE_S
from tests.support.world import World
from tests.web import checks
from tests.web.visiting import SMALL_PX, screen

LOOP = "session"
pytestmark = [pytest.mark.asyncio(loop_scope=LOOP), pytest.mark.full]
expect.set_options(timeout=PATIENCE_S * 1000)
_SMALL = {"width": SMALL_PX, "height": 2 * SMALL_PX}
_WIDE = {"width": 1280, "height": 900}
_PHONE = {"width": 412, "height": 823}
_SCRIPTS = re.compile(r"\.js(\?|$)")
_PAINTED = "() => performance.getEntriesByName('first-contentful-paint').length"
#: Layout shifts after the first paint that affect more than 1 % of the screen.
_MOVED = """async () => {
  const findings = [];
  const observer = new PerformanceObserver((list) => findings.push(...list.getEntries()));
  observer.observe({ type: "layout-shift", buffered: true });
  for (let frame = 0; frame < 3; frame += 1) await new Promise(requestAnimationFrame);
  await new Promise((done) => setTimeout(done));
  return findings.filter(({ value }) => value > 0.01).flatMap(({ value, sources }) => sources.map(
    ({ node }) => `${value}: ${node?.localName} ${node?.id} ${node?.className}`));
}"""
#: Records when the browser skips the rendering of a part of Today, and when it renders the part.
_NOTE_PARTS = """document.addEventListener("contentvisibilityautostatechange", (event) => {
  const part = event.target.getAttribute("aria-labelledby");
  (window.visibilityEvents ??= []).push([part, event.skipped]);
}, true)"""
#: The font sizes and weights on the screen.
_FONTS = """() => [...new Set([...document.querySelectorAll("body *")].filter((part) => {
  const { top, bottom } = part.getBoundingClientRect();
  const hasText = [...part.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
  return hasText && bottom > 0 && top < innerHeight && part.checkVisibility();
}).map((part) => getComputedStyle(part))
  .map((style) => `${style.fontSize} ${style.fontWeight}`))]"""
_FONTS_MAX = 4  # each costs rendering time
#: Tables may scroll horizontally, but the page must not.
_SIDEWAYS = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"


@fixture(loop_scope=LOOP)
async def page(
    settings: Settings, service: Service, world: World, browser: Browser
) -> AsyncGenerator[Page]:
    """The console with a signed-in operator."""
    async with serving_operator(settings, service) as base:
        context = await screen(browser, base_url=base)
        page = await context.new_page()
        await page.goto("/")
        await page.get_by_label("Operator token").fill(await world.operator_token())
        await page.get_by_role("button", name="Sign in").click()
        yield page
        await context.close()


async def _find_problems(page: Page) -> list[str]:
    """Check a page at two widths in light and dark mode, and leave it wide and light."""
    problems = await checks.axe(page) + await checks.too_small(page)
    await page.emulate_media(color_scheme="dark")
    problems += await checks.axe(page, *checks.COLOURS)
    await page.set_viewport_size(_SMALL)
    problems += await checks.axe(page) + await checks.too_small(page)
    if await page.evaluate(_SIDEWAYS) > 0:
        problems.append("the page is wider than the screen")
    await page.emulate_media(color_scheme="light")
    await page.set_viewport_size(_WIDE)
    return problems


async def test_an_operator_sees_a_live_payment_and_manages_gateways_and_chains(
    page: Page, world: World
) -> None:
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on(
        "console", lambda message: errors.append(message.text) if message.type == "error" else None
    )

    assert await _measure_layout_shift(page) == []
    visibility_events: list[list[object]] = await page.evaluate("window.visibilityEvents")
    first_events = dict(reversed(visibility_events))  # the first event of each part
    assert first_events["ends"] is True
    # Immediately, or in the next frame if the browser is slow.
    assert [
        "money",
        False,
    ] in visibility_events
    paid_figure = page.locator(".ends .paid .figure")
    await expect(paid_figure).to_have_text("0")
    await paid_figure.locator("xpath=..").focus()
    await create_paid_payment(world)
    await count(world)
    await expect(paid_figure).to_have_text("1")
    await expect(paid_figure.locator("xpath=..")).to_be_focused()
    await expect(page.locator("[data-part=money]")).to_contain_text("1,590.00")
    assert await _find_problems(page) == []
    await page.get_by_role("button", name="Pause").click()
    await expect(page.locator("#live-state")).to_have_text("Paused")

    await page.get_by_role("link", name="Gateways", exact=True).first.click()
    assert await _find_problems(page) == []
    for subject in ("fake", "account 1"):
        await page.get_by_role("link", name=f"Disable: {subject}", exact=True).click()
        await _confirm(page)
        await page.goto("/gateways")
        await page.get_by_role("link", name=f"Enable: {subject}", exact=True).click()
        await _confirm(page)
        await page.goto("/gateways")
        disable_link = page.get_by_role("link", name=f"Disable: {subject}", exact=True)
        await expect(disable_link).to_be_visible()

    await world.rows(CURSOR, "bsc", REASON)
    await page.goto("/chains")
    await expect(page.get_by_text(REASON)).to_be_visible()
    assert await _find_problems(page) == []
    await page.get_by_role("link", name=re.compile("^Resume ")).click()
    await _confirm(page)
    await page.goto("/chains")
    # Until the chain is scanned.
    await expect(page.get_by_text("not watched", exact=True)).to_be_visible()
    await expect(page.get_by_text(REASON)).to_have_count(0)
    assert errors == []


async def _measure_layout_shift(page: Page) -> list[str]:
    """Load Today on a phone, with scripts only after the first paint; return the layout shift."""
    is_requested, is_painted = asyncio.Event(), asyncio.Event()
    delayed_scripts: list[str] = []

    async def continue_later(route: Route) -> None:
        delayed_scripts.append(route.request.url.rpartition("/")[2])
        is_requested.set()
        await is_painted.wait()
        await route.continue_()

    await page.set_viewport_size(_PHONE)
    await page.goto("about:blank")  # otherwise scripts of the previous page are delayed too
    await page.add_init_script(_NOTE_PARTS)
    await page.route(_SCRIPTS, continue_later)
    await page.goto("/", wait_until="commit")
    await page.wait_for_function(_PAINTED)
    await asyncio.wait_for(is_requested.wait(), PATIENCE_S)
    # The chart's library is requested when the figures are displayed.
    assert delayed_scripts == ["today.js"]
    assert len(await page.evaluate(_FONTS)) <= _FONTS_MAX
    is_painted.set()
    await expect(page.locator("#live-state")).to_have_text("Live")
    await expect(page.locator("#chart canvas")).to_be_visible()
    layout_shifts: list[str] = await page.evaluate(_MOVED)
    await page.unroute(_SCRIPTS)
    await page.set_viewport_size(_WIDE)
    return layout_shifts


async def _confirm(page: Page) -> None:
    """Enter a reason, and confirm the change."""
    await page.get_by_label("Reason").fill("it is tried")
    await page.get_by_role("button", name=re.compile("^(Submit|Continue)$")).click()
    confirm_button = page.get_by_role("button", name="Confirm")
    if await confirm_button.count():
        await confirm_button.click()
    await expect(page.get_by_text("Done.", exact=True)).to_be_visible()


async def test_the_figures_are_available_without_scripts(
    settings: Settings, service: Service, world: World, browser: Browser
) -> None:
    async with serving_operator(settings, service) as base:
        context = await screen(browser, base_url=base, java_script_enabled=False)
        page = await context.new_page()
        await page.goto("/")
        await page.get_by_label("Operator token").fill(await world.operator_token())
        await page.get_by_role("button", name="Sign in").click()
        await page.get_by_text("Show as a table").click()
        await expect(page.get_by_role("row")).not_to_have_count(0)
        await expect(page.locator("#points tbody tr")).to_have_count(24)
        await expect(page.locator("#chart")).to_be_hidden()
        await expect(page.locator("#pause")).to_be_hidden()
        await page.get_by_role("link", name="Reload every 30 seconds").click()
        await expect(page.get_by_text("Reloading every 30 seconds.")).to_be_visible()
        await context.close()
