"""Test the hosted page's layout, large text, keyboard use, reduced motion and printing."""

from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Browser, BrowserContext, Page, expect
from pytest_asyncio import fixture

from payintent.http.middleware import CommonHeaders
from payintent.payments.model import Payment
from tests.support.world import World
from tests.web.buyer import GATEWAY, HostedCheckout, make_hosted_checkout
from tests.web.gallery import Gallery
from tests.web.visiting import open_state, screen

LOOP = "session"
pytestmark = [pytest.mark.asyncio(loop_scope=LOOP), pytest.mark.full]


SMALL_PX = 320
WIDE_PX = 1_280
CONTROL_PX = 44
TARGET_PX = 24
LONG = (
    '{"order_id":"'
    + "0123456789" * 8
    + '","product":{"name":"'
    + "Donaudampfschifffahrt" * 5
    + '",'
    '"detail":"' + "a long detail " * 30 + '","vendor":"v","quantity":3}}'
)
MEASURE = """([control, target]) => {
  const findings = [];
  const root = document.documentElement;
  if (root.scrollWidth > root.clientWidth) findings.push(`${root.scrollWidth} px wide`);
  for (const element of document.querySelectorAll("a, button, input, select, summary, .method")) {
    const { width, height } = element.getBoundingClientRect();
    if (!element.checkVisibility() || ["hidden", "radio"].includes(element.type)) continue;
    const least = element.matches("a:not(.button)") ? target : control;
    if (height < least || width < target) {
      findings.push(`${element.outerHTML.slice(0, 60)}: ${width} x ${height}`);
    }
  }
  return findings;
}"""
TWO_COLUMNS_PX = 900
PLACES = """() => [".order", ".pay"].map((selector) => {
  const { left, right, top, bottom } = document.querySelector(selector).getBoundingClientRect();
  return { left, right, top, bottom };
})"""
SLIPS = ("built-in method", "{", "}", "undefined", "[object")


@fixture(loop_scope=LOOP)
async def checkout(
    world: World, site: CommonHeaders, buyer: BrowserContext
) -> AsyncIterator[HostedCheckout]:
    checkout = await make_hosted_checkout(world, site, buyer)
    yield checkout
    assert checkout.errors == []


async def create_states(checkout: HostedCheckout) -> dict[str, str]:
    """Create payments in every state; return the URLs to open."""
    world = checkout.world
    await world.rows("UPDATE merchant SET tax_manager = 'SERVICE', name = repeat('Nimbus ', 12)")
    await world.rows("UPDATE payment_method SET fee_mode = 'EXCLUSIVE', fee_rate = 0.1")
    large = {"amount_text": "99999999.99", "metadata": LONG, "payer_email": "ann@example.com"}
    open_ = [await world.create(**large) for _ in range(3)]
    for payment in open_[1:]:
        await world.select(payment)
    await checkout.report_paid((await world.read(open_[2])).payment)
    expired = await world.create(expires_in_s=0)
    payments = dict(zip(("choose", "continue", "paid"), open_, strict=True)) | {"expired": expired}
    paths = {name: f"/{payment_value.checkout_id}" for name, payment_value in payments.items()}
    return paths | {"receipt": f"{paths['paid']}/receipt", "sorry": "/cs_" + "0" * 16}


async def test_every_state_fits_a_small_screen_with_large_text_and_usable_controls(
    checkout: HostedCheckout,
) -> None:
    base = checkout.world.service.settings.checkout_base
    problems: dict[str, list[str]] = {}
    for name, path in (await create_states(checkout)).items():
        for lang in ("en", "ar"):
            await checkout.page.goto(f"{base}{path}?lang={lang}")
            text = await checkout.page.locator("main").inner_text()
            slips = [slip for slip in SLIPS if slip in text]
            await checkout.page.evaluate(
                "document.querySelectorAll('details').forEach((element) => (element.open = true))"
            )
            measurements = await _measure_page(checkout.page)
            problems |= {
                f"{name} {lang} {size_name}": violations
                for size_name, violations in measurements.items()
                if violations
            }
            if slips:
                problems[f"{name} {lang}"] = slips
    assert problems == {}


async def _measure_page(page: Page) -> dict[str, list[str]]:
    """Measure a page on a wide screen, and on a small screen with normal and double text size."""
    measurements = {}
    for name, width, size in (
        ("wide", WIDE_PX, 100),
        ("small", SMALL_PX, 100),
        ("large", SMALL_PX, 200),
    ):
        await page.set_viewport_size({"width": width, "height": 640})
        await page.evaluate(f"document.documentElement.style.fontSize = '{size}%'")
        measurements[name] = await page.evaluate(MEASURE, [CONTROL_PX, TARGET_PX])
    return measurements


