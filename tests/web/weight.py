"""The size of a page on the wire, and its requests until it is ready."""

import gzip
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

import aiohttp
from playwright.async_api import BrowserContext, Cookie, Request

from tests.web.gallery import Gallery
from tests.web.states import STATES
from tests.web.visiting import address, look_at

#: Bytes, packed by gzip, without headers.
HTML_BYTES_MAX = 4_000  # in every language
CSS_BYTES_MAX = 4_000
JS_BYTES_MAX = 10_600
JS_BYTES_MAX_ANY = 11_900  # with the texts of any language: a letter may take three bytes
SDK_BYTES_MAX = 6_100
REQUESTS_MAX = 5
#: The choice, with pictures and with every sort of way, the heaviest steps, and the end.
WEIGHED = (
    *("choose-shop", "choose-everything", "wallet-none", "wallet-native", "deposit-partial"),
    "paid-shop",
)

#: Scripts of a page, and those that one of them loads once the page is there.
_LINKED = re.compile(r'(?:<script (?:type="module" )?src|data-script)="([^"]+)"')
_STYLE = re.compile(r"<style>(.*?)</style>", re.DOTALL)
_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)
_IMPORTED = re.compile(r'from "\./([a-z]+\.js)"')
#: What belongs to a page; a stream and questions follow when it is there.
_PARTS = {"document", "stylesheet", "script", "image", "font"}


@dataclass(frozen=True, slots=True)
class Weight:
    """Bytes of each kind, as a browser receives them. Styles and a script are inline."""

    html: int  # without these
    css: int
    js: int


@dataclass(frozen=True, slots=True)
class Asked:
    """URLs: the parts of the page, and third-party resources."""

    parts: list[str]
    elsewhere: list[str]


async def weigh(gallery: Gallery, name: str, lang: str = "en") -> Weight:
    """Fetch a state and its resources, compressed as the server does for browsers."""
    return await weigh_page(address(gallery, await STATES[name](gallery), lang))


async def weigh_page(url: str, cookies: Iterable[Cookie] = ()) -> Weight:
    """Fetch a page with these cookies, and its resources."""
    headers = {"Accept-Encoding": "gzip", **cookie_header(cookies)}
    base = "{0.scheme}://{0.netloc}".format(urlsplit(url))
    async with aiohttp.ClientSession(headers=headers, auto_decompress=False) as client:
        whole = gzip.decompress(await fetch(client, url)).decode()
        styles, page = "".join(_STYLE.findall(whole)), _STYLE.sub("", whole)
        html = _packed(_SCRIPT.sub("", page))
        js = _packed(page) - html  # what a script in the page adds to it
        for path in await _with_imports(base, _LINKED.findall(page)):
            js += len(await fetch(client, base + path))
    return Weight(html, _packed(styles), js)


def _packed(text: str) -> int:
    return len(gzip.compress(text.encode(), 5))


def cookie_header(cookies: Iterable[Cookie]) -> Mapping[str, str]:
    """Return a browser's cookies as its request header, or no header."""
    pairs = [f"{cookie.get('name')}={cookie.get('value')}" for cookie in cookies]
    return {"Cookie": "; ".join(pairs)} if pairs else {}


async def fetch(client: aiohttp.ClientSession, url: str) -> bytes:
    """Fetch a resource as compressed on the wire."""
    async with client.get(url) as answer:
        assert answer.status == 200, url
        assert answer.headers["Content-Encoding"] == "gzip", url
        return await answer.read()


async def _with_imports(base: str, linked: list[str]) -> list[str]:
    """Add the imports of scripts, each once."""
    found = list(dict.fromkeys(linked))
    for path in found:
        if path.endswith(".js"):
            async with aiohttp.request("GET", base + path) as answer:
                names = _IMPORTED.findall(await answer.text())
            paths = [f"{path.rpartition('/')[0]}/{name}" for name in names]
            found += [fromkey for fromkey in dict.fromkeys(paths) if fromkey not in found]
    return found


async def asked(context: BrowserContext, gallery: Gallery, name: str) -> Asked:
    """List a browser's requests until a state is ready."""
    found = _listen(context, origin(gallery))
    await (await look_at(context, gallery, name)).page.close()
    return found


async def asked_by_page(context: BrowserContext, url: str) -> Asked:
    """List a browser's requests until a page is ready."""
    found = _listen(context, "{0.scheme}://{0.netloc}".format(urlsplit(url)))
    page = await context.new_page()
    await page.goto(url)
    await page.close()
    return found


def _listen(context: BrowserContext, base: str) -> Asked:
    found = Asked([], [])

    def note(request: Request) -> None:
        if not request.url.startswith(("data:", base)):
            found.elsewhere.append(request.url)
        elif request.resource_type in _PARTS and not request.url.startswith("data:"):
            found.parts.append(request.url)

    context.on("request", note)
    return found


def origin(gallery: Gallery) -> str:
    """Return the origin of the pages."""
    return gallery.base.removesuffix("/c")
