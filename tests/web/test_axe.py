"""Every page and state is accessible: axe and our own checks find no violations."""

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from playwright.async_api import Browser, BrowserContext, Page
from pytest_asyncio import fixture

from payintent.checkout import rendering
from payintent.core.languages import LOCALES
from tests.web import checks
from tests.web.gallery import Gallery
from tests.web.states import MAIN, STATES
from tests.web.templates import record_templates, templates_of
from tests.web.visiting import HIGH_PX, SMALL_PX, WIDE_PX, look_at, screen

LOOP = "session"
pytestmark = [pytest.mark.asyncio(loop_scope=LOOP), pytest.mark.full]

_SMALL = {"width": SMALL_PX, "height": 2 * SMALL_PX}
_HALF = {"width": WIDE_PX // 2, "height": HIGH_PX}


@fixture(loop_scope=LOOP, scope="module")
async def desk(browser: Browser, gallery: Gallery) -> AsyncIterator[BrowserContext]:
    """A normal browser, as people have."""
    desk = await screen(browser)
    # One page stays open: the others share its process, and what that has compiled.
    await (await desk.new_page()).goto(gallery.base.removesuffix("/c") + "/docs")
    yield desk
    await desk.close()


#: A state of each template; the fullest, since what it lacks is not looked at.
_ONE_OF_EACH = (
    "choose-everything", "problem", "redirect-taxed", "card", "wallet-found", "deposit-partial",
    "time-over", "refund-address-invalid", "link-invalid-amount",
    "paid-shop", "failed-declined", "receipt-refunded", "not-found",
)  # fmt: skip


@pytest.mark.parametrize("name", _ONE_OF_EACH)
async def test_everybody_can_use_it(gallery: Gallery, desk: BrowserContext, name: str) -> None:
    look = await look_at(desk, gallery, name)
    async with look.page as page:
        await checks.unfold(page)
        found = await checks.unsaid(page)
        found += await checks.tabbed(page)
        found += await _bright_dark_and_small(page)
        await page.set_viewport_size(_HALF)
        await page.evaluate("document.documentElement.style.fontSize = '200%'")
        found += await checks.overflow(page)
    assert found == []
    assert look.troubles == []


@pytest.mark.parametrize("name", sorted(STATES.keys() - set(_ONE_OF_EACH)))
async def test_every_other_state_fits_a_small_screen(
    gallery: Gallery, desk: BrowserContext, name: str
) -> None:
    look = await look_at(desk, gallery, name)
    async with look.page as page:
        await page.set_viewport_size(_SMALL)
        await checks.unfold(page)
        found = [*await checks.overflow(page), *await checks.unsaid(page)]
    assert found == []
    assert look.troubles == []


async def test_a_state_of_each_template_is_looked_at(
    gallery: Gallery, desk: BrowserContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    rendering.language_options.cache_clear()  # what is kept is not rendered
    rendered = record_templates(rendering, monkeypatch)
    for name in _ONE_OF_EACH:
        await (await look_at(desk, gallery, name)).page.close()
    assert templates_of(rendering) - rendered == {"test_card.html"}  # of test payments


async def _bright_dark_and_small(page: Page) -> list[str]:
    found = await checks.axe(page)
    found += await checks.overflow(page) + await checks.too_small(page)
    await page.emulate_media(color_scheme="dark")
    found += await checks.axe(page, *checks.COLOURS)
    await page.set_viewport_size(_SMALL)
    found += await checks.axe(page)
    return found + await checks.overflow(page) + await checks.too_small(page)


@pytest.mark.parametrize("name", MAIN)
async def test_everybody_can_use_it_where_lines_begin_at_the_right(
    gallery: Gallery, desk: BrowserContext, name: str
) -> None:
    look = await look_at(desk, gallery, name, "ar")
    async with look.page as page:
        assert await page.evaluate("getComputedStyle(document.body).direction") == "rtl"
        await checks.unfold(page)
        found = await checks.tabbed(page) + await _bright_dark_and_small(page)
    assert found == []
    assert look.troubles == []


_IN_EVERY_LANGUAGE = (
    *("choose-taxed", "choose-everything", "wallet-none", "deposit-partial", "deposit-failed"),
    *("refund-address-invalid", "refund-address-sent", "receipt-taxed"),
)


@pytest.mark.parametrize("lang", LOCALES)
async def test_every_language_fits_a_small_screen(
    gallery: Gallery, desk: BrowserContext, lang: str
) -> None:
    found: dict[str, list[str]] = {}
    for name in _IN_EVERY_LANGUAGE:
        look = await look_at(desk, gallery, name, lang)
        async with look.page as page:
            await page.set_viewport_size(_SMALL)
            await checks.unfold(page)
            found[name] = [*await checks.overflow(page), *await checks.unsaid(page), *look.troubles]
    assert not any(found.values()), found


_BUTTON = "document.querySelector('form.methods button')"
#: A fault that is planted, the check that finds it, and what is said of it.
_FAULTS: dict[str, tuple[Callable[[Page], Awaitable[list[str]]], str]] = {
    "document.querySelector('[name=payer_email]').before('Email'); "
    "document.querySelector('label.field')"
    ".replaceWith(document.querySelector('[name=payer_email]'))": (
        checks.axe,
        "label: ",
    ),
    "document.querySelector('.method .soft').style.color = '#bbb'": (
        checks.axe,
        "color-contrast: ",
    ),
    f"{_BUTTON}.style.width = '400px'": (checks.overflow, "stands out of the screen"),
    "document.querySelector('main').style.minWidth = '30rem'": (checks.overflow, "the page is "),
    f"{_BUTTON}.style.cssText = 'overflow: hidden; width: 3rem; white-space: nowrap'": (
        checks.overflow,
        "is cut off",
    ),
    f"{_BUTTON}.style.cssText = 'min-height: 0; padding: 0; height: 20px'": (
        checks.too_small,
        " x 20",
    ),
    f"{_BUTTON}.tabIndex = -1": (checks.tabbed, "is not reached"),
    f"{_BUTTON}.tabIndex = 1": (checks.tabbed, "is reached after what stands below it"),
    "document.querySelector('[name=payer_email]').style.outline = 'none'": (
        checks.tabbed,
        "does not show that it has",
    ),
    f"{_BUTTON}.textContent = 'built-in method copy of dict'": (
        checks.unsaid,
        "'built-in method'",
    ),
    "document.title = 'Pay {merchant}'": (checks.unsaid, "'{'"),
}


@pytest.mark.parametrize("fault", _FAULTS)
async def test_a_planted_fault_is_found(gallery: Gallery, desk: BrowserContext, fault: str) -> None:
    check, words = _FAULTS[fault]
    async with (await look_at(desk, gallery, "choose")).page as page:
        await page.set_viewport_size(_SMALL)
        await checks.unfold(page)
        await page.evaluate(fault)
        found = await check(page)
    assert any(words in item for item in found), found


async def test_a_part_that_a_live_page_replaces_is_no_fault(
    gallery: Gallery, desk: BrowserContext
) -> None:
    replace = f"const one = {_BUTTON}; one.replaceWith(one.cloneNode(true))"
    async with (await look_at(desk, gallery, "choose")).page as page:
        await checks.unfold(page)
        await page.evaluate(f"""document.addEventListener("focusin", () => {{ {replace} }},
            {{ once: true }})""")
        assert await checks.tabbed(page) == []
