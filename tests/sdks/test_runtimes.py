"""The TypeScript SDK works in bundles and in workerd, not only in Node.js."""

import asyncio
import re
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from payintent_sandbox.chains.anvil_binary import npm
from tests.sdks.python_sdk import HERE
from tests.sdks.scripted_server import GOOD, scripted
from tests.sdks.signed_webhooks import webhook, webhook_cases
from tests.sdks.typescript_sdk import install_sdk, run
from tests.support.ports import free_port
from tests.support.timeouts import PATIENCE_S
from tests.support.world import Api
from tools.openapi.install import FOLDER

pytestmark = pytest.mark.full

_OF_NODE = re.compile(r"\bnode:|\bprocess\.\w|\bBuffer\b|\brequire\(")
_STUB = "is for servers: anyone who has the API key"
#: The conditions that wrangler sets.
_WRANGLER = "workerd,worker,browser"
_CONFIGURATION = """
using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [
    (name = "shop", worker = .shop),
    (name = "internet", network = (allow = ["local"])),
  ],
  sockets = [(name = "http", address = "127.0.0.1:%d", http = (), service = "shop")],
);
const shop :Workerd.Worker = (
  modules = [(name = "worker", esModule = embed "worker.js")],
  compatibilityDate = "%s",
);
"""


def _binary(package: str, name: str) -> str:
    """Return a package's program for this platform."""
    [binary] = (FOLDER / "node_modules").glob(f"{package}/bin/{name}")
    return str(binary)


def build_bundle(conditions: str, folder: Path, program: str = "worker.mjs") -> Path:
    """Bundle a program with these export conditions."""
    (install_sdk() / program).write_text((HERE / program).read_text())
    bundle = folder / "worker.js"
    options = ("--bundle", "--format=esm", "--platform=neutral", f"--outfile={bundle}")
    esbuild = _binary("@esbuild/*", "esbuild")
    run(esbuild, program, *options, f"--conditions={conditions}", folder=install_sdk())
    return bundle


@pytest.mark.parametrize(
    "conditions",
    [
        _WRANGLER,
        "edge-light,worker,browser",
        "edge-light,browser",
        "deno,browser",
        "bun,browser",
        "netlify,browser",
        "fastly,browser",
        "node",
        "import",
    ],
)
def test_a_bundle_for_a_server_contains_the_library(conditions: str, tmp_path: Path) -> None:
    text = build_bundle(conditions, tmp_path).read_text()
    assert _STUB not in text
    assert "Idempotency-Key" in text


@pytest.mark.parametrize(
    "conditions", ["browser", "worker,browser", "react-native", "electron,browser"]
)
def test_a_bundle_for_the_buyers_device_contains_the_stub(conditions: str, tmp_path: Path) -> None:
    text = build_bundle(conditions, tmp_path).read_text()
    assert _STUB in text
    assert "Idempotency-Key" not in text


def test_the_stub_has_every_export_so_that_a_bundler_reports_its_error() -> None:
    programs = ""
    for module in ("payintent-sdk", "payintent-sdk/testing"):
        script = f'console.log(Object.keys(await import("{module}")).join())'
        names = run(npm()[0], "--eval", script, folder=install_sdk())
        programs += f'export {{ {names} }} from "{module}";\n'
    (install_sdk() / "every_export.mjs").write_text(programs)
    options = ("--bundle", "--format=esm", "--conditions=browser", "--log-level=error")
    esbuild = _binary("@esbuild/*", "esbuild")
    assert _STUB in run(esbuild, "every_export.mjs", *options, folder=install_sdk())


def test_only_the_testing_module_needs_node() -> None:
    folder = install_sdk() / "node_modules/payintent-sdk/dist"
    files = [file for file in folder.glob("*.js") if file.name != "testing.js"]
    assert len(files) > 5
    for file in files:
        assert not _OF_NODE.search(file.read_text()), file


class Worker:
    """A worker in workerd."""

    def __init__(self, url: str, http: aiohttp.ClientSession) -> None:
        self._url = url
        self._http = http

    async def run(self, action: str, **arguments: Any) -> Any:
        async with self._http.post(self._url, json={"action": action, **arguments}) as answer:
            return await answer.json()


@pytest.fixture(params=["2023-03-01", "2026-11-01"])  # an old and a new compatibility date
async def worker(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Worker]:
    await asyncio.to_thread(build_bundle, _WRANGLER, tmp_path)
    port = free_port()
    (tmp_path / "config.capnp").write_text(_CONFIGURATION % (port, request.param))
    workerd = _binary("@cloudflare/workerd-*", "workerd")
    log = tmp_path / "workerd.log"
    with log.open("w") as file:
        process = subprocess.Popen([workerd, "serve", str(tmp_path / "config.capnp")], stderr=file)
        try:
            async with asyncio.timeout(PATIENCE_S), aiohttp.ClientSession() as http:
                while not await _is_open(port):
                    assert process.poll() is None, log.read_text()
                    await asyncio.sleep(0.05)
                yield Worker(f"http://127.0.0.1:{port}/", http)
        finally:
            process.kill()
            process.wait()


async def _is_open(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    await writer.wait_closed()
    return True


async def test_a_worker_creates_payments_verifies_webhooks_and_retries(
    worker: Worker, api: Api
) -> None:
    sale = await worker.run("sell", apiKey=f"{api.world.api_key}\n", baseUrl=api.base)
    assert sale == {"listed": True, "status": "CANCELLED"}
    for case, expected in webhook_cases():
        result = await worker.run("verify", **case)
        outcome = result if isinstance(result, str) else result["error"]
        assert outcome == expected.replace("misused", "TypeError"), case
    assert await worker.run("verify", **webhook()) == "payment.expired/msg_1"
    async with scripted("reset", GOOD) as server:
        assert await worker.run("fail", apiKey="sk_test_x", baseUrl=server.url) == "1"
        assert len(server.keys) == 2
    async with scripted("silence", GOOD) as server:
        response = await worker.run("fail", apiKey="sk_test_x", baseUrl=server.url, timeoutMs=500)
        assert response == "1"
    async with scripted("mismatched", "mismatched") as server:
        response = await worker.run("fail", apiKey="sk_test_x", baseUrl=server.url)
        assert response["error"] == "NoAnswerError", response
    closed = f"http://127.0.0.1:{free_port()}"
    response = await worker.run("fail", apiKey="sk_test_x", baseUrl=closed)
    assert response["error"] == "NoAnswerError", response
