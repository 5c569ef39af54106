"""`python -m drills.examples` buys a book in each shop of `examples/`, and prints a table.

The drill checks each shop's types and starts the shop as described in its README. A buyer without
JavaScript places an order. The shop must reject a forged webhook for this order, and accept a
correctly signed webhook for another order. Then a buyer pays on the checkout page with a test
card, and the service sends a webhook. The exit status is 1 if a step fails.
"""

import asyncio
import base64
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
from rich.console import Console
from rich.table import Table
from standardwebhooks import Webhook

from drills.grading import register_origin
from drills.processes import NotReadyError, Program, plain_environment
from payintent_sandbox.chains.anvil_binary import npm, npm_environment
from tests.clients.generate import basedpyright
from tests.e2e.merchant import APPROVED, Browser
from tests.e2e.sandbox import Sandbox, running_sandbox
from tests.sdks.python_sdk import unpack_package
from tests.support.ports import free_port
from tests.support.timeouts import wait_until
from tools.examples import EXAMPLES, FOLDER, NODE
from tools.openapi.pack_typescript import pack
from tools.prepare import prepare

_TIMEOUT_S = 300
_WRONG_SECRET = "whsec_" + base64.b64encode(b"this is not the secret of the shop").decode()
_REFUSED_FROM = 400
_REFUSED = ("400, waiting", "401, waiting")
_BELIEVED = ("200, paid", "204, paid")


@dataclass(frozen=True, slots=True)
class Example:
    """The commands that check and start an example. `{bin}` is the folder with its programs."""

    name: str
    check: tuple[str, ...]
    start: tuple[str, ...]
    prepare: tuple[str, ...] = ()


_PYRIGHT = (basedpyright(), "--level", "error", "--pythonpath", "{bin}/python")
SHOPS = (
    Example("fastapi", _PYRIGHT, ("{bin}/uvicorn", "shop:app", "--port", "{port}")),
    Example(
        "django",
        ("{bin}/python", "manage.py", "makemigrations", "--check"),  # Django is untyped
        ("{bin}/python", "manage.py", "runserver", "--noreload", "{port}"),
        ("{bin}/python", "manage.py", "migrate"),
    ),
    Example("flask", _PYRIGHT, ("{bin}/flask", "--app", "shop", "run", "--port", "{port}")),
    Example("express", ("{bin}/tsc", "-p", "."), ("{node}", "shop.mjs")),
    Example(
        "nextjs",
        ("{bin}/next", "build"),  # also checks the types
        ("{bin}/next", "start", "--hostname", "127.0.0.1", "--port", "{port}"),
    ),
)


class PlayError(Exception):
    """A shop does not behave as described in its README."""


@dataclass(slots=True)
class Played:
    """The result for a shop. The duration does not include the build."""

    name: str
    forged: str = ""
    order: str = ""
    problem: str = ""
    took_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Place:
    """A copy of a shop, with its port and its settings."""

    example: Example
    folder: Path
    port: int
    secrets: Mapping[str, str]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def words(self, command: tuple[str, ...]) -> list[str]:
        """Replace the placeholders in a command."""
        is_node = self.example.name in NODE
        # Use the copy's programs, because Next.js must not find a second copy of React.
        ours = FOLDER / self.example.name / "bin"
        programs = self.folder / "node_modules/.bin" if is_node else ours
        values = {"bin": programs, "port": self.port, "node": npm()[0]}
        return [word.format(**values) for word in command]

    def environment(self) -> dict[str, str]:
        """Return the settings from the README, and the path of the Python library."""
        path = plain_environment() | npm_environment() | {"PORT": str(self.port)}
        checked = {"NEXT_TELEMETRY_DISABLED": "1", "PYTHONPATH": str(unpack_package())}
        return path | checked | dict(self.secrets)

    def run(self, command: tuple[str, ...]) -> None:
        """Run a command of the example, and raise `PlayError` if it fails."""
        result = subprocess.run(
            self.words(command), cwd=self.folder, env=self.environment(), capture_output=True,
            text=True, timeout=_TIMEOUT_S, check=False,
        )  # fmt: skip
        if result.returncode != 0:
            raise PlayError(f"{' '.join(command)}\n{result.stdout}{result.stderr}")


