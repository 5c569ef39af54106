"""Follow install.md and go-live.md on an empty machine until a payment is PAID.

Every command is executed in order. The changed and omitted commands are declared here.
"""

import asyncio
import json
import random
import re
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import asyncpg
import pytest

from payintent.runtime.version import VERSION
from payintent_sandbox.postgres import Postgres, find_binaries
from tests.docs.parse_pages import page
from tests.docs.run_pages import Block, Machine, Shell, read_blocks
from tests.e2e.merchant import APPROVED, Browser, Receiver
from tests.e2e.test_outage import is_well, process
from tests.support import processes, warm_python
from tests.support.authority import Authority
from tests.support.databases import at_database
from tests.support.memory_folder import memory_folder
from tests.support.ports import reserve_ports
from tests.support.relay import TlsRelay
from tests.support.roles import run
from tests.support.timeouts import wait_until
from tests.support.tools import tool

pytestmark = [pytest.mark.e2e, pytest.mark.long]

_PAGE = page("docs/operate/install.md") + page("docs/operate/go-live.md")
_SECRET_KEY, _PUBLISHABLE_KEY = "sk_live_of_the_test", "pk_live_of_the_test"
_SIGNING_SECRET = "whsec_of_the_test"

#: The omitted blocks, identified by a line, and the reasons.
OMITTED = {
    "sha256sum -c SHA256SUMS": "needs the files of a release",
    "python3 -m venv build": "needs a package registry; the test uses its own packages",
    f"python3 -m venv /opt/payintent-{VERSION}": "the same",
    "apt-get install --yes pgbouncer": "optional, and the program may be missing",
    "apt-get install --yes certbot python3-certbot-nginx": "needs a public certificate authority",
    "upstream payintent {": "an excerpt of deploy/nginx.conf",
    "-- example: watch": "tests/docs/test_deploy.py runs it",
}
#: Replacements for programs on the machine.
PROGRAMS = {
    "apt-get": "exit 0",  # its packages are already installed
    "nginx": "exit 0",  # a relay replaces it; test_rolling_restart.py uses deploy/nginx.conf
    # `Machine` replaces `systemctl`, and `_prepare_machine` replaces `runuser`.
}
_PLACEHOLDERS = re.compile(r"(?:appr|pay)_0351NDickobV3yYH8omp8v")


@dataclass
class Scene:
    """An empty machine, a separate database server, Stripe, a shop and two operators."""

    machine: Machine
    shells: dict[str, Shell]
    http: aiohttp.ClientSession  # a buyer's browser
    receiver: Receiver
    server_url: str
    substitutions: dict[str, str]
    emulate: Callable[[str], Awaitable[None]]
    stripe: str
    # By prefix, from the last command that printed an id.
    ids: dict[str, str] = field(default_factory=dict)

    def play(self, block: Block) -> str:
        """Run a block with the declared substitutions; return its output."""
        text = self.machine.substitute(block.text, self.substitutions)
        text = _PLACEHOLDERS.sub(lambda name: self.ids[name[0].partition("_")[0]], text)
        result = self.shells[block.person].play(text)
        transcript = f"{block.text}\n{result.output}\n{self.machine.systemd.logs()[-3000:]}"
        assert not result.failed, f"{result.failed}\n{transcript}"
        for prefix, rest in re.findall(r"\b(appr|pay)(_[0-9A-Za-z]{22})\b", result.output):
            self.ids[prefix] = prefix + rest
        return result.output

    async def register_endpoint(self, printed: str) -> None:
        """Set the webhook URL, which an operator does in Stripe's Dashboard."""
        [url] = re.findall(r"^callback url +(\S+)$", printed, re.MULTILINE)
        await self.emulate(url)

    async def receive_webhooks(self, _: str) -> None:
        """Configure the webhook secret in the shop's server."""
        credentials = (self.machine.home / "nimbus.txt").read_text()
        [self.receiver.secret] = re.findall(r"^callback secret +(\S+)$", credentials, re.MULTILINE)

    async def pay(self, printed: str) -> None:
        """Open the checkout, choose Card, and enter a card in Stripe's element."""
        payment = json.loads(printed)
        assert payment["status"] == "PENDING"
        browser = Browser(self.http)
        await browser.open(payment["checkout_url"])
        assert "Card" in browser.text
        api_url = (
            f"{payment['checkout_url'].partition('/c/')[0]}/v1/checkout/{payment['checkout_id']}"
        )
        async with self.http.get(f"{api_url}/quotes") as answer:
            [quote] = (await answer.json())["quotes"]
        selection = {"payment_method_id": quote["payment_method_id"]}
        async with self.http.post(f"{api_url}/quotes", json=selection) as answer:
            element = (await answer.json())["next_action"]["embedded_card"]
        card = {"key": element["publishable_key"], "client_secret": element["client_secret"]}
        card["number"] = APPROVED
        async with self.http.post(f"{self.stripe}/element/confirm", json=card) as answer:
            assert "error" not in await answer.json()
        await self.wait_for_delivery(payment["id"])

    async def wait_for_delivery(self, payment_id: str) -> None:
        """Wait until the shop has received a single event and the service has recorded it."""
        await wait_until(lambda: self.receiver.deliveries, "the shop receives the webhook")
        assert self.receiver.verification_errors == []
        [delivery] = self.receiver.deliveries
        assert (delivery.type, delivery.payment_id) == ("payment.completed", payment_id)
        await wait_until(
            lambda: self.fetch("SELECT 1 FROM delivery WHERE state = 'delivered'"),
            "the delivery is recorded",
        )

    async def fetch(self, query: str) -> list[Any]:
        """Query the installation's database."""
        connection = await asyncpg.connect(at_database(self.server_url, "payintent"))
        rows = await connection.fetch(query)
        await connection.close()
        return rows


