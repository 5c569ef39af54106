"""The sandbox's Stripe emulator as a process, and the requests of a buyer's element."""

import os
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp

from payintent.gateways.port import SessionCreated
from tests.support import processes
from tests.support.ports import free_port
from tests.support.timeouts import PATIENCE_S

SECRET_KEY, PUBLISHABLE_KEY = "sk_test_one", "pk_test_one"
OTHER_SECRET_KEY, OTHER_PUBLISHABLE_KEY = "sk_test_two", "pk_test_two"
WEBHOOK_SECRET, OTHER_WEBHOOK_SECRET = "whsec_one", "whsec_two"

PAYS = "4242424242424242"
DECLINED = "4000000000000002"
CHALLENGES = "4000002500003155"
REFUNDS_LATER = "4000000000007726"
DISPUTED = "4000000000000259"
PORTS_TRIED_MAX = 3


@contextmanager
def running_stripe(log: Path, **environment: str) -> Iterator[str]:
    """Run the emulator on a free port with two accounts, and yield its URL."""
    keys = f"{SECRET_KEY}:{PUBLISHABLE_KEY},{OTHER_SECRET_KEY}:{OTHER_PUBLISHABLE_KEY}"
    process, url = _started(log, os.environ | {"STRIPE_KEYS": keys} | environment)
    try:
        yield url
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def _started(log: Path, environment: dict[str, str]) -> tuple[processes.Process, str]:
    for _ in range(PORTS_TRIED_MAX):  # the free port may have been taken in the meantime
        port = free_port()
        words = ("payintent_sandbox.emulators.stripe", "--port", str(port))
        with log.open("ab") as output:
            process = processes.start(*words, output=output, env=environment)
        url = f"http://127.0.0.1:{port}"
        if _becomes_healthy(url, process):
            return process, url
    raise AssertionError(f"the sandbox's Stripe does not start: {log.read_text()}")


def _becomes_healthy(url: str, process: processes.Process) -> bool:
    deadline = time.monotonic() + PATIENCE_S
    while process.poll() is None:
        assert time.monotonic() < deadline, "the sandbox's Stripe never became healthy"
        try:
            with urllib.request.urlopen(f"{url}/healthz", timeout=1):  # noqa: S310 - our own
                return process.poll() is None
        except OSError:
            time.sleep(0.05)
    return False


def credentials(url: str = "") -> dict[str, str]:
    """Return an account's credentials, with the sandbox's element if `url` is given."""
    script = {"script_url": f"{url}/element/v3.js"} if url else {}
    return {
        "secret_key": SECRET_KEY,
        "publishable_key": PUBLISHABLE_KEY,
        "webhook_secret": WEBHOOK_SECRET,
    } | script


def other_credentials() -> dict[str, str]:
    return {
        "secret_key": OTHER_SECRET_KEY,
        "publishable_key": OTHER_PUBLISHABLE_KEY,
        "webhook_secret": OTHER_WEBHOOK_SECRET,
    }


class Buyer:
    """A buyer with a card, who uses the element's frame."""

    def __init__(self, url: str, http: aiohttp.ClientSession) -> None:
        self.url = url
        self.http = http

    async def confirm(self, created: SessionCreated, number: str) -> dict[str, Any]:
        return await self._ask("confirm", {**_whose(created), "number": number})

    async def authenticate(self, created: SessionCreated, *, success: bool) -> dict[str, Any]:
        return await self._ask("authenticate", {**_whose(created), "success": str(success).lower()})

    async def pay(self, created: SessionCreated, number: str = PAYS) -> None:
        response = await self.confirm(created, number)
        assert response.get("status") == "succeeded", response

    async def decline(self, created: SessionCreated) -> None:
        response = await self.confirm(created, DECLINED)
        assert response["error"]["code"] == "card_declined", response

    async def decide(self, refund_reference: str, status: str) -> None:
        url = f"{self.url}/_sandbox/refunds/{refund_reference}"
        async with self.http.post(url, json={"status": status}) as answer:
            assert answer.status == 200, await answer.text()

    async def leave(self, created: SessionCreated) -> dict[str, Any]:
        """Leave the bank's page without paying."""
        return await self._ask("leave", _whose(created))

    async def refund_in_dashboard(self, intent_id: str, amount: int | None = None) -> str:
        """Refund a payment in the Dashboard as the account's owner; return the refund's id."""
        part = {} if amount is None else {"amount": amount}
        return (await self._sandbox(f"intents/{intent_id}/refund", part))["id"]

    async def cancel_in_dashboard(self, intent_id: str) -> None:
        await self._sandbox(f"intents/{intent_id}/cancel", {})

    async def warn_of_fraud(self, intent_id: str) -> str:
        """Report fraud as the card's issuer; return the warning's id."""
        return (await self._sandbox("fraud_warnings", {"payment_intent": intent_id}))["id"]

    async def _sandbox(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        async with self.http.post(f"{self.url}/_sandbox/{path}", json=body) as answer:
            assert answer.status == 200, await answer.text()
            return await answer.json()

    async def dispute(self, intent_id: str) -> str:
        """Dispute a payment as the buyer's bank; return the dispute's id."""
        url = f"{self.url}/_sandbox/disputes"
        async with self.http.post(url, json={"payment_intent": intent_id}) as answer:
            assert answer.status == 200, await answer.text()
            return (await answer.json())["id"]

    async def decide_dispute(self, dispute_id: str, status: str) -> None:
        url = f"{self.url}/_sandbox/disputes/{dispute_id}"
        async with self.http.post(url, json={"status": status}) as answer:
            assert answer.status == 200, await answer.text()

    async def listen(self, url: str, secret: str) -> None:
        """Set the URL to which events are sent."""
        request = {"url": url, "secret": secret}
        async with self.http.put(f"{self.url}/_sandbox/webhook", json=request) as answer:
            assert answer.status == 200, await answer.text()

    async def _ask(self, path: str, body: dict[str, str]) -> dict[str, Any]:
        async with self.http.post(f"{self.url}/element/{path}", json=body) as answer:
            return await answer.json()


def _whose(created: SessionCreated) -> dict[str, str]:
    card = created.next_action["embedded_card"]
    return {"key": card["publishable_key"], "client_secret": card["client_secret"]}
