"""Helpers for `python -m drills.plugins` that grade a plugin's shop and pay for its orders."""

import asyncio
import os
import re
import subprocess
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import aiohttp

from tests.e2e.sandbox import Sandbox
from tests.sdks.python_sdk import CLI_PROJECT, PYTHON, unpack_package
from tests.support.timeouts import wait_until

_TIMEOUT_S = 900


class PluginError(Exception):
    """A plugin does not behave as described on its page."""


def expect(is_so: bool, otherwise: str) -> None:
    """Raise `PluginError` if a condition is false."""
    if not is_so:
        raise PluginError(otherwise)


def secrets_of(sandbox: Sandbox) -> dict[str, str]:
    """Return a shop's settings for the first merchant's test merchant in the sandbox."""
    test_side = sandbox.dev_json["merchants"][0]["test"]
    return {
        "PAYINTENT_URL": sandbox.dev_json["api_url"].removesuffix("/v1"),
        "PAYINTENT_API_KEY": test_side["api_key"],
        "PAYINTENT_WEBHOOK_SECRET": test_side["callback_secret"],
    }


def register_origin(sandbox: Sandbox, url: str) -> None:
    """Allow the test merchant's payments to return buyers to a shop."""
    merchant = str(sandbox.dev_json["merchants"][0]["test"]["merchant_id"])
    sandbox.command("merchant", "profile", merchant, "--allowed-origin", url)


def send_webhooks_to(sandbox: Sandbox, url: str) -> None:
    """Set the test merchant's callback URL to a shop."""
    merchant = str(sandbox.dev_json["merchants"][0]["test"]["merchant_id"])
    sandbox.command("merchant", "set-callback-url", merchant, url, "--allow-http")


async def grade(webhooks: str, orders: str, secrets: Mapping[str, str], *more: str) -> set[str]:
    """Run the grader against a shop and print its report. Return the failed checks."""
    words = ("grade", "--webhook-url", webhooks, "--orders-url", orders, *more)
    path = f"{unpack_package(CLI_PROJECT)}:{unpack_package()}"
    inherited = {name: value for name, value in os.environ.items() if "PAYINTENT" not in name}
    environment = inherited | {
        "PYTHONPATH": path,
        "PAYINTENT_URL": secrets["PAYINTENT_URL"],
        "PAYINTENT_WEBHOOK_SECRET": secrets["PAYINTENT_WEBHOOK_SECRET"],
    }
    result = await asyncio.to_thread(
        subprocess.run, [PYTHON, "-m", "payintent_cli", *words], env=environment,
        capture_output=True, text=True, timeout=_TIMEOUT_S, check=False,
    )  # fmt: skip
    print(result.stdout, result.stderr, flush=True)
    failed = set(re.findall(r"^FAIL  (\w+):", result.stdout, re.MULTILINE))
    expect(
        result.returncode == int(bool(failed)), "the grader's exit status does not match its report"
    )
    return failed


class Shopper:
    """Places orders in a shop, pays for them at the service, and checks them."""

    def __init__(
        self, http: aiohttp.ClientSession, orders: str, secrets: Mapping[str, str]
    ) -> None:
        self._http = http
        self._orders = orders
        self._service = f"{secrets['PAYINTENT_URL']}/v1"
        self._headers = {"Authorization": f"Bearer {secrets['PAYINTENT_API_KEY']}"}

    async def order(self) -> dict[str, Any]:
        """Place an order and return it."""
        async with self._http.post(self._orders, json={"cart_id": str(uuid4())}) as answer:
            return await answer.json()

    async def pay(self, order: Mapping[str, Any]) -> None:
        """Pay the order's payment with a test card."""
        await self.ask("POST", f"/test/payments/{order['payment_id']}/pay")

    async def wait_until_paid(self, order: Mapping[str, Any]) -> None:
        """Wait until the shop has delivered the order."""

        async def is_paid() -> bool:
            async with self._http.get(f"{self._orders}/{order['order_id']}") as answer:
                current = await answer.json()
            return (current["status"], current["handed_out"]) == ("paid", 1)

        await wait_until(is_paid, "the order is paid")

    async def poll(self) -> None:
        """Make the shop read the payments of its open orders."""
        async with self._http.post(f"{self._orders}/poll") as answer:
            answer.raise_for_status()

    async def have(self, order: Mapping[str, Any], what: str, **body: str) -> int:
        """Run a shop action on an order, and return the HTTP status."""
        url = f"{self._orders}/{order['order_id']}/{what}"
        async with self._http.post(url, json=body) as answer:
            return answer.status

    async def ask(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        """Send a request to the service."""
        headers = self._headers | {"Idempotency-Key": str(uuid4())}
        url = f"{self._service}{path}"
        async with self._http.request(method, url, headers=headers, json=body) as answer:
            answer.raise_for_status()
            return await answer.json()
