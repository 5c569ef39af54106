"""Check the accessibility of every checkout page and state with axe and our own checks."""

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
from tests.web.visiting import HIGH_PX, SMALL_PX, WIDE_PX, open_state, screen

LOOP = "session"
pytestmark = [pytest.mark.asyncio(loop_scope=LOOP), pytest.mark.full]

_SMALL = {"width": SMALL_PX, "height": 2 * SMALL_PX}
_HALF = {"width": WIDE_PX // 2, "height": HIGH_PX}


@fixture(loop_scope=LOOP, scope="module")
async def browser_context(browser: Browser, gallery: Gallery) -> AsyncIterator[BrowserContext]:
    """A browser context with the default settings."""
    browser_context = await screen(browser)
    # A page stays open so that later pages share its process and its compiled scripts.
    await (await browser_context.new_page()).goto(gallery.base.removesuffix("/c") + "/docs")
    yield browser_context
    await browser_context.close()


#: The state with the most content for each template.
_ONE_OF_EACH = (
    "choose-everything", "problem", "redirect-taxed", "card", "wallet-found", "deposit-partial",
    "time-over", "refund-address-invalid", "link-invalid-amount",
    "paid-shop", "failed-declined", "receipt-refunded", "not-found",
)  # fmt: skip


@pytest.mark.parametrize("name", _ONE_OF_EACH)
async def test_every_template_is_accessible(
    gallery: Gallery, browser_context: BrowserContext, name: str
) -> None:
    view = await open_state(browser_context, gallery, name)
    async with view.page as page:
        await checks.unfold(page)
        problems = await checks.raw_texts(page)
        problems += await checks.tab_problems(page)
        problems += await _check_schemes_and_sizes(page)
        await page.set_viewport_size(_HALF)
        await page.evaluate("document.documentElement.style.fontSize = '200%'")
        problems += await checks.overflow(page)
    assert problems == []
    assert view.errors == []


@pytest.mark.parametrize("name", sorted(STATES.keys() - set(_ONE_OF_EACH)))
async def test_the_remaining_states_fit_a_small_screen(
    gallery: Gallery, browser_context: BrowserContext, name: str
) -> None:
    view = await open_state(browser_context, gallery, name)
    async with view.page as page:
        await page.set_viewport_size(_SMALL)
        await checks.unfold(page)
        problems = [*await checks.overflow(page), *await checks.raw_texts(page)]
    assert problems == []
    assert view.errors == []


async def test_the_accessibility_tests_cover_every_template(
    gallery: Gallery, browser_context: BrowserContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    rendering.language_options.cache_clear()  # a cached page is not rendered
    rendered = record_templates(rendering, monkeypatch)
    for name in _ONE_OF_EACH:
        await (await open_state(browser_context, gallery, name)).page.close()
    assert templates_of(rendering) - rendered == {"test_card.html"}  # used only for test payments


async def _check_schemes_and_sizes(page: Page) -> list[str]:
    problems = await checks.axe(page)
    problems += await checks.overflow(page) + await checks.too_small(page)
    await page.emulate_media(color_scheme="dark")
    problems += await checks.axe(page, *checks.COLOURS)
    await page.set_viewport_size(_SMALL)
    problems += await checks.axe(page)
    return problems + await checks.overflow(page) + await checks.too_small(page)


@pytest.mark.parametrize("name", MAIN)
async def test_the_main_states_are_accessible_in_a_right_to_left_language(
    gallery: Gallery, browser_context: BrowserContext, name: str
) -> None:
    view = await open_state(browser_context, gallery, name, "ar")
    async with view.page as page:
        assert await page.evaluate("getComputedStyle(document.body).direction") == "rtl"
        await checks.unfold(page)
        problems = await checks.tab_problems(page) + await _check_schemes_and_sizes(page)
    assert problems == []
    assert view.errors == []


_IN_EVERY_LANGUAGE = (
    *("choose-taxed", "choose-everything", "wallet-none", "deposit-partial", "deposit-failed"),
    *("refund-address-invalid", "refund-address-sent", "receipt-taxed"),
)


@pytest.mark.parametrize("lang", LOCALES)
async def test_pages_fit_a_small_screen_in_every_language(
    gallery: Gallery, browser_context: BrowserContext, lang: str
) -> None:
    problems: dict[str, list[str]] = {}
    for name in _IN_EVERY_LANGUAGE:
        view = await open_state(browser_context, gallery, name, lang)
        async with view.page as page:
            await page.set_viewport_size(_SMALL)
            await checks.unfold(page)
            problems[name] = [
                *await checks.overflow(page),
                *await checks.raw_texts(page),
                *view.errors,
            ]
    assert not any(problems.values()), problems


_BUTTON = "document.querySelector('form.methods button')"
#: Scripts that inject a fault, with the check that detects it and the expected message.
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
    f"{_BUTTON}.style.width = '400px'": (checks.overflow, "is outside the screen"),
    "document.querySelector('main').style.minWidth = '30rem'": (checks.overflow, "the page is "),
    f"{_BUTTON}.style.cssText = 'overflow: hidden; width: 3rem; white-space: nowrap'": (
        checks.overflow,
        "is cut off",
    ),
    f"{_BUTTON}.style.cssText = 'min-height: 0; padding: 0; height: 20px'": (
        checks.too_small,
        " x 20",
    ),
    f"{_BUTTON}.tabIndex = -1": (checks.tab_problems, "is not reached"),
    f"{_BUTTON}.tabIndex = 1": (checks.tab_problems, "is reached after an element below it"),
    "document.querySelector('[name=payer_email]').style.outline = 'none'": (
        checks.tab_problems,
        "does not indicate the focus",
    ),
    f"{_BUTTON}.textContent = 'built-in method copy of dict'": (
        checks.raw_texts,
        "'built-in method'",
    ),
    "document.title = 'Pay {merchant}'": (checks.raw_texts, "'{'"),
}


@pytest.mark.parametrize("fault", _FAULTS)
async def test_the_checks_detect_an_injected_fault(
    gallery: Gallery, browser_context: BrowserContext, fault: str
) -> None:
    check, words = _FAULTS[fault]
    async with (await open_state(browser_context, gallery, "choose")).page as page:
        await page.set_viewport_size(_SMALL)
        await checks.unfold(page)
        await page.evaluate(fault)
        problems = await check(page)
    assert any(words in item for item in problems), problems


async def test_the_tab_check_accepts_an_element_that_a_live_update_replaces(
    gallery: Gallery, browser_context: BrowserContext
) -> None:
    replace = f"const one = {_BUTTON}; one.replaceWith(one.cloneNode(true))"
    async with (await open_state(browser_context, gallery, "choose")).page as page:
        await checks.unfold(page)
        await page.evaluate(f"""document.addEventListener("focusin", () => {{ {replace} }},
            {{ once: true }})""")
        assert await checks.tab_problems(page) == []
