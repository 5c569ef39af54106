"""The CLI for merchants' engineers runs as a process, with the service and a small shop."""

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
from tests.sandbox.shop.shop_setup import SECRET
from tests.sdks.python_sdk import CLI_PROJECT, PYTHON, unpack_package
from tests.sdks.scripted_server import refusal, scripted
from tests.support.authority import Authority
from tests.support.world import Api

pytestmark = pytest.mark.full

_README = (CLI_PROJECT / "README.md").read_text()
_WEBHOOKS = (Path(__file__).parents[2] / "docs/integrate/webhooks.md").read_text()


@dataclass
class Receiver:
    """A small merchant server that stores the requests that it receives."""

    url: str = ""
    answers: list[int] = field(default_factory=list)  # 204 if the list is empty
    requests: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    targets: list[str] = field(default_factory=list)

    async def handle(self, request: web.Request) -> web.Response:
        self.requests.append((dict(request.headers), await request.read()))
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


def environment(home: Path, **overrides: str) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if "PAYINTENT" not in name}
    path = f"{home / 'extra'}:{unpack_package(CLI_PROJECT)}:{unpack_package()}"
    variables = {"PYTHONPATH": path, "HOME": str(home), "PYTHONUNBUFFERED": "1"}
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        inherited.pop(name, None)
    return inherited | variables | overrides


@dataclass
class Command:
    """A running command."""

    process: asyncio.subprocess.Process
    printed: list[str] = field(default_factory=list)

    async def line(self, pattern: str) -> re.Match[str]:
        """Read until a line matches; fail if the output ends."""
        assert self.process.stdout is not None
        while line_bytes := await self.process.stdout.readline():
            self.printed.append(line_bytes.decode())
            if match := re.search(pattern, self.printed[-1]):
                return match
        assert self.process.stderr is not None
        raise AssertionError(f"{self.printed} {await self.process.stderr.read()!r}")

    async def interrupt(self, by: int = signal.SIGINT) -> None:
        self.process.send_signal(by)
        out, err = await asyncio.wait_for(self.process.communicate(), 30)
        assert (self.process.returncode, err) == (0, b""), (self.printed, out, err)
        assert out.decode().endswith("stopped\n"), out


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    """Make child processes handle SIGINT, even if the tests run in the background of a shell."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@asynccontextmanager
async def running_command(home: Path, *arguments: str, **variables: str) -> AsyncIterator[Command]:
    process = await asyncio.create_subprocess_exec(
        PYTHON, "-m", "payintent_cli", *arguments, env=environment(home, **variables), cwd="/",
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        yield Command(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def run_command(
    home: Path,
    *arguments: str,
    text: str = "",
    python: str = PYTHON,
    module: str = "payintent_cli",
    **variables: str,
) -> tuple[int, str, str]:
    """Run a command; return its exit status, output and errors."""
    process = await asyncio.create_subprocess_exec(
        python, "-m", module, *arguments, env=environment(home, **variables), cwd="/",
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


async def post(api: Api, key: str, path: str, body: Any = None) -> Any:
    headers = api.bearer(key) | {"Idempotency-Key": str(uuid4())}
    answer = await api.send("POST", f"/v1/payments{path}", json=body, headers=headers)
    assert answer.status in {200, 201}, answer.body
    return answer.json


async def create_payment(api: Api, key: str) -> str:
    body = {"currency": "THB", "amount": "1590.00", "payer_uid": "buyer-1"}
    # JSON has several representations of these values, but the body must arrive unchanged.
    metadata = {"order_id": "A-1 ☕", "weight": 1.50, "n": 12345678901234567890}
    return (await post(api, key, "", body | {"metadata": metadata}))["id"]


def read_position(home: Path) -> str:
    """Return the listener's position in the feed."""
    [file] = home.rglob("listen-*")
    return file.read_text()


async def create_cancelled_payment(api: Api, key: str) -> str:
    payment = await create_payment(api, key)
    await post(api, key, f"/{payment}/cancel")
    return payment