#: Manual steps outside the terminal, after the block with this line.
MANUAL_STEPS: dict[str, Callable[[Scene, str], Awaitable[None]]] = {
    "payintent account show 1": Scene.register_endpoint,
    "payintent merchant create": Scene.receive_webhooks,
    '"https://$NAME/v1/payments"': Scene.pay,
}


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that every user can enter, like the machine's root."""
    root = Path(tempfile.mkdtemp(prefix="payintent-install-", dir=memory_folder()))
    root.chmod(0o711)
    yield root
    shutil.rmtree(root)


@pytest.fixture
def server_url(folder: Path) -> Iterator[str]:
    """A database server without our roles and databases, as after its installation."""
    postgres = Postgres(folder / "data", durable=False)
    url = postgres.start()
    asyncio.run(run(at_database(url, "postgres"), "DROP DATABASE payintent"))
    yield url
    postgres.stop()


@pytest.fixture
async def scene(tmp_path: Path, folder: Path, server_url: str) -> AsyncIterator[Scene]:
    machine, authority, receiver = Machine(folder / "machine"), Authority(tmp_path), Receiver()
    api, stripe_port = _find_four_digit_port(), _find_four_digit_port()
    async with AsyncExitStack() as stack:
        await receiver.start()
        stack.push_async_callback(receiver.stop)
        tls = authority.server()
        public, stripe, shop = [
            await stack.enter_async_context(TlsRelay(tls, port))
            for port in (api, stripe_port, receiver.port)
        ]
        substitutions = _list_substitutions(server_url, api, public.place, stripe.place, shop)
        _prepare_machine(machine, server_url, authority, substitutions)
        trust = {"CURL_CA_BUNDLE": str(authority.ca_file)}
        shells = stack.enter_context(machine.terminals(trust, "Ada", "Alan"))
        connector = aiohttp.TCPConnector(ssl=authority.client())
        http = await stack.enter_async_context(aiohttp.ClientSession(connector=connector))

        async def emulate(callback_url: str) -> None:
            environment = {
                "STRIPE_KEYS": f"{_SECRET_KEY}:{_PUBLISHABLE_KEY}",
                "STRIPE_WEBHOOK_URL": callback_url,
                "STRIPE_WEBHOOK_SECRET": _SIGNING_SECRET,
                "SSL_CERT_FILE": str(authority.ca_file),
            }
            words = ["payintent_sandbox.emulators.stripe", "--port", str(stripe_port)]
            stack.enter_context(process(tmp_path, "stripe", words, environment))
            url = f"http://127.0.0.1:{stripe_port}/healthz"
            await wait_until(lambda: is_well(http, url), "Stripe answers")

        yield Scene(
            machine=machine,
            shells=shells,
            http=http,
            receiver=receiver,
            server_url=server_url,
            substitutions=substitutions,
            emulate=emulate,
            stripe=f"https://{stripe.place}",
        )


