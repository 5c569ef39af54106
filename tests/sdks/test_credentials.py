"""Keys and secrets from files: whitespace is ignored, and invalid values are refused."""

import asyncio
import base64
import json
import os
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from tests.sdks import python_sdk, typescript_sdk
from tests.sdks.python_sdk import CLI_PROJECT, MCP_PROJECT, PYTHON, unpack_package
from tests.sdks.scripted_server import PAYMENT
from tests.sdks.signed_webhooks import NOW, SECRET, webhook
from tools.openapi.install import MCP

pytestmark = pytest.mark.full

KEY = "sk_test_" + "Secret-key_0" * 3
_NO_KEYS = [
    "", "\n", "sk_", "sk_\n", "pk_test_1", f'"{KEY}"', f"{KEY}\nX-Other: 1", f"{KEY} {KEY}",
    f"{KEY}\0", f"{KEY}é", f"{KEY}\u2028", f"Bearer {KEY}", f"\x1c{KEY}", f"{KEY}\x85",
]  # fmt: skip
_NO_SECRETS = [
    "", "\n", "whsec_", "whsec_=", "whsec_====", "whsec_QUJD=", "whsec_QUJ", "whsec_QU JD",
    "whsec_QUJD\nQUJD",
    "whsec_QUJ-", "whsec_é", "WHSEC_QUJD=", f'"{SECRET}"', f"{SECRET},{SECRET}", "whsec_whsec_QUJD",
]  # fmt: skip
_NO_URLS = [
    "", "127.0.0.1:80", "ftp://127.0.0.1", "file:///x", "https://", "https:///v1", "https://a b",
    "http://[::1", "http://127.0.0.1:x", "http://127.0.0.1:99999", "http://key@127.0.0.1",
    "http://127.0.0.1/?a=1", "http://127.0.0.1#a",
]  # fmt: skip
#: Path segments that change the path of a request.
_NO_IDS = ["", ".", ".."]
_NO_IDEMPOTENCY_KEYS = ["", " ", "A-1009\n", "A 1009", "A-é", "Заказ-1009"]
_AROUND = ["{}\n", "{}\r\n", " \t{}\n\n", "\ufeff{}", "\ufeff{}\r\n", "\u00a0{}\u00a0", "{}\v\f"]

Endings = tuple[list[tuple[str, str]], str]
Run = Callable[..., str]


@pytest.fixture(params=["python", "typescript"])
def run(request: pytest.FixtureRequest) -> Run:
    if request.param == "python":
        return lambda *arguments, text: python_sdk.run_program(
            "use_credentials.py", *arguments, text=text
        )
    return lambda *arguments, text: typescript_sdk.run_program(
        "use_credentials.mts", *arguments, text=text
    )


@asynccontextmanager
async def serve(answer: Callable[[web.Request], web.StreamResponse]) -> AsyncIterator[str]:
    async def handle(request: web.Request) -> web.StreamResponse:
        return answer(request)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def return_key(request: web.Request) -> web.Response:
    """Return a payment with the `Authorization` header as its id."""
    return web.json_response({**PAYMENT, "id": request.headers["Authorization"]})


async def use(run: Run, base: str, *cases: tuple[str, str]) -> Endings:
    signed = webhook(secret=SECRET)
    case = {
        "body": base64.b64decode(signed["body"]).decode(),
        "headers": signed["headers"],
        "now": NOW,
    }
    text = json.dumps([(kind, value, case) for kind, value in cases])
    endings, log = json.loads(await asyncio.to_thread(run, base, text=text))
    return [tuple(ending) for ending in endings], log


async def test_white_space_around_keys_urls_and_secrets_is_ignored(run: Run) -> None:
    async with serve(return_key) as base:
        keys = [("key", around.format(KEY)) for around in _AROUND]
        urls = [("url", around.format(f"{base}/")) for around in _AROUND]
        secrets = [("secret", around.format(SECRET)) for around in _AROUND]
        endings, log = await use(run, base, *keys, *urls, *secrets)
    assert endings[: len(keys)] == [("", f"Bearer {KEY}")] * len(keys)
    assert endings[len(keys) : -len(secrets)] == [("", "Bearer sk_test_x")] * len(urls)
    assert endings[-len(secrets) :] == [("", "payment.expired")] * len(secrets)
    assert KEY not in log


async def test_invalid_credentials_are_refused_at_construction_and_never_shown(
    run: Run,
) -> None:
    cases = [("key", text) for text in _NO_KEYS]
    cases += [("secret", text) for text in _NO_SECRETS]
    cases += [("url", text) for text in _NO_URLS]
    endings, log = await use(run, "http://127.0.0.1:9", *cases)
    for (kind, text), (name, message) in zip(cases, endings, strict=True):
        assert name in {"ValueError", "TypeError"}, (kind, text, message)
        expected = {"key": "API key", "secret": "followed by base64", "url": "base URL"}[kind]
        assert expected in message, (kind, text, message)
        for secret in (KEY, SECRET, SECRET.removeprefix("whsec_")):
            assert secret not in message + log, (kind, text)