async def test_a_listener_forwards_signed_events_retries_and_resumes(
    api: Api, key: str, receiver: Receiver, home: Path
) -> None:
    variables = {"PAYINTENT_API_KEY": key, "PAYINTENT_URL": api.base}
    listen = ("listen", "--forward-to", receiver.url)
    await create_cancelled_payment(api, key)  # before the listener starts
    async with running_command(home, *listen, **variables) as listener:
        secret = (await listener.line(r"(whsec_\S+)"))[1]
        await listener.line("forwarding events")
        start = read_position(home)
        receiver.answers = [500]
        payment = await create_cancelled_payment(api, key)
        await listener.line(rf"payment.cancelled  {payment}  500  \d+ ms")
        await listener.line(rf"payment.cancelled  {payment}  204  \d+ ms")
        # If it is interrupted earlier, it will forward the event again.
        while read_position(home) == start:
            await asyncio.sleep(0.01)
        await listener.interrupt()
    [row] = await api.world.rows("SELECT id, body FROM event ORDER BY id DESC LIMIT 1")
    assert len(receiver.requests) == 2
    for headers, body in receiver.requests:
        Webhook(secret).verify(body, {name.lower(): value for name, value in headers.items()})
        assert body == row["body"].encode()
        assert headers["webhook-id"] == str(row["id"])
    missed_payment = await create_cancelled_payment(api, key)
    variables_with_secret = variables | {"PAYINTENT_WEBHOOK_SECRET": secret}
    receiver.answers = [500, 410]
    async with running_command(
        home, *listen, "--resume", "--tries", "1", **variables_with_secret
    ) as listener:
        await listener.line(rf"{missed_payment}  500")
        await listener.line(rf"{missed_payment}  not delivered \(attempts: 1\)")
        gone_payment = await create_cancelled_payment(api, key)
        await listener.line(rf"{gone_payment}  410")
        await listener.interrupt(signal.SIGTERM)
    assert not any("whsec_" in line for line in listener.printed)
    assert len(receiver.requests) == 4


@pytest.mark.parametrize(
    "query", ["sp=%2Ftriggers&sig=a%2Bb%3D%3D%2F&pipe=a|b", "q={a}<b>^`&r=100%", ""]
)
async def test_a_listener_does_not_change_its_target_url(
    api: Api, key: str, receiver: Receiver, home: Path, query: str
) -> None:
    variables = {"PAYINTENT_API_KEY": key, "PAYINTENT_API_BASE_URL": api.base}
    async with running_command(
        home, "listen", "--forward-to", f"{receiver.url}?{query}", **variables
    ) as listener:
        await listener.line("forwarding events")
        payment = await create_cancelled_payment(api, key)
        await listener.line(rf"payment.cancelled  {payment}  204")
        await listener.interrupt()
    assert receiver.targets == [f"/hooks?{query}"]


async def test_the_tail_shows_every_event_with_its_delivery(api: Api, key: str, home: Path) -> None:
    variables = {"PAYINTENT_API_KEY": key, "PAYINTENT_URL": api.base}
    first = await create_cancelled_payment(api, key)
    async with running_command(home, "logs", "tail", "--from-start", **variables) as tail:
        await tail.line(rf"Z  payment.cancelled  {first}  skipped, 0 attempts$")
        second = await create_cancelled_payment(api, key)
        await tail.line(rf"{second}  skipped, 0 attempts$")
        await tail.interrupt()
    status, out, _ = await run_command(
        home, "logs", "tail", "--from-start", "--no-follow", **variables
    )
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
    variables = {"PAYINTENT_API_KEY": key, "PAYINTENT_URL": api.base}
    async with self_signed(receiver, home) as url:
        listen = ("listen", "--forward-to", url)
        async with running_command(home, *listen, "--tries", "1", **variables) as listener:
            await listener.line("forwarding events")
            payment = await create_cancelled_payment(api, key)
            await listener.line(rf"{payment}  no response .*--insecure accepts any certificate")
            await listener.interrupt()
        assert receiver.requests == []
        async with running_command(home, *listen, "--insecure", **variables) as listener:
            await listener.line("forwarding events")
            payment = await create_cancelled_payment(api, key)
            await listener.line(rf"{payment}  204")
            await listener.interrupt()
    assert len(receiver.requests) == 1


