"""Follow the pages at /docs exactly, like a merchant without further information."""

import asyncio
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urldefrag, urljoin

import aiohttp
import pytest

from drills.newcomer import WITH_AN_INSTALLATION, Terminals, play_page
from payintent_sandbox.packages import build_packages
from tests.docs.run_pages import Block
from tests.e2e.sandbox import Sandbox, running_sandbox
from tests.support.ports import free_port
from tools.openapi.pack_typescript import pack

pytestmark = [pytest.mark.e2e, pytest.mark.long]  # installs packages from their registries

_LIMIT_S = 600.0
_PACKAGE = re.compile(r"(?:/packages/files|\$files)/([\w.-]+\.(?:whl|tgz|zip))")


@dataclass
class Page(HTMLParser):
    """A page's links by text, and its code blocks."""

    links: dict[str, str] = field(default_factory=dict)
    blocks: list[Block] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self._heading, self._language, self._href = "", "", ""
        self._tag, self._text = "", ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if tag == "a":
            self._href = values.get("href", "")
        if tag == "code":
            self._language = values.get("class", "").removeprefix("language-")
        if tag in {"a", "h2", "code"}:
            self._tag, self._text = tag, ""

    def handle_data(self, data: str) -> None:
        self._text += data

    def handle_endtag(self, tag: str) -> None:
        if tag == "a":
            self.links[self._text.strip()] = self._href
        elif tag == "h2":
            self._heading = self._text.strip()
        elif tag == "pre":
            self.blocks.append(Block(self._heading, self._language, self._text.rstrip("\n") + "\n"))


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the SDK packages of a release."""
    folder = tmp_path_factory.mktemp("release") / "packages"
    shutil.copytree(build_packages(), folder)
    pack(folder)
    return folder


@pytest.fixture(scope="module")
def sandbox(packages: Path) -> Iterator[Sandbox]:
    environment = {"PAYINTENT_PACKAGES_DIR": str(packages)}
    with running_sandbox(environment=environment, chains=False) as running:
        yield running


@pytest.fixture
def terminals(sandbox: Sandbox, tmp_path: Path) -> Iterator[Terminals]:
    """Terminals in an empty folder, with the merchant's values instead of placeholders."""
    test_side = sandbox.dev_json["merchants"][0]["test"]
    shop = free_port()
    replacements = {
        "https://pay.example.com": _origin(sandbox),
        "sk_test_...": test_side["api_key"],
        "whsec_...": test_side["callback_secret"],
        ":3000": f":{shop}",
        ", 3000)": f", {shop})",
    }
    (tmp_path / "merchant").mkdir()
    merchant_terminals = Terminals(tmp_path, tmp_path / "merchant", replacements, sandbox.port_base)
    yield merchant_terminals
    merchant_terminals.close()


async def test_a_merchant_integrates_using_only_the_installations_docs(
    sandbox: Sandbox, terminals: Terminals, http: aiohttp.ClientSession
) -> None:
    began = time.monotonic()
    start = await _read(http, f"{_origin(sandbox)}/docs")
    quickstart = await _read(http, urljoin(_origin(sandbox), start.links["Quickstart"]))
    entries = await asyncio.to_thread(
        lambda: list(play_page(terminals, quickstart.blocks, WITH_AN_INSTALLATION))
    )
    languages = {entry.block.language for entry in entries}
    assert languages == {"sh", "python", "typescript"}
    for item in entries:
        print(f"{item.took_s:6.1f} s  {item.block.heading}: {item.block.text.splitlines()[0]}")
    elapsed_s = time.monotonic() - began
    print(f"{elapsed_s:6.1f} s  paid, received webhooks and refunded in Python and TypeScript")
    assert elapsed_s < _LIMIT_S


async def test_every_package_that_a_page_installs_is_served(
    sandbox: Sandbox, http: aiohttp.ClientSession
) -> None:
    queue, pages = [f"{_origin(sandbox)}/docs"], dict[str, str]()
    while queue:
        url = queue.pop()
        async with http.get(url) as answer:
            assert answer.status == 200, url
            pages[url] = await answer.text()
        page = Page()
        page.feed(pages[url])
        links = {urldefrag(urljoin(url, link)).url for link in page.links.values()}
        inside = {link for link in links if link.startswith(f"{_origin(sandbox)}/docs")}
        queue += inside - {*pages, *queue}
    names = {name for text in pages.values() for name in _PACKAGE.findall(text)}
    assert len(names) >= 3
    for name in names:
        async with http.get(f"{_origin(sandbox)}/packages/files/{name}") as answer:
            assert answer.status == 200, name


async def _read(http: aiohttp.ClientSession, url: str) -> Page:
    async with http.get(url) as answer:
        assert answer.status == 200, url
        page = Page()
        page.feed(await answer.text())
        return page


def _origin(sandbox: Sandbox) -> str:
    return sandbox.dev_json["api_url"].removesuffix("/v1")