async def test_invalid_ids_and_idempotency_keys_are_refused_before_a_request(run: Run) -> None:
    requests: list[str] = []

    def answer(request: web.Request) -> web.Response:
        requests.append(request.path)
        return web.json_response({"data": []})

    cases = [("id", text) for text in _NO_IDS]
    cases += [("idempotency key", text) for text in _NO_IDEMPOTENCY_KEYS]
    async with serve(answer) as base:
        endings, _ = await use(run, base, *cases)
    assert requests == []
    for (kind, text), (name, message) in zip(cases, endings, strict=True):
        assert name in {"ValueError", "TypeError"}, (kind, text, message)
        expected = {"id": "invalid id", "idempotency key": "an idempotency key must be"}[kind]
        assert expected in message, (kind, text, message)


def _send_garbled(_: web.Request) -> web.Response:
    return web.Response(body=b"no gzip", headers={"Content-Encoding": "gzip"})


def _echo_headers(request: web.Request) -> web.Response:
    return web.Response(
        text="\n".join(f"{name}: {value}" for name, value in request.headers.items())
    )


def _refuse_with_key(request: web.Request) -> web.Response:
    message = f"this is not a test key (sk_test_…): {request.headers['Authorization']}"
    return web.json_response({"code": "BAD_REQUEST", "message": message}, status=400)


@pytest.mark.parametrize("answer", [_send_garbled, _echo_headers, _refuse_with_key])
async def test_errors_never_contain_the_key_even_if_the_response_does(
    run: Run, answer: Callable[[web.Request], web.Response]
) -> None:
    async with serve(answer) as base:
        [(name, message)], log = await use(run, base, ("key", KEY))
    assert name in {"NoAnswerError", "UnreadableAnswerError", "BadRequestError"}, message
    assert KEY not in message + log
    assert answer is not _refuse_with_key or "(sk_test_…): Bearer sk_…" in message


def _list_tools(key_file: Path, base: str) -> Iterator[tuple[list[str], dict[str, str]]]:
    """Yield the commands of both tools with their environment."""
    path = os.pathsep.join(
        map(str, (unpack_package(CLI_PROJECT), unpack_package(MCP_PROJECT), unpack_package()))
    )
    inherited = {name: value for name, value in os.environ.items() if "PAYINTENT" not in name}
    variables = {
        "PYTHONPATH": path,
        "HOME": str(key_file.parent),
        "PAYINTENT_API_KEY_FILE": str(key_file),
    }
    logs = ["payintent_cli", "logs", "tail", "--no-follow", "--base-url", base]
    yield [PYTHON, "-m", *logs], inherited | variables
    mcp = str(MCP / "bin" / "python")
    yield [mcp, "-m", "payintent_mcp", "--base-url", base], inherited | variables


@pytest.mark.parametrize("around", _AROUND)
async def test_the_tools_ignore_white_space_in_a_key_file(tmp_path: Path, around: str) -> None:
    authorizations: list[str] = []

    def feed(request: web.Request) -> web.Response:
        authorizations.append(request.headers["Authorization"])
        return web.json_response({"data": [], "after": "1", "has_more": False})

    key_file = tmp_path / "key"
    key_file.write_text(around.format(KEY))
    key_file.chmod(0o600)
    async with serve(feed) as base:
        for command, environment in _list_tools(key_file, base):
            result = await asyncio.to_thread(_run, command, environment)
            assert result.returncode == 0, result.stderr
    assert set(authorizations) == {f"Bearer {KEY}"}


@pytest.mark.parametrize("text", [f"{KEY} {KEY}", f"{KEY}\nX: 1", f"{KEY}é", f'"{KEY}"'])
async def test_the_tools_refuse_an_invalid_key_without_showing_it(
    tmp_path: Path, text: str
) -> None:
    key_file = tmp_path / "key"
    key_file.write_text(text)
    key_file.chmod(0o600)
    for command, environment in _list_tools(key_file, "http://127.0.0.1:9"):
        result = await asyncio.to_thread(_run, command, environment)
        assert (result.returncode, result.stdout) == (2, ""), result.stderr
        assert "API key" in result.stderr
        assert KEY not in result.stderr
        assert "Traceback" not in result.stderr


async def test_the_tools_refuse_a_key_file_that_is_not_utf_8(tmp_path: Path) -> None:
    key_file = tmp_path / "key"
    key_file.write_bytes(KEY.encode("utf-16"))
    key_file.chmod(0o600)
    for command, environment in _list_tools(key_file, "http://127.0.0.1:9"):
        result = await asyncio.to_thread(_run, command, environment)
        assert (result.returncode, result.stdout) == (2, ""), result.stderr
        assert f"{key_file} cannot be read: it is not UTF-8" in result.stderr
        assert "Traceback" not in result.stderr


def _run(command: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, env=environment, cwd="/", stdin=subprocess.DEVNULL, capture_output=True,
        text=True, timeout=60, check=False,
    )  # fmt: skip