def copy(name: str, folder: Path, library: Path) -> Path:
    """Copy a shop into a folder. For a Node.js shop, also install the library in the copy."""
    target = folder / name
    shutil.copytree(EXAMPLES / name, target, ignore=shutil.ignore_patterns("node_modules", ".next"))
    if name in NODE:
        modules = target / "node_modules"
        shutil.copytree(FOLDER / name / "node_modules", modules, symlinks=True)
        shutil.unpack_archive(library, folder / "library", filter="data")
        shutil.copytree(folder / "library" / "package", modules / "payintent-sdk")
    return target


async def play(place: Place, logs: Path) -> Played:
    """Check and start a shop, and buy from it. Raises `PlayError` if the check fails."""
    place.run(place.example.check)
    if place.example.prepare:
        place.run(place.example.prepare)
    words = place.words(place.example.start)
    name = place.example.name
    shop = Program(name, words, place.environment(), logs, f"{place.url}/", place.folder)
    began = time.monotonic()
    played = Played(name)
    try:
        await shop.start()
        async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as http:
            await _buy(place, http, played)
    except (AssertionError, NotReadyError, PlayError) as error:
        output = shop.log.read_text(errors="replace")[-2_000:]
        played.problem = f"{error}\n{output}"
    finally:
        await shop.stop()
    played.took_s = time.monotonic() - began
    return played


async def _buy(place: Place, http: aiohttp.ClientSession, played: Played) -> None:
    buyer = Browser(http)
    payment = await _place(place, http, buyer)
    played.forged = await _tell(place, http, payment, _WRONG_SECRET)
    if played.forged not in _REFUSED:
        raise PlayError(f"a forged webhook was accepted: {played.forged}")
    # Only the signature was wrong: the same webhook is accepted with a correct signature.
    other = await _place(place, http, Browser(http))
    verdict = await _tell(place, http, other, place.secrets["PAYINTENT_WEBHOOK_SECRET"])
    if verdict not in _BELIEVED:
        raise PlayError(f"a correctly signed webhook was rejected: {verdict}")
    buyer = Browser(http)
    await _buy_again(place, http, buyer)
    await buyer.submit(buyer.form_to("select"))
    await buyer.submit(buyer.forms[0], card=APPROVED)

    paid = await _newest_payment(http, place.secrets)

    async def is_paid() -> bool:
        return await _order(place, http, paid) == "paid"

    await wait_until(is_paid, "the order is paid")
    played.order = "paid"


async def _place(place: Place, http: aiohttp.ClientSession, buyer: Browser) -> dict[str, Any]:
    """Click Buy, and return the payment whose checkout page the browser then shows."""
    await buyer.open(f"{place.url}/")
    await buyer.submit(buyer.forms[0])
    payment = await _newest_payment(http, place.secrets)
    if await _order(place, http, payment) != "waiting":
        raise PlayError("an unpaid order is not shown as waiting")
    return payment


async def _buy_again(place: Place, http: aiohttp.ClientSession, buyer: Browser) -> None:
    """Check that "Pay again" starts a new payment after a cancellation and after a decline."""
    await buyer.open(f"{place.url}/")
    await buyer.submit(buyer.forms[0])
    payments = [await _newest_payment(http, place.secrets)]
    service, key = place.secrets["PAYINTENT_URL"], place.secrets["PAYINTENT_API_KEY"]
    ends = (
        f"/v1/checkout/{payments[0]['checkout_id']}/cancel",  # the buyer cancels, without an event
        "/v1/test/payments/{id}/decline",
    )
    for end in ends:
        url = service + end.format(**payments[-1])
        async with http.post(url, headers={"Authorization": f"Bearer {key}"}) as answer:
            if answer.status >= _REFUSED_FROM:
                raise PlayError(f"{end}: {answer.status}")
        clicks = [Browser(http), Browser(http)]
        for click in clicks:  # the query does not prove that the payment is paid
            await click.open(
                f"{payments[-1]['return_url']}?payment_id={payments[-1]['id']}&status=PAID"
            )
        await asyncio.gather(*(click.submit(click.form("Pay again")) for click in clicks))
        payments.append(await _newest_payment(http, place.secrets))
        addresses = {click.url.partition("?")[0] for click in clicks}
        if addresses != {payments[-1]["checkout_url"].partition("?")[0]}:
            raise PlayError(f"two clicks after {end} opened {addresses}")
    if len({payment["id"] for payment in payments}) != len(payments):
        raise PlayError("an ended payment was reused")
    await buyer.open(payments[-1]["checkout_url"])


