"""Compare a screen reader's transcript of a payment made by keyboard with the documentation.

If you set `REWRITE_TRANSCRIPT=1`, the documentation is rewritten. Read every sentence before you
commit it.
"""

import os
import re
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, expect

from payintent.payments.model import Payment
from tests.support.fakes import captured
from tests.support.world import World
from tests.web.gallery import PRODUCT, Gallery
from tests.web.states import STATES
from tests.web.transcript import read_aloud, read_focus
from tests.web.visiting import screen, show

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.full]

_PAGE = Path(__file__).parents[2] / "docs" / "contribute" / "checkout-transcript.md"
_SECTION = re.compile(r"## ([^\n]+)\n\n```text\n(.*?)```", re.DOTALL)
#: Values that differ in each run, and their replacements.
_VARIABLE = (
    (re.compile(r"\b(rcpt|pay)_\w+"), r"\1_1"),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d"), "2026-01-01 12:00"),
    (re.compile(r"(0x\w{4}|\b[0-9A-Fa-f]{4}\b)( [0-9A-Fa-f]{4}){4,}"), "0x12 3456"),
)
_TABS_MAX = 30
_HAS_FOCUS = """([tag, text]) => {
  const element = document.activeElement;
  const selector = tag === "radio" ? "[type=radio]" : tag;
  return element.matches(selector) && element.textContent.includes(text);
}"""


async def test_a_screen_reader_user_pays_by_card(gallery: Gallery, browser: Browser) -> None:
    async with await screen(browser) as context:
        page = await context.new_page()
        payment = await gallery.shop.create(metadata=PRODUCT % gallery.origin)
        await page.goto(f"{gallery.base}/{payment.checkout_id}")
        await expect(page.locator("html.scripted")).to_have_count(1)
        parts = {"Choose a payment method": await read_aloud(page)}
        keys = [*(await _tab_to(page, "radio")), await _press(page, "ArrowDown")]
        keys += [await _press(page, "ArrowUp"), *(await _tab_to(page, "button"))]
        await page.keyboard.press("Enter")
        await expect(page.locator(".card iframe")).to_be_visible()
        parts["Select a card by keyboard"] = [*keys, "Enter: the next page opens"]
        parts["Enter the card"] = await read_aloud(page)
        await _capture(gallery.shop, payment)
        await expect(page.locator("[data-result]")).to_be_focused()
        await expect(page.get_by_text("Taking you back")).to_be_visible()
        parts["The payment succeeds"] = await read_aloud(page)
        await _tab_to(page, "a")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", name="Receipt")).to_be_visible()
        parts["Read the receipt"] = await read_aloud(page)
    _compare(parts)


async def test_a_screen_reader_user_cancels(gallery: Gallery, browser: Browser) -> None:
    async with await screen(browser) as context:
        page = await context.new_page()
        payment = await gallery.shop.create()
        await page.goto(f"{gallery.base}/{payment.checkout_id}")
        await expect(page.locator("html.scripted")).to_have_count(1)
        keys = (await _tab_to(page, "summary", "Cancel payment"))[-1:]
        await page.keyboard.press("Enter")
        keys += [f"Enter: {await read_focus(page)}", *(await _tab_to(page, "button"))]
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", name="was cancelled")).to_be_visible()
        parts = {"Cancel by keyboard": [*keys, "Enter: the next page opens"]}
        parts["The payment is cancelled"] = await read_aloud(page)
    _compare(parts)


async def test_a_screen_reader_reads_where_to_send_a_token(
    gallery: Gallery, browser: Browser
) -> None:
    visit = await STATES["deposit"](gallery)
    async with await screen(browser) as context:
        page = (await show(context, gallery, visit)).page
        await expect(page.locator("html.scripted")).to_have_count(1)
        await expect(page.get_by_text("left to pay").first).to_be_visible()
        _compare({"Pay to an address": await read_aloud(page)})


async def _tab_to(page: Page, tag: str, text: str = "") -> list[str]:
    """Press the tab key until an element with this tag and text has the focus.

    Return the spoken text.
    """
    spoken: list[str] = []
    for _ in range(_TABS_MAX):
        spoken.append(await _press(page, "Tab"))
        is_there: bool = await page.evaluate(
            _HAS_FOCUS,
            [tag, text],
        )
        if is_there:
            return spoken
    raise AssertionError(f"no {tag} {text} is reached: {spoken}")


async def _press(page: Page, key: str) -> str:
    await page.keyboard.press(key)
    return f"{key}: {await read_focus(page)}"


async def _capture(world: World, payment: Payment) -> None:
    session = (await world.read(payment)).session
    assert session is not None
    await world.report(payment, session.id, captured(159_000, reference=f"cap-{payment.id}"))


def _compare(parts: dict[str, list[str]]) -> None:
    transcripts = {
        title: "\n".join(map(_normalize, lines)) + "\n" for title, lines in parts.items()
    }
    if os.environ.get("REWRITE_TRANSCRIPT"):
        text = _PAGE.read_text()
        for title, lines in transcripts.items():
            section = f"## {title}\n\n```text\n{lines}```"
            pattern = re.compile(rf"## {re.escape(title)}\n\n```text\n.*?```", re.DOTALL)
            old_section = pattern.search(text)
            text = text.replace(old_section[0], section) if old_section else f"{text}\n{section}\n"
        _PAGE.write_text(text)
    documented = dict(_SECTION.findall(_PAGE.read_text()))
    assert {title: documented.get(title) for title in transcripts} == transcripts


def _normalize(line: str) -> str:
    for pattern, instead in _VARIABLE:
        line = pattern.sub(instead, line)
    return line
