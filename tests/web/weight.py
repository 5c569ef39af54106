"""Measure the compressed size of a page, and its requests until it is ready."""

import gzip
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

import aiohttp
from playwright.async_api import BrowserContext, Cookie, Request

from tests.web.gallery import Gallery
from tests.web.states import STATES
from tests.web.visiting import address, open_state

#: Bytes after gzip, without headers.
HTML_BYTES_MAX = 4_000  # in every language
CSS_BYTES_MAX = 4_000
JS_BYTES_MAX = 9_800
JS_BYTES_MAX_ANY = 10_800  # with messages in any language: a letter may need three bytes
SDK_BYTES_MAX = 6_100
REQUESTS_MAX = 5
#: The method selection with images and with all methods, the largest steps, and the result.
PAGES_TO_WEIGH = (
    *("choose-shop", "choose-everything", "wallet-none", "wallet-native", "deposit-partial"),
    "paid-shop",
)

#: Scripts of a page, and scripts that they load when the page is ready.
_LINKED = re.compile(r'(?:<script (?:type="module" )?src|data-script)="([^"]+)"')
_STYLE = re.compile(r"<style>(.*?)</style>", re.DOTALL)
_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)
_IMPORTED = re.compile(r'from "\./([a-z]+\.js)"')
#: Resource types that belong to the page. Event streams and polls follow when it is ready.
_PARTS = {"document", "stylesheet", "script", "image", "font"}


@dataclass(frozen=True, slots=True)
class Weight:
    """Compressed bytes of each kind. Styles and a script are inline."""

    html: int  # without inline styles and scripts
    css: int
    js: int


@dataclass(frozen=True, slots=True)
class PageRequests:
    """The requested URLs: parts of the page, and third-party resources."""

    parts: list[str]
    third_party: list[str]


async def weigh(gallery: Gallery, name: str, lang: str = "en") -> Weight:
    """Fetch a state and its resources with gzip, and return the sizes."""
    return await weigh_page(address(gallery, await STATES[name](gallery), lang))


async def weigh_page(url: str, cookies: Iterable[Cookie] = ()) -> Weight:
    """Fetch a page and its resources with gzip and these cookies, and return the sizes."""
    headers = {"Accept-Encoding": "gzip", **cookie_header(cookies)}
    base = "{0.scheme}://{0.netloc}".format(urlsplit(url))
    async with aiohttp.ClientSession(headers=headers, auto_decompress=False) as client:
        whole = gzip.decompress(await fetch(client, url)).decode()
        styles, page = "".join(_STYLE.findall(whole)), _STYLE.sub("", whole)
        html = _compressed_size(_SCRIPT.sub("", page))
        js = _compressed_size(page) - html  # the share of the inline scripts
        for path in await _with_imports(base, _LINKED.findall(page)):
            js += len(await fetch(client, base + path))
    return Weight(html, _compressed_size(styles), js)


def _compressed_size(text: str) -> int:
    return len(gzip.compress(text.encode(), 5))


def cookie_header(cookies: Iterable[Cookie]) -> Mapping[str, str]:
    """Return a browser's cookies as a request header, if there are any."""
    pairs = [f"{cookie.get('name')}={cookie.get('value')}" for cookie in cookies]
    return {"Cookie": "; ".join(pairs)} if pairs else {}


async def fetch(client: aiohttp.ClientSession, url: str) -> bytes:
    """Fetch a resource without decompressing it."""
    async with client.get(url) as answer:
        assert answer.status == 200, url
        assert answer.headers["Content-Encoding"] == "gzip", url
        return await answer.read()


async def _with_imports(base: str, linked: list[str]) -> list[str]:
    """Add the scripts' imports, without duplicates."""
    paths = list(dict.fromkeys(linked))
    for path in paths:
        if path.endswith(".js"):
            async with aiohttp.request("GET", base + path) as answer:
                names = _IMPORTED.findall(await answer.text())
            imports = [f"{path.rpartition('/')[0]}/{name}" for name in names]
            paths += [path for path in dict.fromkeys(imports) if path not in paths]
    return paths


async def record_requests(context: BrowserContext, gallery: Gallery, name: str) -> PageRequests:
    """List a browser's requests until a state is ready."""
    requests = _listen(context, origin(gallery))
    await (await open_state(context, gallery, name)).page.close()
    return requests


async def record_page_requests(context: BrowserContext, url: str) -> PageRequests:
    """List a browser's requests until a page is ready."""
    requests = _listen(context, "{0.scheme}://{0.netloc}".format(urlsplit(url)))
    page = await context.new_page()
    await page.goto(url)
    await page.close()
    return requests


def _listen(context: BrowserContext, base: str) -> PageRequests:
    requests = PageRequests([], [])

    def record(request: Request) -> None:
        if not request.url.startswith(("data:", base)):
            requests.third_party.append(request.url)
        elif request.resource_type in _PARTS and not request.url.startswith("data:"):
            requests.parts.append(request.url)

    context.on("request", record)
    return requests


def origin(gallery: Gallery) -> str:
    """Return the pages' origin."""
    return gallery.base.removesuffix("/c")