def _order_page(place: Place, payment: Mapping[str, Any]) -> str:
    return f"{place.url}/orders/{payment['metadata']['order_id']}"


async def _order(place: Place, http: aiohttp.ClientSession, payment: Mapping[str, Any]) -> str:
    async with http.get(_order_page(place, payment)) as answer:
        text = await answer.text()
    words = [word for word in ("waiting", "paid") if f"Your order is {word}" in text]
    return words[0] if words else f"{answer.status}: {text}"


async def _newest_payment(
    http: aiohttp.ClientSession, secrets: Mapping[str, str]
) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {secrets['PAYINTENT_API_KEY']}"}
    url = f"{secrets['PAYINTENT_URL']}/v1/payments?limit=1"
    async with http.get(url, headers=headers) as answer:
        return (await answer.json())["data"][0]


async def _tell(
    place: Place, http: aiohttp.ClientSession, payment: dict[str, Any], secret: str
) -> str:
    """Send a webhook about a paid payment. Return the response's status and the order's status."""
    now = datetime.now(UTC)
    text = now.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    payload = {
        name: payment[name] for name in ("id", "currency", "amount", "payer_uid", "metadata")
    }
    payload |= {"status": "PAID", "receipt_id": "r-1", "provider": "test", "paid_at": text}
    event = {"type": "payment.completed", "timestamp": text, "data": {"payment": payload}}
    body = json.dumps(event)
    webhook_id = f"evt_{payment['id']}"
    headers = {
        "content-type": "application/json",
        "webhook-id": webhook_id,
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": Webhook(secret).sign(webhook_id, now, body),
    }
    async with http.post(f"{place.url}/webhooks", data=body.encode(), headers=headers) as answer:
        status = answer.status
    return f"{status}, {await _order(place, http, payment)}"


def play_all(sandbox: Sandbox, folder: Path, names: list[str]) -> list[Played]:
    """Run the shops one after another, all on the port of the merchant's callback URL."""
    test_side = sandbox.dev_json["merchants"][0]["test"]
    port = free_port()
    callback_url = f"http://127.0.0.1:{port}/webhooks"
    sandbox.command(
        "merchant", "set-callback-url", str(test_side["merchant_id"]), callback_url, "--allow-http"
    )
    register_origin(sandbox, f"http://127.0.0.1:{port}")
    secrets = {
        "SHOP_URL": f"http://127.0.0.1:{port}",
        "PAYINTENT_URL": sandbox.dev_json["api_url"].removesuffix("/v1"),
        "PAYINTENT_API_KEY": test_side["api_key"],
        "PAYINTENT_WEBHOOK_SECRET": test_side["callback_secret"],
    }
    library = pack(folder / "packed")
    played: list[Played] = []
    for example in (shop for shop in SHOPS if shop.name in names or not names):
        target = copy(example.name, folder, library)
        place = Place(example, target, port, secrets)
        try:
            played.append(asyncio.run(play(place, folder)))
        except PlayError as error:
            played.append(Played(example.name, problem=str(error)))
    return played


def main() -> None:
    """Run the examples named in the arguments, or all examples, and print the results."""
    prepare("examples")
    table = Table(title="Shops in examples/")
    for name in ("shop", "forged webhook", "order after the payment", "s"):
        table.add_column(name, justify="right" if name == "s" else "left")
    scratch = tempfile.TemporaryDirectory(prefix="payintent-examples-")
    with scratch as folder, running_sandbox() as sandbox:
        played = play_all(sandbox, Path(folder), sys.argv[1:])
    for item in played:
        ended = item.order or "FAILED"
        table.add_row(item.name, item.forged, ended, f"{item.took_s:.1f}")
    Console(width=110).print(table)
    problems = [f"{entry.name}: {entry.problem}" for entry in played if entry.problem]
    if problems:
        sys.exit("\n".join(problems))
    print("examples: every shop sold its book, and accepted only correctly signed webhooks")


if __name__ == "__main__":
    main()
