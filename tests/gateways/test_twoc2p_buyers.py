"""Buyers' actions on the 2C2P page affect only their own payments."""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Generator

import aiohttp
import pytest

from payintent.gateway_accounts.health import FAILURES_MAX
from payintent.gateway_accounts.operations import AddAccount
from payintent.gateways.http_client import GatewayHttpClient
from payintent.gateways.twoc2p.adapter import TwoC2pGateway
from payintent.gateways.twoc2p.messages import invoice_no
from payintent.merchants import methods_store as method_store
from payintent.payment_sessions.open_session import SelectedSession
from payintent.payments.model import Payment
from payintent.runtime.settings import Settings
from payintent.service import Service, open_service
from tests.conformance.faults import Fault, FaultProxy, faulty
from tests.payments.test_expire import inquire_all
from tests.refunds.refund_setup import (
    Books,
    process_due_refunds,
    read_books,
    read_refund,
    request_refund,
    set_auto_refund,
)
from tests.sandbox.twoc2p.emulator_setup import (
    APPROVED,
    BARE,
    MERCHANT,
    PAID_LATE,
    PAID_LESS,
    PAID_MORE,
    SECRET,
    Shop,
    pair,
    running_twoc2p,
)
from tests.support.fakes import FakeGateway
from tests.support.world import ACTOR, World

CREDENTIALS = {
    "merchant_id": MERCHANT,
    "secret_key": SECRET,
    "merchant_private_key": pair(MERCHANT)[0],
    "gateway_public_key": pair("gateway")[1],
    "utc_offset": "+08:00",
}


@pytest.fixture(scope="module")
def url() -> Generator[str]:
    with running_twoc2p() as url:
        yield url


@pytest.fixture
async def service(settings: Settings, gateway: FakeGateway) -> AsyncIterator[Service]:
    http = GatewayHttpClient(timeout_s=10, response_bytes_max=256 * 1024)
    service = await open_service(settings, {"fake": gateway, "2c2p": TwoC2pGateway(http)})
    yield service
    await service.close()
    await http.close()


@pytest.fixture
async def faults(url: str) -> AsyncGenerator[FaultProxy]:
    async with faulty(url) as faults:
        yield faults


@pytest.fixture
async def method(world: World, faults: FaultProxy) -> int:
    """Offer 2C2P's card method."""
    account = AddAccount(provider="2c2p", base_url=faults.url, credentials=CREDENTIALS)
    account_id = (await world.service.run_operation(account, ACTOR)).id
    payment_method = method_store.NewPaymentMethod(kind="card", label="2C2P", currencies=("THB",))
    async with world.service.database.transaction() as tx:
        return await method_store.add(tx, world.merchant_id, account_id, payment_method, 3)


@pytest.fixture
async def buyer(url: str) -> AsyncGenerator[Shop]:
    async with aiohttp.ClientSession() as http:
        yield Shop(http, url, f"{url}/healthz")


async def select(world: World, method: int) -> tuple[Payment, SelectedSession]:
    payment = await world.create(currency="THB")
    return payment, await world.select(payment, method, country="TH")


def page_url(selection: SelectedSession) -> str:
    assert selection.session.next_action is not None
    return json.loads(selection.session.next_action)["redirect"]["url"]


async def inquire(world: World) -> None:
    await world.rows("UPDATE session SET inquire_at = clock()")
    await inquire_all(world)


async def pay(world: World, method: int, buyer: Shop, card: str = APPROVED) -> tuple[Payment, str]:
    """Pay by card; return the payment and 2C2P's invoice."""
    payment, selection = await select(world, method)
    await buyer.press(page_url(selection), card=card)
    await inquire(world)
    return payment, invoice_no(selection.session.id)


async def test_cancellations_by_buyers_do_not_open_the_circuit_breaker(
    world: World, method: int, buyer: Shop
) -> None:
    for _ in range(FAILURES_MAX + 1):
        _, selection = await select(world, method)
        await buyer.press(page_url(selection), cancel="1")
        await inquire(world)
        session = await world.session(selection.session.id)
        assert (session["life"], session["outcome"]) == ("ended", "cancelled")
    assert await world.rows("SELECT 1 FROM gateway_outage") == []
    await select(world, method)


@pytest.mark.parametrize("card", [PAID_LESS, PAID_MORE, PAID_LATE])
async def test_a_payment_with_a_deviating_code_opens_a_case_and_is_not_auto_refunded(
    world: World, method: int, buyer: Shop, card: str
) -> None:
    await set_auto_refund(world, on=True)
    payment, _ = await pay(world, method, buyer, card)
    assert await world.status(payment) == "FAILED"
    assert await world.cases(payment) == ["AMOUNT_MISMATCH"]
    [case] = await world.rows("SELECT note FROM money_case")
    assert "response 501" in case["note"]
    assert await world.rows("SELECT 1 FROM refund") == []


async def test_an_inquiry_without_the_gateway_reference_completes_the_payment(
    world: World, method: int, buyer: Shop
) -> None:
    payment, _ = await pay(world, method, buyer, BARE)
    assert await world.status(payment) == "PAID"
    assert await world.cases(payment) == []


@pytest.mark.parametrize("fault", [Fault.CUT, Fault.STATUS_500])
async def test_an_unanswered_refund_with_the_amount_of_an_earlier_refund_is_made_once(
    world: World, method: int, buyer: Shop, faults: FaultProxy, fault: Fault
) -> None:
    """2C2P's list has only amounts and its own references, so the refund is sent again."""
    payment, invoice = await pay(world, method, buyer)
    first = await request_refund(world, payment, "100")
    await process_due_refunds(world)
    second = await request_refund(world, payment, "100")
    async with faults.fault(fault):
        await process_due_refunds(world)
    for _ in range(2):
        await world.rows("UPDATE refund SET next_at = clock() WHERE next_at IS NOT NULL")
        await process_due_refunds(world)
    assert await read_books(world, payment) == Books("PARTIALLY_REFUNDED", "200", "0", 20_000, 0)
    assert (await buyer.get_invoice(invoice))["refunded"] == "200.00"
    references = {(await read_refund(world, refund)).reference for refund in (first, second)}
    assert len(references) == 2
