"""Follow docs/integrate/portal.md exactly, from an invitation to verified webhooks."""

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.async_api import Locator, Page, async_playwright, expect

from drills.newcomer import Terminals
from tests.docs.parse_pages import page as read_page
from tests.docs.run_pages import Block, read_blocks
from tests.e2e.sandbox import Sandbox, running_sandbox
from tests.support import browser as programs
from tests.support.ports import free_port
from tests.support.timeouts import PATIENCE_S

pytestmark = [pytest.mark.e2e, pytest.mark.full]
_GUIDE = "docs/integrate/portal.md"
_PART = re.compile(r"^```.*?^```$|^\d\. [^\n]+$", re.MULTILINE | re.DOTALL)
_SELECT = re.compile(r"Select \*\*(.+?)\*\*(?: until the page shows `(.+?)`)?")
_ENTER = re.compile(r"Enter `(.+?)` as the \*\*(.+?)\*\*")
_COPY = re.compile(r"Copy the \*\*(.+?)\*\*")
_TERMINAL = re.compile(r"# terminal (\d)\n")
_FILE = re.compile(r"# (\w+\.py)\n")
_VERIFIED = re.compile(r"^verified payment\.completed pay_\w+$", re.MULTILINE)
_PLACEHOLDERS = {"API key": "sk_test_...", "Webhook secret": "whsec_..."}


class Engineer:
    """A merchant's engineer with an invitation, a browser, two terminals and the guide."""

    def __init__(self, link: str, page: Page, folder: Path, sandbox: Sandbox) -> None:
        self.link = link
        self.page = page
        port = free_port()
        self.replacements = {
            "https://pay.example.com": sandbox.dev_json["api_url"].removesuffix("/v1"),
            "https://shop.example.com": f"http://127.0.0.1:{port}",
            ", 3000)": f", {port})",
        }
        (folder / "engineer").mkdir()
        self.terminals = Terminals(
            folder, folder / "engineer", self.replacements, sandbox.port_base, {"2": "ready"}
        )

    async def play(self, part: str) -> None:
        """Execute a numbered step in the browser, or a block in a terminal."""
        if part.startswith("```"):
            [block] = read_blocks(part)
            self._enter_block(block)
        elif "Open the link in the invitation" in part:
            await self.page.goto(self.link)
        elif match := _COPY.search(part):
            secret = self.page.locator("dl.secrets div", has_text=match[1]).locator("code")
            self.replacements[_PLACEHOLDERS[match[1]]] = await secret.inner_text()
        elif match := _ENTER.search(part):
            await self.page.get_by_label(match[2]).fill(self._replace(match[1]))
        else:
            match = _SELECT.search(part)
            assert match is not None, part
            await self._select_by_name(*match.groups())

    def _enter_block(self, block: Block) -> None:
        if match := _FILE.match(block.text):
            self.terminals.write(match[1], block.text)
        else:
            match = _TERMINAL.match(block.text)
            assert match is not None, block
            self.terminals.type(match[1], block.text)

    async def wait_for_webhooks(self, count: int) -> None:
        """Wait until the receiver has printed this many verified webhooks."""
        async with asyncio.timeout(PATIENCE_S):
            while len(_VERIFIED.findall(self.terminals.output("2"))) < count:
                await asyncio.sleep(0.05)

    async def _select_by_name(self, name: str, heading: str | None) -> None:
        if heading is None:
            await self._find(name).click()
            return
        heading_locator = self.page.locator("h1", has_text=heading)
        await expect(self.page.locator("h1")).to_be_visible()
        for _ in range(int(PATIENCE_S)):
            if await heading_locator.count():
                return
            await self._find(name).click()
            await self.page.wait_for_timeout(300)
        raise AssertionError(await self.page.inner_text("main"))

    def _find(self, name: str) -> Locator:
        button = self.page.get_by_role("button", name=name, exact=True)
        return button.or_(self.page.get_by_role("link", name=name, exact=True)).first

    def _replace(self, text: str) -> str:
        for placeholder, value in self.replacements.items():
            text = text.replace(placeholder, value)
        return text


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with running_sandbox(chains=False, warm=True) as running:
        yield running


@pytest.mark.parametrize("has_scripts", [True, False], ids=["scripts", "no-scripts"])
async def test_an_invitation_leads_to_verified_webhooks_without_the_operator(
    sandbox: Sandbox, tmp_path: Path, has_scripts: bool
) -> None:

    created = json.loads(sandbox.command("merchant", "create", "--name", "Nimbus", "--json"))
    merchant_id = str(created["id"])
    invite = ("merchant", "invite", merchant_id, "dee@nimbus.example", "--role", "developer")
    link = json.loads(sandbox.command(*invite, "--json"))["link"]
    parts = _PART.findall(read_page(_GUIDE))
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=programs.find_light())
        context = await browser.new_context(java_script_enabled=has_scripts)
        context.set_default_timeout(PATIENCE_S * 1_000)
        engineer = Engineer(link, await context.new_page(), tmp_path, sandbox)
        try:
            assert len(parts) > 12
            for part in parts:
                await engineer.play(part)
            await engineer.wait_for_webhooks(2)
            await engineer.page.get_by_role("link", name="Payments", exact=True).click()
            await expect(engineer.page.get_by_text("Test side.")).to_be_visible()
            await expect(engineer.page.get_by_role("row")).to_have_count(3)
        finally:
            engineer.terminals.close()
            await browser.close()
