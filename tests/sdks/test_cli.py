"""The CLI for merchants' engineers: its processes, with the service and a real shop."""

import asyncio
import json
import os
import re
import signal
import stat
import sys
import tomllib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from aiohttp import web
from standardwebhooks import Webhook

from payintent.gateway_accounts.operations import AddAccount
from payintent.merchants.access_operations import IssueApiKey
from tests.sandbox.shop.running import SECRET
from tests.sdks.python_sdk import CLI_PROJECT, PYTHON, installed
from tests.sdks.scripted import refusal, scripted
from tests.support.authority import Authority
from tests.support.world import Api

pytestmark = pytest.mark.full

_README = (CLI_PROJECT / "README.md").read_text()
_WEBHOOKS = (Path(__file__).parents[2] / "docs/integrate/webhooks.md").read_text()


@dataclass
class Receiver:
    """A small merchant server that stores the requests that it receives."""

    url: str = ""
    answers: list[int] = field(default_factory=list)  # 204 where there is none left
    got: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    targets: list[str] = field(default_factory=list)

    async def handle(self, request: web.Request) -> web.Response:
        self.got.append((dict(request.headers), await request.read()))
        self.targets.append(request.raw_path)
        return web.Response(status=self.answers.pop(0) if self.answers else 204)


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    server = Receiver()
    app = web.Application()
    app.router.add_post("/hooks", server.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.url = f"127.0.0.1:{runner.addresses[0][1]}/hooks"
    yield server
    await runner.cleanup()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path


def environment(home: Path, **more: str) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if "PAYINTENT" not in name}
    path = f"{home / 'extra'}:{installed(CLI_PROJECT)}:{installed()}"
    own = {"PYTHONPATH": path, "HOME": str(home), "PYTHONUNBUFFERED": "1"}
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        inherited.pop(name, None)
    return inherited | own | more


@dataclass
class Command:
    """A running command."""

    process: asyncio.subprocess.Process
    printed: list[str] = field(default_factory=list)

    async def line(self, pattern: str) -> re.Match[str]:
        """Read up to a line that matches; fail at the end of the output."""
        assert self.process.stdout is not None
        while raw := await self.process.stdout.readline():
            self.printed.append(raw.decode())
            if found := re.search(pattern, self.printed[-1]):
                return found
        assert self.process.stderr is not None
        raise AssertionError(f"{self.printed} {await self.process.stderr.read()!r}")

    async def interrupt(self, by: int = signal.SIGINT) -> None:
        self.process.send_signal(by)
        out, err = await asyncio.wait_for(self.process.communicate(), 30)
        assert (self.process.returncode, err) == (0, b""), (self.printed, out, err)
        assert out.decode().endswith("stopped\n"), out


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    """Let children receive SIGINT, even if the tests run in a shell's background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@asynccontextmanager
async def started(home: Path, *words: str, **more: str) -> AsyncIterator[Command]:
    process = await asyncio.create_subprocess_exec(
        PYTHON, "-m", "payintent_cli", *words, env=environment(home, **more), cwd="/",
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        yield Command(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def ran(
    home: Path, *words: str, text: str = "", python: str = PYTHON, module: str = "payintent_cli",
    **more: str,
) -> tuple[int, str, str]:  # fmt: skip
    """Run a command to its end; return its exit status and its output."""
    process = await asyncio.create_subprocess_exec(
        python, "-m", module, *words, env=environment(home, **more), cwd="/",
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await asyncio.wait_for(process.communicate(text.encode()), 60)
    return process.returncode or 0, out.decode(), err.decode()


@pytest.fixture
async def key(api: Api) -> str:
    account = AddAccount(
        provider="fake", base_url="http://gateway.test",
        credentials={"signing_secret": api.world.signing_secret}, test=True,
    )  # fmt: skip
    await api.world.perform(account)
    side = await api.world.perform(IssueApiKey(merchant_id=api.world.merchant_id, test=True))
    return side.api_key


async def ask(api: Api, key: str, path: str, body: Any = None) -> Any:
    headers = api.bearer(key) | {"Idempotency-Key": str(uuid4())}
    answer = await api.send("POST", f"/v1/payments{path}", json=body, headers=headers)
    assert answer.status in {200, 201}, answer.body
    return answer.json


async def created(api: Api, key: str) -> str:
    body = {"currency": "THB", "amount": "1590.00", "payer_uid": "buyer-1"}
    # What JSON can say in several ways must arrive as the service wrote it.
    metadata = {"order_id": "A-1 ☕", "weight": 1.50, "n": 12345678901234567890}
    return (await ask(api, key, "", body | {"metadata": metadata}))["id"]


def place(home: Path) -> str:
    """Return the listener's position in the feed."""
    [file] = home.rglob("listen-*")
    return file.read_text()


