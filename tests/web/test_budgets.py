"""The size and requests of a page, which are counted exactly and not timed."""

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
_WEIGHT = re.compile(r"""font-weight(?::\s*|=")([^;}"\s]+)""")  # in a style, and in a drawing


@pytest.mark.parametrize("part", _OWN_STYLES)
async def test_a_page_needs_a_font_in_two_weights(part: str) -> None:
    folder = Path(payintent.__file__).parent / part
    sheets = [item for item in folder.glob("static/*.css") if "min" not in item.name]
    text = "".join(sheet.read_text() for sheet in sheets)
    drawings = "".join(item.read_text() for item in [*folder.glob("*.py"), *folder.rglob("*.html")])
    assert set(_WEIGHT.findall(text + drawings)) <= {"400", "600"}
    assert re.search(r"h1, h2, h3,.* \{ font-weight: 600; \}", text)  # or they are bold, a third


@pytest.mark.parametrize("name", weight.WEIGHED)
async def test_a_page_weighs_no_more_than_it_may_in_any_language(
    gallery: Gallery, name: str
) -> None:
    for lang in LOCALES:
        found = await weight.weigh(gallery, name, lang)
        assert found.html <= weight.HTML_BYTES_MAX, lang
        assert found.css <= weight.CSS_BYTES_MAX, lang
        assert found.js <= (weight.JS_BYTES_MAX if lang == "en" else weight.JS_BYTES_MAX_ANY), lang


@pytest.mark.parametrize("name", weight.WEIGHED)
async def test_a_page_asks_for_little_and_only_here(
    gallery: Gallery, browser: Browser, name: str
) -> None:
    async with await screen(browser) as context:
        asked = await weight.asked(context, gallery, name)
    assert 3 <= len(asked.parts) <= weight.REQUESTS_MAX, asked.parts
    assert len(set(asked.parts)) == len(asked.parts)
    assert asked.elsewhere == []
