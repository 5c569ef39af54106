"""A payment with the gateway of an installed package, found by its entry point."""

import sys
from collections.abc import Iterator
from importlib import invalidate_caches
from pathlib import Path
from typing import Any
from uuid import uuid4

import aiohttp
import pytest

from payintent.app import build_app
from payintent.gateway_accounts.operations import AddAccount
from payintent.http.server import make_server
from payintent.merchants.methods_operations import AddPaymentMethod
from payintent.merchants.operations import CreateMerchant
from payintent.runtime.settings import Settings
from payintent.service import open_service
from tests.sandbox.simulator.simulator_setup import KEY, SECRET, running_simulator
from tests.support.event_loop_server import listening
from tests.support.example_package import MODULE, lay_out_example
from tests.support.ports import free_port
from tests.support.timeouts import wait_until
from tests.support.world import ACTOR

_CARD = "4242424242424242"


@pytest.fixture
def installed_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Add the package in docs/contribute/add-a-gateway.md to the import path."""
    monkeypatch.syspath_prepend(str(lay_out_example(tmp_path)))
    invalidate_caches()
    yield
    sys.modules.pop(MODULE, None)


@pytest.mark.usefixtures("installed_package")
async def test_a_buyer_pays_with_the_gateway_of_an_installed_package(settings: Settings) -> None:
    port = free_port()
    base = f"http://127.0.0.1:{port}/v1"
    service = await open_service(settings.model_copy(update={"api_base": base}))
    app = build_app(service.settings, lambda _: _return_service(service))
    with running_simulator() as gateway_url:
        merchant = await _create_merchant(service, gateway_url)
        async with (
            listening(make_server(app, service.settings, "127.0.0.1", port)),
            aiohttp.ClientSession() as client,
        ):
            headers = {"Authorization": f"Bearer {merchant}", "Idempotency-Key": str(uuid4())}
            order = {"currency": "THB", "amount": "1590.00", "payer_uid": "buyer-1"}
            payment = await _send(client, "POST", f"{base}/payments", json=order, headers=headers)
            checkout = f"{base}/checkout/{payment['checkout_id']}"
            [quote] = (await _send(client, "GET", f"{checkout}/quotes"))["quotes"]
            selection = {
                "payment_method_id": quote["payment_method_id"],
            }
            selected = await _send(client, "POST", f"{checkout}/quotes", json=selection)
            assert selected["next_action"]["type"] == "redirect", selected
            url = selected["next_action"]["redirect"]["url"]
            assert url.startswith(gateway_url)
            async with client.post(url, data={"card": _CARD}, allow_redirects=False) as response:
                assert response.status == 303, await response.text()

            async def status() -> bool:
                stored = await _send(
                    client, "GET", f"{base}/payments/{payment['id']}", headers=headers
                )
                return stored["status"] == "PAID"

            await wait_until(status, "the callback of the gateway makes the payment PAID")
            app.on_stop()


async def _return_service(service: Any) -> Any:
    return service


async def _create_merchant(service: Any, gateway_url: str) -> str:
    """Create a merchant with a card method at the package's gateway; return its API key."""
    credentials = {"api_key": KEY, "signing_secret": SECRET}
    account = AddAccount(provider="example", base_url=gateway_url, credentials=credentials)
    account_id = (await service.run_operation(account, ACTOR)).id
    merchant = await service.run_operation(CreateMerchant(name="Nimbus Books"), ACTOR)
    method = AddPaymentMethod(
        merchant_id=merchant.merchant.id,
        account_id=account_id,
        kind="redirect",
        label="Example Pay",
        currencies=["THB"],
    )
    await service.run_operation(method, ACTOR)
    return merchant.api_key


async def _send(client: aiohttp.ClientSession, method: str, url: str, **options: Any) -> Any:
    async with client.request(method, url, **options) as response:
        body = await response.json()
        assert response.status < 300, body
        return body
