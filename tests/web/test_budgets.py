"""What a page weighs and asks for: exact, since it is counted and not timed."""

import aiohttp
import pytest
from playwright.async_api import Browser

from payintent.checkout.languages import LOCALES
from tests.web import weight
from tests.web.gallery import Gallery
from tests.web.states import STATES
from tests.web.visiting import address, screen

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.parametrize("name", weight.WEIGHED)
async def test_a_page_weighs_no_more_than_it_may(gallery: Gallery, name: str) -> None:
    found = await weight.weigh(gallery, name)
    assert found.html <= weight.HTML_BYTES_MAX
    assert found.css <= weight.CSS_BYTES_MAX
    assert found.js <= weight.JS_BYTES_MAX


@pytest.mark.parametrize("name", weight.WEIGHED)
async def test_other_scripts_than_latin_weigh_little_more(gallery: Gallery, name: str) -> None:
    visit = await STATES[name](gallery)
    headers = {"Accept-Encoding": "gzip"}
    async with aiohttp.ClientSession(headers=headers, auto_decompress=False) as client:
        sizes = {
            lang: len(await weight.fetch(client, address(gallery, visit, lang))) for lang in LOCALES
        }
    assert max(sizes.values()) <= weight.HTML_BYTES_MAX_ANY, sizes


@pytest.mark.parametrize("name", weight.WEIGHED)
async def test_a_page_asks_for_little_and_only_here(
    gallery: Gallery, browser: Browser, name: str
) -> None:
    async with await screen(browser) as context:
        asked = await weight.asked(context, gallery, name)
    assert 3 <= len(asked.parts) <= weight.REQUESTS_MAX, asked.parts
    assert len(set(asked.parts)) == len(asked.parts)
    shown = {f"{gallery.origin}/logo.svg", f"{gallery.origin}/picture.svg"}  # the shop's own
    assert {one for one in asked.elsewhere if one not in shown} == set()