@pytest.mark.parametrize("lang", ["en", "ar"])
async def test_order_and_payment_are_side_by_side_from_900_px(
    gallery: Gallery, browser: Browser, lang: str
) -> None:
    async with await screen(browser) as context:
        page = (await open_state(context, gallery, "choose-shop", lang)).page
        for width in (SMALL_PX, TWO_COLUMNS_PX - 1, TWO_COLUMNS_PX, WIDE_PX):
            await page.set_viewport_size({"width": width, "height": 900})
            order, pay = await page.evaluate(PLACES)
            if width < TWO_COLUMNS_PX:
                assert order["bottom"] <= pay["top"], width
                assert order["left"] == pay["left"], width
                continue
            first, second = (order, pay) if lang == "en" else (pay, order)
            assert first["right"] < second["left"], width
            assert order["top"] < pay["bottom"], width
            assert pay["top"] < order["bottom"], width


async def test_the_amount_is_read_first_then_its_details_then_the_methods(
    gallery: Gallery, browser: Browser
) -> None:
    expected_words = {
        "choose-shop": ["1,590.00", "The Sea, the Sea", "Card"],
        "redirect-taxed": ["1,", "Amount", "Fee", "Tax", "Continue"],
        "wallet-native": ["25.5", "Price", "25.50", "Pay"],
    }
    async with await screen(browser) as context:
        for name, words in expected_words.items():
            page = (await open_state(context, gallery, name)).page
            heading = await page.locator("h1").inner_text()
            text = await page.locator("main").inner_text()
            at = text.index(heading) + len(heading)
            for word in words:
                position = text.find(word, at)
                assert position >= 0, (name, word, text)
                at = position + len(word)
            first = text.partition(heading)[2].split()[0]
            assert first.startswith(words[0]), (name, text)
            signs = await page.locator(".amount > svg.sign").count()
            assert signs == (name == "wallet-native"), name
            await page.close()


async def test_a_buyer_pays_with_the_keyboard_in_page_order(checkout: HostedCheckout) -> None:
    await checkout.create_and_open()
    order = []
    for _ in range(20):
        await checkout.page.keyboard.press("Tab")
        focused = await checkout.page.evaluate(
            """() => {
              const one = document.activeElement;
              const outline = getComputedStyle(one).outlineStyle;
              const seen = one.checkVisibility() && outline !== "none";
              return one === document.body ? null : [one.name || one.localName, seen];
            }"""
        )
        if focused is None:
            break
        order.append(focused[0])
        assert focused[1], focused  # the focus is visible
    assert order == ["method", "payer_email", "button", "summary", "summary", "summary"]
    await checkout.page.locator("[name=method]").first.focus()
    await checkout.page.keyboard.press("ArrowDown")
    await expect(checkout.page.get_by_role("radio", name="Transfer")).to_be_checked()
    await checkout.page.keyboard.press("Enter")
    await expect(checkout.page).to_have_url(f"{GATEWAY}/pay")
    [request] = checkout.world.gateway.created
    assert request.kind == "redirect"


@pytest.mark.parametrize(("scheme", "dark"), [("dark", True), ("light", False)])
async def test_the_page_respects_dark_mode_and_reduced_motion(
    checkout: HostedCheckout, scheme: str, dark: bool
) -> None:
    await checkout.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")  # type: ignore[arg-type]
    await checkout.create_and_open()
    paper, ink, animated_count = await checkout.page.evaluate(
        """() => {
          const { backgroundColor, color } = getComputedStyle(document.body);
          const light = (text) => Math.max(...text.match(/\\d+/g).slice(0, 3).map(Number)) > 127;
          const all = [...document.querySelectorAll("*")].map((one) => getComputedStyle(one));
          const still = (one) => one.transitionDuration === "0s" && one.animationName === "none";
          return [light(backgroundColor), light(color), all.filter((one) => !still(one)).length];
        }"""
    )
    assert (paper, ink) == ((False, True) if dark else (True, False))
    assert animated_count == 0
    await checkout.page.emulate_media(reduced_motion="no-preference")


async def test_a_printed_receipt_has_no_buttons(checkout: HostedCheckout) -> None:
    payment: Payment = await checkout.world.create()
    await checkout.world.select(payment)
    await checkout.report_paid((await checkout.world.read(payment)).payment)
    await checkout.show(payment, "/receipt")
    await checkout.page.evaluate("window.printed = 0; window.print = () => { printed += 1 }; 0")
    await checkout.page.get_by_role("button", name="Print").click()
    assert await checkout.page.evaluate("printed") == 1
    await checkout.page.emulate_media(media="print")
    await expect(checkout.page.get_by_role("button", name="Print")).to_be_hidden()
    await expect(checkout.page.get_by_text("1,590.00").first).to_be_visible()
