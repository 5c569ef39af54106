"""Test payments, webhooks and refunds with the database roles in docs/operate/install.md."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import aiohttp
import asyncpg
import pytest

from payintent.gateway_accounts.operations import AddAccount
from payintent.merchants.operations import CreatedMerchant, CreateMerchant
from payintent.runtime.settings import Settings
from payintent.service import open_service
from tests.e2e.drill import command, variables_of
from tests.e2e.merchant import APPROVED, Receiver
from tests.e2e.test_outage import is_well, process
from tests.support.ports import free_port
from tests.support.roles import OWNER, database_with_roles
from tests.support.timeouts import wait_until
from tests.support.world import ACTOR

pytestmark = [pytest.mark.e2e, pytest.mark.full]

START_S = 60.0
KEY, SECRET = "sim-key", "sim-secret"


class Scene:
    """A service with a database role for each process, and its merchant."""

    def __init__(
        self, urls: dict[str, str], settings: Settings, folder: Path, receiver: Receiver
    ) -> None:
        self.urls = urls
        self.settings = settings
        self.folder = folder
        self.receiver = receiver
        self.simulator = f"http://127.0.0.1:{free_port()}"
        self.http: aiohttp.ClientSession
        self.merchant: CreatedMerchant

    def as_role(self, role: str) -> Settings:
        return self.settings.model_copy(update={"database_url": self.urls[role]})

    async def call(self, method: str, path: str, body: Any = None) -> Any:
        headers = {
            "Authorization": f"Bearer {self.merchant.api_key}",
            "Idempotency-Key": str(uuid4()),
        }
        url = self.settings.api_base + path
        async with self.http.request(method, url, json=body, headers=headers) as answer:
            result = await answer.json()
            assert answer.status < 300, result
            return result

    async def create_merchant(self) -> None:
        """Add an account and a merchant, as an operator does with the CLI."""
        service = await open_service(self.as_role("payintent_api"))
        try:
            credentials = {"api_key": KEY, "signing_secret": SECRET}
            account = AddAccount(
                provider="simulator", base_url=self.simulator, credentials=credentials
            )
            await service.run_operation(account, ACTOR)
            merchant = CreateMerchant(
                name="Paper Lantern", callback_url=self.receiver.url, methods="all"
            )
            self.merchant = await service.run_operation(merchant, ACTOR)
        finally:
            await service.close()
        self.receiver.secret = self.merchant.callback_secret

    async def move_clock(self, seconds: int) -> None:
        """Advance the clock with the owner role, which the other roles cannot do."""
        connection = await asyncpg.connect(self.urls[OWNER])
        await connection.execute(
            "CREATE OR REPLACE FUNCTION clock() RETURNS timestamptz LANGUAGE sql STABLE RETURN "
            f"date_trunc('milliseconds', statement_timestamp()) + interval '{seconds} s'"
        )
        await connection.close()


@pytest.fixture
async def scene(tmp_path: Path, server_url: str, settings: Settings) -> AsyncIterator[Scene]:
    port = free_port()
    receiver = Receiver()
    async with AsyncExitStack() as stack:
        urls = await stack.enter_async_context(database_with_roles(server_url))
        changes = {"api_base": f"http://127.0.0.1:{port}/v1"}
        scene = Scene(urls, settings.model_copy(update=changes), tmp_path, receiver)
        await receiver.start()
        stack.push_async_callback(receiver.stop)
        await scene.create_merchant()
        scene.http = await stack.enter_async_context(aiohttp.ClientSession())
        simulator = ["--port", scene.simulator.rpartition(":")[2], "--public-url", scene.simulator]
        accounts = json.dumps([{"api_key": KEY, "signing_secret": SECRET}])
        for name, words, environment in (
            (
                "simulator",
                ["payintent_sandbox.emulators.simulator", *simulator],
                {"SIM_ACCOUNTS": accounts},
            ),
            (
                "api",
                ["payintent", "api", "--processes", "1", "--port", str(port)],
                variables_of(scene.as_role("payintent_api")),
            ),
            (
                "worker",
                ["payintent", "worker", "--processes", "1"],
                variables_of(scene.as_role("payintent_worker")),
            ),
        ):
            stack.enter_context(process(tmp_path, name, words, environment))
        for url in (f"{scene.simulator}/healthz", f"http://127.0.0.1:{port}/readyz"):
            await wait_until(lambda url=url: is_well(scene.http, url), f"{url} answers", START_S)
        yield scene


async def test_processes_with_these_roles_handle_payments_webhooks_and_refunds(
    scene: Scene,
) -> None:
    order = {"currency": "USD", "amount": "49.90", "payer_uid": "buyer-1", "expires_in": 3600}
    paid, unpaid = [await scene.call("POST", "/payments", order) for _ in range(2)]
    path = f"/checkout/{paid['checkout_id']}/quotes"
    [quote, *_] = (await scene.call("GET", path))["quotes"]
    selection = await scene.call("POST", path, {"payment_method_id": quote["payment_method_id"]})
    page = selection["next_action"]["redirect"]["url"]
    async with scene.http.post(page, data={"card": APPROVED}, allow_redirects=False) as answer:
        assert answer.status == 303
    await wait_until(
        lambda: _has_received(scene, {paid["id"]: "payment.completed"}),
        "the shop receives the webhook",
    )

    refund = await scene.call("POST", f"/payments/{paid['id']}/refunds", {"amount": "9.90"})
    await wait_until(lambda: _is_refunded(scene, refund["id"]), "the refund succeeds")

    await scene.move_clock(7200)
    all_events = {paid["id"]: "payment.completed", unpaid["id"]: "payment.expired"}
    await wait_until(lambda: _has_received(scene, all_events), "the unpaid payment expires")

    [entry, *_] = json.loads(_run_command(scene, "payintent_api", "audit", "list", "--json"))
    assert entry["action"] == "merchant.create"
    logs = "".join((scene.folder / f"{name}.log").read_text() for name in ("api", "worker"))
    assert "permission denied" not in logs
    assert "_failed" not in logs
    assert '"event": "bug"' not in logs


async def _has_received(scene: Scene, events: dict[str, str]) -> bool:
    return {delivery.payment_id: delivery.type for delivery in scene.receiver.deliveries} == events


async def _is_refunded(scene: Scene, refund_id: str) -> bool:
    refund = await scene.call("GET", f"/refunds/{refund_id}")
    return refund["status"] == "SUCCEEDED"


def _run_command(scene: Scene, role: str, *words: str) -> str:
    result = command(scene.as_role(role), *words)
    assert result.returncode == 0, result.stderr
    return result.stdout
