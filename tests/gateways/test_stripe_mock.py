"""stripe-mock accepts every request of the adapter."""

from collections.abc import AsyncGenerator, Iterator
from datetime import timedelta
from typing import Any

import pytest

from payintent.gateways.http_client import GatewayHttpClient, HttpResponse
from payintent.gateways.port import GatewayAccount, OutcomeUnknown
from payintent.gateways.stripe.adapter import StripeGateway
from tests.gateways.scripted_stripe import NOW, order, ref, refund_request
from tests.support import stripe_mock
from tests.support.stripe import credentials
from tests.support.timeouts import PATIENCE_S

pytestmark = pytest.mark.long


class Recorder(GatewayHttpClient):
    """A client that records the responses."""

    def __init__(self) -> None:
        super().__init__(timeout_s=PATIENCE_S, response_bytes_max=1024 * 1024)
        self.responses: list[tuple[str, str, HttpResponse | OutcomeUnknown]] = []

    async def request(self, method: str, url: str, **rest: Any) -> HttpResponse | OutcomeUnknown:
        response = await super().request(method, url, **rest)
        self.responses.append((method, url, response))
        return response


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    program = stripe_mock.build()
    if program is None:
        pytest.skip("Go or its module proxy is not available")
    with stripe_mock.running(program) as url:
        yield url


@pytest.fixture
async def http() -> AsyncGenerator[Recorder]:
    http = Recorder()
    yield http
    await http.close()


@pytest.fixture
def account(url: str) -> GatewayAccount:
    keys = credentials() | {"secret_key": stripe_mock.SECRET_KEY}
    return GatewayAccount(id=1, provider="stripe", base_url=url, credentials=keys)


async def test_stripe_mock_accepts_every_request_of_the_adapter(
    http: Recorder, account: GatewayAccount
) -> None:
    gateway = StripeGateway(http, now=NOW.timestamp)
    request = order()
    await gateway.create_session(account, request)
    await gateway.inquire(account, ref(request))
    await gateway.close_session(account, ref(request))
    await gateway.inquire(account, ref(request, None))
    await gateway.refund(account, refund_request())
    await gateway.inquire_refund(account, refund_request())
    await gateway.check_account(account)
    await gateway.list_movements(account, NOW - timedelta(days=1), NOW, None)
    await gateway.sum_payout_fees(account, "po_1")
    for method, url, response in http.responses:
        assert isinstance(response, HttpResponse)
        assert response.status == 200, (method, url, response.body[:500])
    endpoints = {
        (method, url.removeprefix(account.base_url).partition("?")[0])
        for method, url, _ in http.responses
    }
    assert {("POST", "/v1/payment_intents"), ("POST", "/v1/refunds")} <= endpoints
    assert ("POST", "/v1/payment_intents/pi_1/cancel") in endpoints


async def test_stripe_mock_refuses_an_unknown_parameter(
    http: Recorder, account: GatewayAccount
) -> None:
    headers = {
        "Authorization": f"Bearer {stripe_mock.SECRET_KEY}",
        "Content-Type": "application/x-www-form-urlencoded",
    }
    body = b"amount=2000&currency=thb&excluded_methods[0]=konbini"
    url = f"{account.base_url}/v1/payment_intents"
    response = await http.request("POST", url, headers=headers, body=body)
    assert isinstance(response, HttpResponse)
    assert response.status == 400
