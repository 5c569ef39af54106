"""Gateway requests over real connections: only the request and the result are recorded."""

import asyncio
import socket
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest
from asyncpg import CheckViolationError

from payintent.core import ids
from payintent.db.database import Database
from payintent.gateway_accounts import calls as gateway_calls
from payintent.gateway_accounts.accounts import GatewayAccounts
from payintent.gateway_accounts.calls import (
    BUFFERED_CALLS_MAX,
    DROPPED_CALLS,
    FailedGatewayCall,
    GatewayCall,
    GatewayCallLog,
    GatewayRequestKind,
)
from payintent.gateway_accounts.providers_operations import ListGatewayErrors
from payintent.gateways.http_client import GatewayHttpClient
from payintent.gateways.port import (
    GatewayRefundState,
    GatewaySessionRef,
    NotContacted,
    OutcomeUnknown,
    RefundReport,
    SessionRejected,
)
from payintent.gateways.simulator import SimulatorGateway
from payintent.payment_history.operations import ShowPayment
from payintent.payments.model import Payment
from payintent.runtime.settings import Settings
from payintent.service import open_service
from payintent.worker import run_loops
from tests.gateways.raw_server import reply, serve_responses
from tests.support.fakes import FakeGateway
from tests.support.world import World

SECRET = "a-secret-of-the-account"
BODY = b'{"error": "no such thing", "card": "4242424242424242"}'


@pytest.fixture
async def accounts(world: World) -> AsyncIterator[GatewayAccounts]:
    """The world's accounts, whose gateway is called over HTTP."""
    http = GatewayHttpClient(timeout_s=5, response_bytes_max=1_000)
    service = world.service
    gateways = {"fake": SimulatorGateway(http)}
    yield GatewayAccounts(service.database, service.encryption, gateways)
    await http.close()


def about(payment: Payment, account_id: int) -> GatewayCall:
    return GatewayCall(
        account_id=account_id,
        provider="fake",
        kind=GatewayRequestKind.INQUIRE,
        subject_id=uuid4(),
        payment_id=payment.id,
    )


async def ask(world: World, accounts: GatewayAccounts, payment: Payment, url: str) -> int:
    """Send an inquiry from a new account with this URL; return the account's id."""
    account_id = await world.add_account(url, api_key=SECRET, signing_secret=SECRET)
    call = about(payment, account_id)
    ref = GatewaySessionRef(
        session_id=call.subject_id,
        reference=None,
        amount_minor=159_000,
        currency="THB",
        opened_at=payment.created_at,
    )
    await accounts.call(call, lambda gateway, account: gateway.inquire(account, ref))
    return account_id


async def errors(world: World, **narrowed: int) -> list[FailedGatewayCall]:
    return await world.perform(ListGatewayErrors(**narrowed))


@pytest.mark.parametrize(
    ("status", "outcome"),
    [("429 Too Many Requests", "throttled"), ("503 Service Unavailable", "unknown")],
)
async def test_an_error_response_is_listed_with_its_status_but_without_its_body(
    world: World, accounts: GatewayAccounts, status: str, outcome: str
) -> None:
    payment = await world.create()
    async with serve_responses(reply(status, BODY)) as url:
        account_id = await ask(world, accounts, payment, url)
    assert await world.rows("SELECT FROM gateway_call") == []  # not written during the request
    await accounts.log.flush()
    [error] = await errors(world, account_id=account_id)
    assert (error.request, error.outcome, error.payment_id) == ("inquire", outcome, _name(payment))
    assert status[:3] in error.detail
    assert error.duration_ms < 5_000
    [row] = await world.rows("SELECT gateway_call::text AS said FROM gateway_call")
    assert "4242424242424242" not in row["said"]
    assert SECRET not in row["said"]
    assert await errors(world, account_id=world.account_id) == []


async def test_an_unreachable_gateway_is_recorded_as_not_contacted(
    world: World, accounts: GatewayAccounts
) -> None:
    payment = await world.create()
    with (
        socket.socket() as bound
    ):  # bound but not listening, so that no other process gets the port
        bound.bind(("127.0.0.1", 0))
        await ask(world, accounts, payment, f"http://127.0.0.1:{bound.getsockname()[1]}")
    await accounts.log.flush()
    [error] = await errors(world)
    assert (error.outcome, error.provider) == ("not_contacted", "fake")


async def test_the_last_errors_of_each_account_are_listed_newest_first(
    world: World, accounts: GatewayAccounts
) -> None:
    payment = await world.create()
    async with serve_responses(reply("503 Service Unavailable", b"")) as url:
        first = await ask(world, accounts, payment, url)
        await accounts.log.flush()
        await world.move_clock(1)
        second = await ask(world, accounts, payment, url)
        await accounts.log.flush()
    assert [error.account_id for error in await errors(world)] == [second, first]
    accounts.log.add(about(payment, first), None, accounts.log.now_s())  # it responds
    await accounts.log.flush()
    assert len(await errors(world)) == 2
    await world.move_clock(2)
    accounts.log.add(about(payment, first), _declined(), accounts.log.now_s())
    await accounts.log.flush()
    assert [e.outcome for e in await errors(world, limit=1)] == ["rejected", "unknown"]


