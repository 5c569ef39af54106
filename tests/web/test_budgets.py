"""Test the size limits and the number of requests of pages."""

import re
from pathlib import Path

import pytest
from playwright.async_api import Browser

import payintent
from payintent.core.languages import LOCALES
from tests.web import weight
from tests.web.gallery import Gallery
from tests.web.visiting import screen

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.full]

_OWN_STYLES = ("checkout", "console", "portal")
_WEIGHT = re.compile(r"""font-weight(?::\s*|=")([^;}"\s]+)""")  # in CSS and in SVG


@pytest.mark.parametrize("part", _OWN_STYLES)
async def test_pages_use_only_two_font_weights(part: str) -> None:
    folder = Path(payintent.__file__).parent / part
    sheets = [item for item in folder.glob("static/*.css") if "min" not in item.name]
    text = "".join(sheet.read_text() for sheet in sheets)
    drawings = "".join(item.read_text() for item in [*folder.glob("*.py"), *folder.rglob("*.html")])
    assert set(_WEIGHT.findall(text + drawings)) <= {"400", "600"}
    # By default, headings are bold, which would be a third weight.
    assert re.search(r"h1, h2, h3,.* \{ font-weight: 600; \}", text)


@pytest.mark.parametrize("name", weight.PAGES_TO_WEIGH)
async def test_a_page_stays_within_its_size_limits_in_every_language(
    gallery: Gallery, name: str
) -> None:
    for lang in LOCALES:
        page_weight = await weight.weigh(gallery, name, lang)
        assert page_weight.html <= weight.HTML_BYTES_MAX, lang
        assert page_weight.css <= weight.CSS_BYTES_MAX, lang
        assert page_weight.js <= (
            weight.JS_BYTES_MAX if lang == "en" else weight.JS_BYTES_MAX_ANY
        ), lang


@pytest.mark.parametrize("name", weight.PAGES_TO_WEIGH)
async def test_a_page_sends_few_requests_and_none_to_third_parties(
    gallery: Gallery, browser: Browser, name: str
) -> None:
    async with await screen(browser) as context:
        requests = await weight.record_requests(context, gallery, name)
    assert 3 <= len(requests.parts) <= weight.REQUESTS_MAX, requests.parts
    assert len(set(requests.parts)) == len(requests.parts)
    assert requests.third_party == []
