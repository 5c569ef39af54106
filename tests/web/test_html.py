"""Validate the HTML and the messages of every checkout page and state in every language."""

import asyncio
import html
import re
from pathlib import Path

import aiohttp
import pytest

from payintent.checkout.languages import load_language
from payintent.core.languages import LOCALES
from tests.support.node import SETTINGS, node, tool
from tests.web.gallery import Gallery
from tests.web.states import STATES, Visit
from tests.web.visiting import PATIENCE_S, address

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.full]

_VALIDATED = {"en", "ar"}
_CHOICE = re.compile(r'<input type="radio" name="method" value="([^"]+)"')
_PLACE = re.compile(r"\\\{\w+\\\}")


async def test_every_state_is_valid_html_with_its_messages_in_every_language(
    gallery: Gallery, tmp_path: Path
) -> None:
    async with aiohttp.ClientSession() as client:
        for name, arrange in STATES.items():
            visit = await arrange(gallery)
            for lang in LOCALES:
                page = await _page(client, gallery, visit, lang)
                assert _missing(page, visit, lang) == [], (name, lang)
                if lang in _VALIDATED:  # the remaining languages differ only in their messages
                    (tmp_path / f"{name}.{lang}.html").write_text(page)
    assert await validate_html(tmp_path) == ""


async def _page(client: aiohttp.ClientSession, gallery: Gallery, visit: Visit, lang: str) -> str:
    """Fetch a page like a browser without scripts."""
    url = address(gallery, visit, lang)
    async with asyncio.timeout(PATIENCE_S):
        while True:
            async with client.get(url, headers=visit.headers) as answer:
                status, page = answer.status, await answer.text()
            if visit.posts:
                form = {"address": visit.entry, "amount": visit.entry, "form": "1"}
                target = url
                if choice := _CHOICE.search(page):
                    form = {"method": html.unescape(choice[1])}
                    target = url.replace("?", "/select?")
                async with client.post(target, data=form) as answer:
                    status, page = answer.status, await answer.text()
            if status == visit.status:
                return page
            assert visit.status == 429, status  # the rate limit accepts one request per second


def _missing(page: str, visit: Visit, lang: str) -> list[str]:
    """Return the missing messages of a state."""
    body, _, _ = page.partition("<body")[2].partition('<script type="application/json"')
    text = html.unescape(body)
    words = load_language(lang).translations
    patterns = {key: _PLACE.sub(".+?", re.escape(words[key])) for key in visit.texts}
    return [key for key, pattern in patterns.items() if not re.search(pattern, text)]


async def validate_html(folder: Path) -> str:
    """Run html-validate on all files in a folder."""
    command = (node(), tool("html-validate/bin/html-validate.mjs"))
    options = (
        "--config",
        SETTINGS / "htmlvalidate.json",
        "--formatter",
        "text",
        "--max-warnings",
        "0",
    )
    validator = await asyncio.create_subprocess_exec(
        *map(str, (*command, *options, folder / "*.html")),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await validator.communicate()
    text = output.decode()
    assert validator.returncode == 0 or text, "html-validate failed without output"
    return text.replace(f"{folder}/", "").strip()