@pytest.mark.parametrize(
    "url",
    [
        *("http://", "http://:80", "http:/localhost:3000", "ftp://localhost/", "//localhost", ""),
        *("http://localhost:x/", "http://localhost:99999/", "localhost:0", "http://[::1/hooks"),
        *("http://a..b/", f"http://{'a' * 64}.example/", "http://x\ty/", "file:///etc/passwd"),
    ],
)
async def test_a_malformed_url_is_reported_before_any_request(home: Path, url: str) -> None:
    variables = {"PAYINTENT_API_KEY": "sk_test_x", "PAYINTENT_WEBHOOK_SECRET": SECRET}
    listen_result, webhook_result, orders_result = await asyncio.gather(
        run_command(home, "listen", "--forward-to", url, **variables),
        run_command(home, "grade", "--webhook-url", url, "--orders-url", "http://x", **variables),
        run_command(home, "grade", "--webhook-url", "http://x", "--orders-url", url, **variables),
    )
    for option, (status, out, error) in (
        ("--forward-to", listen_result),
        ("--webhook-url", webhook_result),
        ("--orders-url", orders_result),
    ):
        assert (status, out) == (2, ""), error
        [line] = error.splitlines()
        assert line.startswith(f"payintent-cli: {option}: {url!r} is not a")


async def test_the_search_for_the_newest_event_is_retried_after_temporary_errors(
    home: Path,
) -> None:
    older_page: Any = (200, {}, {"data": [], "after": "x", "has_more": True})
    last_page: Any = (200, {}, {"data": [], "after": "x", "has_more": False})
    busy, unavailable = (
        refusal(429, "RATE_LIMITED", Retry_After="1"),
        refusal(503, "X", Retry_After="1"),
    )
    answers = (older_page, busy, unavailable, last_page, last_page)
    async with scripted(*answers) as service:
        variables = {"PAYINTENT_API_KEY": "sk_test_x", "PAYINTENT_URL": service.url}
        result = await run_command(home, "logs", "tail", "--no-follow", **variables)
    assert (result, len(service.keys)) == ((0, "", ""), len(answers))


async def test_open_opens_the_checkout_in_the_browser_and_prints_its_url(
    api: Api, key: str, home: Path
) -> None:
    variables = {"PAYINTENT_API_KEY": key, "PAYINTENT_URL": api.base}
    browser = home / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {home / "opened"}\n')
    browser.chmod(0o700)
    payment = await create_payment(api, key)
    status, url, _ = await run_command(home, "open", payment, BROWSER=str(browser), **variables)
    assert (status, (home / "opened").read_text()) == (0, url)
    assert "/c/cs_" in url
    result = await run_command(home, "open", payment, "--print", BROWSER="false", **variables)
    assert result[1] == url
    status, _, error = await run_command(home, "open", "pay_" + "0" * 22, **variables)
    assert status == 1
    assert "payintent-cli: " in error
    assert "404" in error


async def test_trigger_ends_a_test_payment_but_never_a_live_payment(
    api: Api, key: str, home: Path
) -> None:
    variables = {"PAYINTENT_API_KEY": key, "PAYINTENT_URL": api.base}
    status, out, error = await run_command(
        home, "trigger", "payment.cancelled", "--amount", "20.00", **variables
    )
    assert (status, error) == (0, "")
    [event] = await api.world.rows("SELECT type, body FROM event")
    payment = json.loads(event["body"])["data"]["payment"]
    assert out == f"{payment['id']}  {event['type']}\n"
    assert (event["type"], payment["amount"]) == ("payment.cancelled", "20.00")
    status, out, error = await run_command(home, "trigger", "payment.expired", **variables)
    assert (status, error) == (0, "")
    [row] = await api.world.rows(
        "SELECT expires_at < clock() AS due FROM payment WHERE status = 'PENDING'"
    )
    assert row["due"], "a worker would expire the payment"
    for kind in ("payment.completed", "payment.failed"):
        status, _, error = await run_command(home, "trigger", kind, **variables)
        assert (status, error) == (0, "")
        events = await api.world.rows("SELECT type FROM event ORDER BY id DESC LIMIT 1")
        assert [event["type"] for event in events] == [kind]
    live = variables | {"PAYINTENT_API_KEY": api.world.api_key}
    status, _, error = await run_command(home, "trigger", "payment.cancelled", "--live", **live)
    assert (status, "only a test key" in error) == (2, True)
    assert len(await api.world.rows("SELECT 1 FROM payment")) == 4


