"""Test the primary button and the secondary actions of a checkout page."""

import pytest
from playwright.async_api import Browser, Locator, Page, expect

from tests.web import checks
from tests.web.gallery import Gallery
from tests.web.visiting import WIDE_PX, open_state, screen

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.full]

_PHONE = {"width": 390, "height": 844}
_SMALL = {"width": 320, "height": 568}
#: Describes the focused element if it is behind the bar or outside the screen.
_OBSCURED = """() => {
  const [element, bar] = [document.activeElement, document.querySelector(".bar")];
  if (!element || element === document.body) return null;
  const { top, bottom } = element.getBoundingClientRect();
  if (bar.contains(element)) return "";
  const edge = bar.getBoundingClientRect();
  const isBehind = top < edge.bottom && bottom > edge.top;
  if (!isBehind && bottom <= innerHeight && top >= 0) return "";
  return `${element.outerHTML.slice(0, 60)}: ${top} to ${bottom}, bar at ${edge.top}`;
}"""


@pytest.mark.parametrize("is_scripted", [True, False])
async def test_the_button_shows_the_total_of_the_selected_method(
    gallery: Gallery, browser: Browser, is_scripted: bool
) -> None:
    async with await screen(browser, java_script_enabled=is_scripted) as context:
        page = (await open_state(context, gallery, "choose-taxed")).page
        await _expect_button_text(page, "Pay 1,747.41 THB")
        await page.get_by_role("radio", name="Bank transfer").check()
        await _expect_button_text(page, "Pay 1,701.30 THB")


async def test_the_button_shows_the_amount_in_the_selected_token(
    gallery: Gallery, browser: Browser
) -> None:
    async with await screen(browser) as context:
        page = (await open_state(context, gallery, "choose-everything")).page
        await _expect_button_text(page, "Pay 25.50 USD")
        await page.get_by_role("radio", name="USDT").first.check()
        await _expect_button_text(page, "Pay 25.5 USDT")
        await page.evaluate("document.querySelector('.methods').reset()")
        await page.evaluate("document.querySelector('[name=method]:checked').checked = false")
        await _expect_button_text(page, "Continue")


async def _expect_button_text(page: Page, text: str) -> None:
    button = page.locator("form.methods button")
    await expect(button).to_have_accessible_name(text)
    await expect(button).to_have_text(text, use_inner_text=True)


@pytest.mark.parametrize("size", [_PHONE, _SMALL])
async def test_the_button_stays_visible_on_a_phone_without_covering_the_focus(
    gallery: Gallery, browser: Browser, size: dict[str, int]
) -> None:
    async with await screen(browser, viewport=size) as context:
        page = (await open_state(context, gallery, "choose-everything")).page
        button = page.locator(".bar button")
        for y in (0, 300, 900):
            await page.evaluate(f"scrollTo(0, {y})")
            await expect(button).to_be_in_viewport(ratio=1)
        await page.evaluate("scrollTo(0, 0)")
        await checks.unfold(page)
        obscured: list[str] = []
        for key in ("Tab", *(["ArrowDown"] * 10), *(["Tab"] * 12), *(["Shift+Tab"] * 12)):
            await page.keyboard.press(key)
            behind = await page.evaluate(_OBSCURED)
            obscured += [behind] if behind is not None else []
        assert len(obscured) > 30
        assert {*obscured} == {""}


async def test_the_button_bar_is_not_fixed_in_a_frame(gallery: Gallery, browser: Browser) -> None:
    async with await screen(browser, viewport=_SMALL) as context:
        page = (await open_state(context, gallery, "choose-embedded")).page
        await expect(page.locator(".bar")).to_have_css("position", "static")
        assert await checks.overflow(page) == []


async def test_the_button_bar_is_not_fixed_on_a_short_or_wide_screen(
    gallery: Gallery, browser: Browser
) -> None:
    async with await screen(browser) as context:
        page = (await open_state(context, gallery, "choose-everything")).page
        for size in ({"width": 640, "height": 320}, {"width": WIDE_PX, "height": 640}):
            await page.set_viewport_size(size)  # type: ignore[arg-type]
            await expect(page.locator(".bar")).to_have_css("position", "static")


async def test_continue_on_your_phone_is_hidden_on_a_phone(
    gallery: Gallery, browser: Browser
) -> None:
    for is_phone in (True, False):
        async with await screen(browser, has_touch=is_phone, is_mobile=is_phone) as context:
            page = (await open_state(context, gallery, "choose-shop")).page
            await expect(page.get_by_text("Continue on your phone")).to_be_visible(
                visible=not is_phone
            )


@pytest.mark.parametrize("state", ["choose-shop", "redirect", "card", "deposit", "wallet-none"])
async def test_a_page_has_at_most_one_primary_button(
    gallery: Gallery, browser: Browser, state: str
) -> None:
    async with await screen(browser) as context:
        page = (await open_state(context, gallery, state)).page
        await checks.unfold(page)
        plain: Locator = page.locator("button:visible:not(.quiet), a.button:visible:not(.quiet)")
        assert await plain.count() <= 1, await plain.all_inner_texts()


@pytest.mark.parametrize("state", ["choose-shop", "redirect", "paid-shop", "expired", "receipt"])
async def test_every_page_shows_who_secures_the_payment(
    gallery: Gallery, browser: Browser, state: str
) -> None:
    async with await screen(browser) as context:
        page = (await open_state(context, gallery, state)).page
        await expect(page.get_by_text("Secured by payintent")).to_be_visible()