async def test_gateway_requests_appear_in_the_timeline_of_their_payment(world: World) -> None:
    payment, other = await world.create(), await world.create()
    await world.select(payment)
    await world.service.accounts.log.flush()
    result = await world.perform(ShowPayment(payment_id=_name(payment)))
    [call] = [entry for entry in result["timeline"] if entry.what == "gateway-call"]
    begun = f"create_session at account {world.account_id}: answered, "
    assert call.text.startswith(begun)
    result = await world.perform(ShowPayment(payment_id=_name(other)))
    assert [entry.what for entry in result["timeline"]] == ["created"]


async def test_a_request_that_the_gateway_throttled_is_not_listed_as_unsent(world: World) -> None:
    payment, log = await world.create(), world.service.accounts.log
    result = NotContacted(detail="status 429", is_throttled=True)
    log.add(about(payment, world.account_id), result, log.now_s())
    await log.flush()
    [error] = await errors(world)
    assert error.outcome == "throttled"


@pytest.mark.parametrize("padding", [0, 285])
async def test_card_numbers_are_masked_in_stored_gateway_messages(
    world: World, padding: int
) -> None:
    payment, log = await world.create(), world.service.accounts.log
    detail = f"{'-' * padding} card 4242 4242 4242 4242 is \0 refused"
    log.add(about(payment, world.account_id), SessionRejected(detail=detail), log.now_s())
    await log.flush()
    [error] = await errors(world)
    assert error.detail == f"{'-' * padding} card 424242******4242 is ? refused"[:300]


async def test_calls_beyond_the_limit_are_dropped_and_the_rest_are_written_in_one_statement(
    world: World,
) -> None:
    payment, statements = await world.create(), 0

    class Counting:
        async def fetch(self, query: str, *args: object) -> list[object]:
            nonlocal statements
            statements += 1
            return await world.rows(query, *args)

    log = GatewayCallLog(Counting())
    for _ in range(BUFFERED_CALLS_MAX + 10):
        log.add(about(payment, world.account_id), None, log.now_s())
    await log.flush()
    await log.flush()
    assert statements == 1
    [row] = await world.rows("SELECT count(*) AS n FROM gateway_call")
    assert row["n"] == BUFFERED_CALLS_MAX


async def test_requests_that_cannot_be_stored_are_dropped_and_counted(world: World) -> None:
    payment = await world.create()
    settings = world.service.settings.model_copy(update={"database_acquire_timeout_s": 0.1})
    closed = Database(settings)
    await closed.close()
    log, before = GatewayCallLog(closed), DROPPED_CALLS._value.get()
    for _ in range(3):
        log.add(about(payment, world.account_id), None, log.now_s())
    await log.flush()
    assert DROPPED_CALLS._value.get() == before + 3


async def test_old_requests_are_deleted_in_batches(world: World) -> None:
    payment, log = await world.create(), world.service.accounts.log
    for _ in range(3):
        log.add(about(payment, world.account_id), None, log.now_s())
    await log.flush()
    await world.move_clock(30 * 86_400 - 60)
    assert await gateway_calls.delete_old_calls(world.database, 30, 2) == 0
    await world.move_clock(30 * 86_400 + 60)
    deleted = [await gateway_calls.delete_old_calls(world.database, 30, 2) for _ in range(3)]
    assert deleted == [2, 1, 0]


def _declined() -> RefundReport:
    return RefundReport(state=GatewayRefundState.DECLINED, detail="too late")


def _name(payment: Payment) -> str:
    return ids.format_id(ids.PAYMENT, payment.id)


async def _kept(world: World) -> list[str]:
    rows = await world.rows("SELECT detail FROM gateway_call ORDER BY detail")
    return [row["detail"] for row in rows]


async def test_a_worker_writes_its_calls_every_second_and_when_it_stops(world: World) -> None:
    service = world.service
    payment = await world.create()
    call = about(payment, world.account_id)
    stop = asyncio.Event()
    running = asyncio.create_task(run_loops(service, stop))
    service.accounts.log.add(call, OutcomeUnknown(detail="first"), service.accounts.log.now_s())
    while await _kept(world) != ["first"]:
        await asyncio.sleep(0.01)
    service.accounts.log.add(call, OutcomeUnknown(detail="last"), service.accounts.log.now_s())
    stop.set()
    await running
    assert await _kept(world) == ["first", "last"]


async def test_a_failed_write_does_not_leave_a_connection_open(
    world: World, settings: Settings
) -> None:
    service = await open_service(settings, {"fake": FakeGateway()})
    payment = await world.create()
    call = about(payment, world.account_id)
    service.accounts.log.add(call, OutcomeUnknown(detail="x"), service.accounts.log.now_s())
    await world.rows("ALTER TABLE gateway_call ADD CHECK (false) NOT VALID")
    with pytest.raises(CheckViolationError):
        await service.close()
