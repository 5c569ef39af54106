"""Follow README.md exactly, like a newcomer with a fresh clone."""

import asyncio
import json
import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from drills.newcomer import Terminals, clone
from tests.docs.run_pages import Block, read_blocks
from tests.e2e.merchant import Browser
from tests.support.ports import free_port, free_port_base
from tests.support.timeouts import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(900)]

_LIMIT_S = 600.0
_FILE = re.compile(r"# (var/\S+\.py)\n")
_STEPS = re.compile(r"^\d\. (.+)$", re.MULTILINE)


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="payintent-newcomer-") as scratch:
        folder = Path(scratch)
        folder.chmod(0o711)  # PostgreSQL runs as a different user
        yield folder


@pytest.fixture
def checkout(folder: Path) -> Path:
    return clone(folder)


@pytest.fixture
def ports() -> dict[str, str]:
    """The ports in the README, and the free ports that replace them."""
    base, shop = free_port_base(), free_port()
    services = {f"127.0.0.1:{8080 + number}": f"127.0.0.1:{base + number}" for number in range(4)}
    return {**services, ":3000": f":{shop}", ", 3000)": f", {shop})"}


@pytest.fixture
def terminals(folder: Path, checkout: Path, ports: dict[str, str]) -> Iterator[Terminals]:
    base = int(ports["127.0.0.1:8080"].partition(":")[2])
    newcomer_terminals = Terminals(folder, checkout, ports, base)
    yield newcomer_terminals
    newcomer_terminals.close()


async def test_a_newcomer_pays_verifies_a_webhook_and_refunds_in_ten_minutes(
    checkout: Path, terminals: Terminals, ports: dict[str, str], http: aiohttp.ClientSession
) -> None:
    began = time.monotonic()
    readme = (checkout / "README.md").read_text()
    blocks = iter(read_blocks(readme))
    start = next(blocks)
    assert (start.text, "prints `ready`" in readme) == ("make dev\n", True)
    await asyncio.to_thread(terminals.type, "1", start.text)
    _report("the sandbox is ready", began)

    await _buy_a_book(readme, ports, http)
    _report("the shop shows a paid order", began)

    for block in blocks:
        await asyncio.to_thread(_play, terminals, block)
    payment_id = _check_output(terminals.output("2"))
    await wait_until(lambda: _is_refunded(checkout, http, payment_id), "the refund")
    _report("paid, verified and refunded with the SDK", began)
    assert time.monotonic() - began < _LIMIT_S


def _play(terminals: Terminals, block: Block) -> None:
    if (file := _FILE.match(block.text)) is not None:
        terminals.write(file[1], block.text)
    else:
        assert block.language == "sh"
        terminals.type("2", block.text)


async def _buy_a_book(readme: str, ports: dict[str, str], http: aiohttp.ClientSession) -> None:
    """Follow the numbered steps of the README in a browser without scripts."""
    steps = " ".join(_STEPS.findall(readme))
    [address] = re.findall(r"<http://(\S+?)>", steps)
    buy, method, proceed, pay = re.findall(r"\*\*(\w+)\*\*", steps)
    [card] = re.findall(r"`([\d ]+)`", steps)
    shop_url = f"http://{ports[address]}"
    browser = Browser(http)
    await browser.open(f"{shop_url}/")
    await browser.submit(next(form for form in browser.forms if form.label.strip() == buy))
    assert method in browser.text
    await browser.submit(browser.form(proceed))
    await browser.submit(browser.form(pay), card=card)

    async def is_paid() -> bool:
        await browser.open(f"{shop_url}/orders")
        return '<span class="state paid">paid</span>' in browser.text

    await wait_until(is_paid, "the order is paid")


def _check_output(output: str) -> str:
    """Check the script's output, and return its payment id."""
    assert re.search(r"^redirect the buyer to http\S+/c/\S+$", output, re.MULTILINE), output
    assert re.search(r"^PAID$", output, re.MULTILINE), output
    assert re.search(r"^refund PENDING$", output, re.MULTILINE), output
    [payment_id] = re.findall(r"^verified payment\.completed (pay_\w+)$", output, re.MULTILINE)
    return payment_id


async def _is_refunded(checkout: Path, http: aiohttp.ClientSession, payment_id: str) -> bool:
    description: dict[str, Any] = json.loads((checkout / "var" / "dev.json").read_text())
    headers = {"Authorization": f"Bearer {description['merchants'][0]['test']['api_key']}"}
    url = f"{description['api_url']}/payments/{payment_id}"
    async with http.get(url, headers=headers) as answer:
        return (await answer.json())["status"] == "PARTIALLY_REFUNDED"


def _report(step: str, began: float) -> None:
    print(f"{time.monotonic() - began:6.1f} s  {step}")
