"""`make plugins-long`: the plugins of `plugins/`, graded, and paid by a sandbox; prints the report.

The WooCommerce plugin runs in PHP against a stand-in for WordPress and WooCommerce. The grader
attacks it with the test side's secret; then a test payment of the sandbox is paid, and the plugin
hears of it by the service's own webhook. It ends with 1 where a check fails.
"""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import aiohttp

from drills.processes import Program
from tests.e2e.sandbox import Sandbox, running_sandbox
from tests.sdks.python_sdk import CLI_PROJECT, PYTHON, installed
from tests.support.patience import until
from tests.support.world import free_port

ROUTER = Path(__file__).parents[1] / "plugins" / "woocommerce" / "stub" / "router.php"
_WORKERS = "8"  # PHP's own server answers one request in each
_TIMEOUT_S = 600


def grade(url: str, secret: str) -> int:
    """Have the grader attack the shop, and print its report; gives its exit status."""
    words = ("grade", "--webhook-url", f"{url}/?wc-api=payintent", "--orders-url", f"{url}/graded")
    path = f"{installed(CLI_PROJECT)}:{installed()}"
    inherited = {name: value for name, value in os.environ.items() if "PAYINTENT" not in name}
    environment = inherited | {"PYTHONPATH": path, "PAYINTENT_WEBHOOK_SECRET": secret}
    command = [PYTHON, "-m", "payintent_cli", *words]
    return subprocess.run(command, env=environment, timeout=_TIMEOUT_S, check=False).returncode


async def play(shop: Program, url: str, secrets: Mapping[str, str]) -> int:
    """Start the shop, have it graded, and pay one order; gives the grader's exit status."""
    await shop.start()
    try:
        graded = await asyncio.to_thread(grade, url, secrets["PAYINTENT_WEBHOOK_SECRET"])
        async with aiohttp.ClientSession() as http:
            await _pay(http, url, secrets)
    finally:
        if shop.process is not None:
            os.killpg(shop.process.pid, signal.SIGTERM)  # PHP leaves its workers behind
        await shop.stop()
    return graded


async def _pay(http: aiohttp.ClientSession, url: str, secrets: Mapping[str, str]) -> None:
    async with http.post(f"{url}/graded", json={"cart_id": str(uuid4())}) as answer:
        order: dict[str, Any] = await answer.json()
    headers = {"Authorization": f"Bearer {secrets['PAYINTENT_KEY']}"}
    pay = f"{secrets['PAYINTENT_URL']}/v1/test/payments/{order['payment_id']}/pay"
    async with http.post(pay, headers=headers) as answer:
        answer.raise_for_status()

    async def is_paid() -> bool:
        async with http.get(f"{url}/graded/{order['order_id']}") as answer:
            return await answer.json() == {"status": "paid", "handed_out": 1}

    await until(is_paid, "the order is paid by the service's webhook")


def play_woocommerce(sandbox: Sandbox, folder: Path) -> int:
    """Play the plugin with the test side of the sandbox's first merchant."""
    test_side, port = sandbox.told["merchants"][0]["test"], free_port()
    url = f"http://127.0.0.1:{port}"
    callback = ("merchant", "set-callback-url", str(test_side["merchant_id"]))
    sandbox.command(*callback, f"{url}/?wc-api=payintent", "--allow-http")
    secrets = {
        "PAYINTENT_URL": sandbox.told["api_url"].removesuffix("/v1"),
        "PAYINTENT_KEY": test_side["api_key"],
        "PAYINTENT_WEBHOOK_SECRET": test_side["callback_secret"],
    }
    (folder / "orders").mkdir()
    environment = {
        **secrets,
        "STUB_FOLDER": str(folder / "orders"),
        "PHP_CLI_SERVER_WORKERS": _WORKERS,
    }
    command = ["php", "-d", "display_errors=stderr", "-S", f"127.0.0.1:{port}", str(ROUTER)]
    shop = Program("woocommerce", command, environment, folder, f"{url}/healthz")
    return asyncio.run(play(shop, url, secrets))


def main() -> None:
    """Play the plugins; ends with 1 where the grader finds a fault."""
    if shutil.which("php") is None:
        sys.exit("plugins: PHP is not installed; Debian's package is php-cli")
    scratch = tempfile.TemporaryDirectory(prefix="payintent-plugins-")
    with scratch as folder, running_sandbox() as sandbox:
        graded = play_woocommerce(sandbox, Path(folder))
    if graded:
        sys.exit("plugins: the grader found faults")
    print("plugins: WooCommerce's passed every check, and a payment of the sandbox paid its order")


if __name__ == "__main__":
    main()