def _list_substitutions(
    server_url: str, api_port: int, public: str, stripe: str, shop: TlsRelay
) -> dict[str, str]:
    """Return the names in the page's commands with their replacements on this machine."""
    return {
        "NAME=pay.example.com": f"NAME={public}",
        "https://shop.example.com/hooks": f"https://{shop.place}/hook",
        "https://gateway.example.com": f"https://{stripe}",
        "https://api.stripe.com": f"https://{stripe}",
        "10.20.0.0/16": "127.0.0.0/8",
        "=9443": f"={shop.port}",
        "8080": str(api_port),
        "8081": str(_find_four_digit_port()),
        "@9100": f"@{_find_four_digit_port()}",
        "@9101": f"@{_find_four_digit_port()}",
        "127.0.0.1:5432": f"127.0.0.1:{urlsplit(server_url).port}",
        "sk_live_…": _SECRET_KEY,
        "pk_live_…": _PUBLISHABLE_KEY,
        "whsec_…": _SIGNING_SECRET,
    }


def _prepare_machine(
    machine: Machine, server_url: str, authority: Authority, substitutions: dict[str, str]
) -> None:
    """Apply the effects of the omitted blocks."""
    for name, script in PROGRAMS.items():
        machine.install(name, script)
    for name in ("curl", "openssl"):
        machine.install(name, f'exec {tool(name)} "$@"')
    parts = urlsplit(server_url)
    superuser = f"PGHOST={parts.hostname} PGPORT={parts.port} PGUSER={parts.username}"
    superuser += f" PGPASSWORD={parts.password} PGDATABASE=postgres"
    psql = find_binaries() / "psql"
    machine.install("runuser", f'shift 4; exec env {superuser} {psql} "$@"')
    machine.install("payintent", _program(), f"opt/payintent-{VERSION}/bin")
    machine.check_out(substitutions)
    shutil.copy(authority.ca_file, machine.checkout / "ca.pem")


def _program() -> str:
    """Return a script that executes `api` and `worker`, and forks a warm process if possible."""
    warm = f"{sys.executable} -IS {warm_python.__file__} run {processes.server()}"
    return f"""case "$1" in
    api | worker) exec {sys.executable} -m payintent "$@" ;;
    *) exec {warm} payintent "$@" ;;
esac"""


def _find_four_digit_port() -> int:
    """Find a free port whose operator port (the same number after a leading 1) is also free."""
    choices = random.SystemRandom().sample(range(2_000, 5_000), 100)
    return next(port for port in choices if reserve_ports(port) and reserve_ports(10_000 + port))


def _is_executed(block: Block) -> bool:
    return not any(line in block.text for line in OMITTED)


def test_every_block_is_executed_or_declared_as_omitted() -> None:
    blocks = read_blocks(_PAGE)
    assert len(blocks) == _PAGE.count("```") / 2
    for line in OMITTED:
        assert len([block for block in blocks if line in block.text]) == 1, line
    for line in MANUAL_STEPS:
        assert len([block for block in blocks if line in block.text]) == 1, line
    assert {block.language for block in blocks if _is_executed(block)} == {"sh"}


def test_the_nginx_excerpt_matches_the_configuration_file() -> None:
    [excerpt] = [block.text for block in read_blocks(_PAGE) if block.language == "nginx"]
    conf = {line.strip() for line in page("deploy/nginx.conf").splitlines()}
    assert {re.sub(r" +#.*", "", line).strip() for line in excerpt.splitlines()} <= conf


async def test_the_instructions_lead_to_a_paid_and_delivered_payment(scene: Scene) -> None:
    outputs: dict[str, str] = {}
    for block in filter(_is_executed, read_blocks(_PAGE)):
        outputs[block.text] = output = await asyncio.to_thread(scene.play, block)
        for line, act in MANUAL_STEPS.items():
            if line in block.text:
                await act(scene, output)
    [payment_details] = [output for text, output in outputs.items() if "payment show" in text]
    assert re.search(r"^status +PAID$", payment_details, re.MULTILINE)
    assert re.search(r"payment\.completed .*delivered", payment_details)
    *_, doctor_report = outputs.values()
    assert "operators  ok    admins with a valid token: 2" in doctor_report
    of_this_machine = r"(?m)^(addresses .*on this machine|payintent .*CVE-2024-7592).*\n"
    assert "WARN" not in re.sub(of_this_machine, "", doctor_report)
    [status] = await scene.fetch("SELECT activation FROM merchant")
    assert status["activation"] == "ACTIVE"
    for word in ('"event": "bug"', "_failed", "callback_refused", "permission denied"):
        assert word not in scene.machine.systemd.logs()