async def cancelled(api: Api, key: str) -> str:
    payment = await created(api, key)
    await ask(api, key, f"/{payment}/cancel")
    return payment


async def test_a_listener_forwards_signed_events_retries_and_resumes(
    api: Api, key: str, receiver: Receiver, home: Path
) -> None:
    known = {"PAYINTENT_API_KEY": key, "PAYINTENT_URL": api.base}
    listen = ("listen", "--forward-to", receiver.url)
    await cancelled(api, key)  # before it listens
    async with started(home, *listen, **known) as listener:
        secret = (await listener.line(r"(whsec_\S+)"))[1]
        await listener.line("forwarding events")
        begun_at = place(home)
        receiver.answers = [500]
        payment = await cancelled(api, key)
        await listener.line(rf"payment.cancelled  {payment}  500  \d+ ms")
        await listener.line(rf"payment.cancelled  {payment}  204  \d+ ms")
        while place(home) == begun_at:  # interrupted before, it would forward the event again
            await asyncio.sleep(0.01)
        await listener.interrupt()
    [row] = await api.world.rows("SELECT id, body FROM event ORDER BY id DESC LIMIT 1")
    assert len(receiver.got) == 2
    for headers, body in receiver.got:
        Webhook(secret).verify(body, {name.lower(): value for name, value in headers.items()})
        assert body == row["body"].encode()
        assert headers["webhook-id"] == str(row["id"])
    missed = await cancelled(api, key)
    given = known | {"PAYINTENT_WEBHOOK_SECRET": secret}
    receiver.answers = [500, 410]
    async with started(home, *listen, "--resume", "--tries", "1", **given) as listener:
        await listener.line(rf"{missed}  500")
        await listener.line(rf"{missed}  not delivered \(attempts: 1\)")
        gone = await cancelled(api, key)
        await listener.line(rf"{gone}  410")
        await listener.interrupt(signal.SIGTERM)
    assert not any("whsec_" in line for line in listener.printed)
    assert len(receiver.got) == 4


@pytest.mark.parametrize(
    "query", ["sp=%2Ftriggers&sig=a%2Bb%3D%3D%2F&pipe=a|b", "q={a}<b>^`&r=100%", ""]
)
async def test_a_listener_does_not_change_its_target_url(
    api: Api, key: str, receiver: Receiver, home: Path, query: str
) -> None:
    known = {"PAYINTENT_API_KEY": key, "PAYINTENT_API_BASE_URL": api.base}
    async with started(home, "listen", "--forward-to", f"{receiver.url}?{query}", **known) as it:
        await it.line("forwarding events")
        payment = await cancelled(api, key)
        await it.line(rf"payment.cancelled  {payment}  204")
        await it.interrupt()
    assert receiver.targets == [f"/hooks?{query}"]


async def test_the_tail_shows_every_event_with_its_delivery(api: Api, key: str, home: Path) -> None:
    known = {"PAYINTENT_API_KEY": key, "PAYINTENT_URL": api.base}
    first = await cancelled(api, key)
    async with started(home, "logs", "tail", "--from-start", **known) as tail:
        await tail.line(rf"Z  payment.cancelled  {first}  skipped, 0 attempts$")
        second = await cancelled(api, key)
        await tail.line(rf"{second}  skipped, 0 attempts$")
        await tail.interrupt()
    status, out, _ = await ran(home, "logs", "tail", "--from-start", "--no-follow", **known)
    assert (status, out.count("payment.cancelled")) == (0, 2)