async def test_login_stores_a_key_that_only_its_owner_can_read(
    api: Api, key: str, home: Path
) -> None:
    live = api.world.api_key
    status, _, error = await run_command(home, "login", text=live)
    assert (status, "--live" in error) == (2, True)
    result = await run_command(home, "login", "--base-url", api.base, text=f"{key}\n")
    path = home / ".config/payintent/keys.json"
    assert result == (0, f"stored in {path}\n", "")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    payment = await create_payment(api, key)
    assert (await run_command(home, "open", payment, "--print"))[0] == 0
    assert (await run_command(home, "open", payment, "--print", "--live"))[0] == 2
    path.chmod(0o640)
    status, _, error = await run_command(home, "open", payment, "--print")
    assert (status, "chmod 600" in error) == (2, True)
    path.chmod(0o600)
    assert (await run_command(home, "logout"))[0] == 0
    status, _, error = await run_command(home, "open", payment, "--print")
    assert (status, "no API key" in error) == (2, True)
    status, _, error = await run_command(home, "open", payment, PAYINTENT_API_KEY=live)
    assert (status, "--live allows" in error) == (2, True)


async def test_variables_of_earlier_releases_still_work_but_new_variables_take_precedence(
    api: Api, key: str, home: Path
) -> None:
    payment = await create_payment(api, key)
    old_variables = {"PAYINTENT_KEY": key, "PAYINTENT_API_BASE_URL": api.base}
    assert (await run_command(home, "open", payment, "--print", **old_variables))[0] == 0
    new_variables = {"PAYINTENT_API_KEY": key, "PAYINTENT_URL": api.base}
    wrong_variables = {
        "PAYINTENT_KEY": "sk_test_x",
        "PAYINTENT_API_BASE_URL": "http://127.0.0.1:9",
    }
    variables = new_variables | wrong_variables
    assert (await run_command(home, "open", payment, "--print", **variables))[0] == 0


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
    (home / "extra/keyring.py").write_text(_KEYRING)  # a fake keyring, because there is no desktop
    assert (await run_command(home, "login", text=key))[1] == "stored in the keyring\n"
    assert not (home / ".config").exists()
    payment = await create_payment(api, key)
    assert (await run_command(home, "open", payment, "--print", "--base-url", api.base))[0] == 0
    await run_command(home, "logout")
    assert (await run_command(home, "open", payment, "--print"))[0] == 2


async def test_the_commands_are_available_in_the_services_own_cli(home: Path) -> None:
    service_cli = {"python": sys.executable, "module": "payintent"}
    repository = str(Path(__file__).parents[2])
    path = f"{repository}:{environment(home)['PYTHONPATH']}"
    _, help_text, _ = await run_command(home, "--help", PYTHONPATH=path, **service_cli)
    for name in ("listen", "logs", "open", "trigger", "verify-deposit", "grade", "login", "logout"):
        assert re.search(rf"^│? *{name} ", help_text, re.MULTILINE), (name, help_text)
    status, _, error = await run_command(home, "open", "pay_1", PYTHONPATH=path, **service_cli)
    assert (status, "no API key" in error) == (2, True), error


def test_the_command_name_differs_from_the_operators_command() -> None:
    scripts = tomllib.loads((CLI_PROJECT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts == {"payintent-cli": "payintent_cli.command:run"}


def test_the_readme_and_the_guide_mention_every_command() -> None:
    names = ("listen --forward-to", "logs tail", "open pay_", "trigger payment", "login")
    for name in (*names, "verify-deposit pay_", "grade"):
        assert f"payintent-cli {name}" in _README
    assert "payintent-cli listen --forward-to" in _WEBHOOKS