@asynccontextmanager
async def self_signed(receiver: Receiver, folder: Path) -> AsyncIterator[str]:
    """Serve the receiver with an untrusted certificate; return its URL."""
    app = web.Application()
    app.router.add_post("/hooks", receiver.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    tls = Authority(folder).server()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    yield f"https://127.0.0.1:{runner.addresses[0][1]}/hooks"
    await runner.cleanup()


async def test_a_listener_accepts_a_self_signed_certificate_only_with_insecure(
    api: Api, key: str, receiver: Receiver, home: Path
) -> None:
    known = {"PAYINTENT_API_KEY": key, "PAYINTENT_URL": api.base}
    async with self_signed(receiver, home) as url:
        listen = ("listen", "--forward-to", url)
        async with started(home, *listen, "--tries", "1", **known) as listener:
            await listener.line("forwarding events")
            payment = await cancelled(api, key)
            await listener.line(rf"{payment}  no response .*--insecure accepts any certificate")
            await listener.interrupt()
        assert receiver.got == []
        async with started(home, *listen, "--insecure", **known) as listener:
            await listener.line("forwarding events")
            payment = await cancelled(api, key)
            await listener.line(rf"{payment}  204")
            await listener.interrupt()
    assert len(receiver.got) == 1


@pytest.mark.parametrize(
    "url",
    [
        *("http://", "http://:80", "http:/localhost:3000", "ftp://localhost/", "//localhost", ""),
        *("http://localhost:x/", "http://localhost:99999/", "localhost:0", "http://[::1/hooks"),
        *("http://a..b/", f"http://{'a' * 64}.example/", "http://x\ty/", "file:///etc/passwd"),
    ],
)
async def test_a_malformed_url_is_reported_before_any_request(home: Path, url: str) -> None:
    known = {"PAYINTENT_API_KEY": "sk_test_x", "PAYINTENT_WEBHOOK_SECRET": SECRET}
    listened, hooks, orders = await asyncio.gather(
        ran(home, "listen", "--forward-to", url, **known),
        ran(home, "grade", "--webhook-url", url, "--orders-url", "http://x", **known),
        ran(home, "grade", "--webhook-url", "http://x", "--orders-url", url, **known),
    )
    for option, (status, out, error) in (
        ("--forward-to", listened),
        ("--webhook-url", hooks),
        ("--orders-url", orders),
    ):
        assert (status, out) == (2, ""), error
        [line] = error.splitlines()
        assert line.startswith(f"payintent-cli: {option}: {url!r} is not a")


async def test_the_search_for_the_newest_event_is_retried_after_temporary_errors(
    home: Path,
) -> None:
    older: Any = (200, {}, {"data": [], "after": "x", "has_more": True})
    last: Any = (200, {}, {"data": [], "after": "x", "has_more": False})
    busy, away = refusal(429, "RATE_LIMITED", Retry_After="1"), refusal(503, "X", Retry_After="1")
    answers = (older, busy, away, last, last)
    async with scripted(*answers) as service:
        known = {"PAYINTENT_API_KEY": "sk_test_x", "PAYINTENT_URL": service.url}
        ended = await ran(home, "logs", "tail", "--no-follow", **known)
    assert (ended, len(service.keys)) == ((0, "", ""), len(answers))


async def test_open_opens_the_checkout_in_the_browser_and_prints_its_url(
    api: Api, key: str, home: Path
) -> None:
    known = {"PAYINTENT_API_KEY": key, "PAYINTENT_URL": api.base}
    browser = home / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {home / "opened"}\n')
    browser.chmod(0o700)
    payment = await created(api, key)
    status, url, _ = await ran(home, "open", payment, BROWSER=str(browser), **known)
    assert (status, (home / "opened").read_text()) == (0, url)
    assert "/c/cs_" in url
    assert (await ran(home, "open", payment, "--print", BROWSER="false", **known))[1] == url
    status, _, error = await ran(home, "open", "pay_" + "0" * 22, **known)
    assert status == 1
    assert "payintent-cli: " in error
    assert "404" in error


async def test_trigger_ends_a_test_payment_but_never_a_live_payment(
    api: Api, key: str, home: Path
) -> None:
    known = {"PAYINTENT_API_KEY": key, "PAYINTENT_URL": api.base}
    status, out, error = await ran(
        home, "trigger", "payment.cancelled", "--amount", "20.00", **known
    )
    assert (status, error) == (0, "")
    [event] = await api.world.rows("SELECT type, body FROM event")
    payment = json.loads(event["body"])["data"]["payment"]
    assert out == f"{payment['id']}  {event['type']}\n"
    assert (event["type"], payment["amount"]) == ("payment.cancelled", "20.00")
    status, out, error = await ran(home, "trigger", "payment.expired", **known)
    assert (status, error) == (0, "")
    [due] = await api.world.rows(
        "SELECT expires_at < clock() AS due FROM payment WHERE status = 'PENDING'"
    )
    assert due["due"], "the worker expires it"
    for kind in ("payment.completed", "payment.failed"):
        status, _, error = await ran(home, "trigger", kind, **known)
        assert (status, error) == (0, "")
        events = await api.world.rows("SELECT type FROM event ORDER BY id DESC LIMIT 1")
        assert [event["type"] for event in events] == [kind]
    live = known | {"PAYINTENT_API_KEY": api.world.api_key}
    status, _, error = await ran(home, "trigger", "payment.cancelled", "--live", **live)
    assert (status, "only a test key" in error) == (2, True)
    assert len(await api.world.rows("SELECT 1 FROM payment")) == 4


async def test_login_stores_a_key_that_only_its_owner_can_read(
    api: Api, key: str, home: Path
) -> None:
    live = api.world.api_key
    status, _, error = await ran(home, "login", text=live)
    assert (status, "--live" in error) == (2, True)
    kept = await ran(home, "login", "--base-url", api.base, text=f"{key}\n")
    path = home / ".config/payintent/keys.json"
    assert kept == (0, f"stored in {path}\n", "")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    payment = await created(api, key)
    assert (await ran(home, "open", payment, "--print"))[0] == 0
    assert (await ran(home, "open", payment, "--print", "--live"))[0] == 2
    path.chmod(0o640)
    status, _, error = await ran(home, "open", payment, "--print")
    assert (status, "chmod 600" in error) == (2, True)
    path.chmod(0o600)
    assert (await ran(home, "logout"))[0] == 0
    status, _, error = await ran(home, "open", payment, "--print")
    assert (status, "no API key" in error) == (2, True)
    status, _, error = await ran(home, "open", payment, PAYINTENT_API_KEY=live)
    assert (status, "--live allows" in error) == (2, True)


async def test_variables_of_earlier_releases_still_work_but_new_variables_take_precedence(
    api: Api, key: str, home: Path
) -> None:
    payment = await created(api, key)
    older = {"PAYINTENT_KEY": key, "PAYINTENT_API_BASE_URL": api.base}
    assert (await ran(home, "open", payment, "--print", **older))[0] == 0
    newer = {"PAYINTENT_API_KEY": key, "PAYINTENT_URL": api.base}
    wrong = {"PAYINTENT_KEY": "sk_test_x", "PAYINTENT_API_BASE_URL": "http://127.0.0.1:9"}
    assert (await ran(home, "open", payment, "--print", **newer, **wrong))[0] == 0


_KEYRING = """
import json, pathlib
_FILE = pathlib.Path.home() / "ring"
def _all(): return json.loads(_FILE.read_text()) if _FILE.exists() else {}
def get_password(service, name): return _all().get(service + name)
def set_password(service, name, text): _FILE.write_text(json.dumps(_all() | {service + name: text}))
def delete_password(service, name): _FILE.write_text(json.dumps({}))
"""


async def test_login_uses_the_keyring_if_it_is_installed(api: Api, key: str, home: Path) -> None:
    (home / "extra").mkdir()
    (home / "extra/keyring.py").write_text(_KEYRING)  # a stand-in: no desktop is here
    assert (await ran(home, "login", text=key))[1] == "stored in the keyring\n"
    assert not (home / ".config").exists()
    payment = await created(api, key)
    assert (await ran(home, "open", payment, "--print", "--base-url", api.base))[0] == 0
    await ran(home, "logout")
    assert (await ran(home, "open", payment, "--print"))[0] == 2


async def test_the_commands_are_available_in_the_services_own_cli(home: Path) -> None:
    here = {"python": sys.executable, "module": "payintent"}
    repository = str(Path(__file__).parents[2])
    path = f"{repository}:{environment(home)['PYTHONPATH']}"
    _, helped, _ = await ran(home, "--help", PYTHONPATH=path, **here)
    for name in ("listen", "logs", "open", "trigger", "verify-deposit", "grade", "login", "logout"):
        assert re.search(rf"^│? *{name} ", helped, re.MULTILINE), (name, helped)
    status, _, error = await ran(home, "open", "pay_1", PYTHONPATH=path, **here)
    assert (status, "no API key" in error) == (2, True), error


def test_the_command_name_differs_from_the_operators_command() -> None:
    scripts = tomllib.loads((CLI_PROJECT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts == {"payintent-cli": "payintent_cli.command:run"}


def test_the_readme_and_the_guide_mention_every_command() -> None:
    names = ("listen --forward-to", "logs tail", "open pay_", "trigger payment", "login")
    for name in (*names, "verify-deposit pay_", "grade"):
        assert f"payintent-cli {name}" in _README
    assert "payintent-cli listen --forward-to" in _WEBHOOKS
