"""Send shuffled, duplicated, re-encoded and late callbacks to two API processes.

Each payment gets five callbacks on average, signed like the simulator's callbacks. Every payment
must end correctly, whatever the order. Set `STORM_SEED` if you want to repeat an order, and
`STORM_PAYMENTS=2000` if you want to send ten thousand callbacks.
"""

import asyncio
import os
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from payintent.core import ids
from payintent.gateway_accounts.operations import AddAccount
from payintent.gateways.port import GatewayRefundState, RefundReport
from payintent.merchants import methods_store as method_store
from payintent.payments.model import Payment
from payintent.runtime.settings import Settings
from payintent.service import Service, open_service
from payintent_sandbox.emulators.simulator import callbacks as wire
from payintent_sandbox.emulators.simulator.model import (
    Account,
    Capture,
    Order,
    Refund,
    RefundOrder,
    RefundStatus,
    Session,
    Status,
)
from tests.payments.test_expire import inquire_all, sweep
from tests.refunds.refund_setup import process_due_refunds, request_refund, set_auto_refund
from tests.support.fakes import FakeGateway, captured
from tests.support.storm import api_process, many_files, storm
from tests.support.world import World, make_world

SHARE = int(os.environ.get("STORM_PAYMENTS", "400")) // 40
PAYMENTS = 40 * SHARE
CALLBACKS = 5 * PAYMENTS
SEED = int(os.environ.get("STORM_SEED") or random.SystemRandom().randrange(10**9))
BATCH = 1_000  # a storm has a time limit for all its responses
SOCKETS = 48
TRIES_MAX = 20
CONCURRENCY = 8
LATE_S = 60
TOTAL_MINOR = 159_000
_SOON = datetime.now(UTC) + timedelta(hours=1)
_BODY = "Content-Type: application/json\r\nContent-Length: {}\r\n\r\n"

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600), pytest.mark.full]


class Crash(BaseException):
    """Raised instead of a gateway response, as if the process had died during the request."""


class CrashingGateway(FakeGateway):
    """A gateway that creates sessions, and crashes the caller if `crashes` is True."""

    provider = "simulator"
    crashes = False

    async def create_session(self, account: Any, request: Any) -> Any:
        answer = await super().create_session(account, request)
        if self.crashes:
            raise Crash
        return answer


@dataclass
class Stage:
    """A merchant with two methods at a simulator account, and a foreign simulator account."""

    world: World
    crashing_gateway: CrashingGateway
    account: Account
    account_id: int
    foreign_account: Account
    foreign_account_id: int
    method_ids: list[int]

    async def open(self, *, crash: bool = False, **changes: Any) -> tuple[Payment, UUID]:
        """Create a payment and select its method; `crash` leaves the selection unfinished."""
        payment = await self.world.create(**changes)
        return payment, await self.select(payment, crash=crash)

    async def select(self, payment: Payment, number: int = 0, *, crash: bool = False) -> UUID:
        if not crash:
            return (await self.world.select(payment, self.method_ids[number])).session.id
        self.crashing_gateway.crashes = True
        with pytest.raises(Crash):
            await self.world.select(payment, self.method_ids[number])
        self.crashing_gateway.crashes = False
        [row] = await self.world.rows("SELECT id FROM session WHERE payment_id = $1", payment.id)
        return row["id"]


@dataclass(frozen=True)
class SignedCallback:
    """A callback to be sent, with its account and its encoding."""

    account: Account
    account_id: int
    event: dict[str, Any]
    encoding: int = 0
    flawed: bool = False

    def request(self) -> bytes:
        """Sign the callback now, and return the bytes of its request."""
        body = wire._encodings(self.event)[self.encoding]
        signed = wire._signed(self.account, self.event["id"], body, flawed=self.flawed)
        headers = "".join(
            f"{name}: {value}\r\n" for name, value in signed.items() if name != "content-type"
        )
        head = f"POST /v1/callbacks/simulator/{self.account_id} HTTP/1.1\r\nHost: pay.test\r\n"
        return (head + headers + _BODY.format(len(body))).encode() + body


@dataclass
class Ending:
    """A payment, its gateway events, and its allowed outcomes."""

    payment: Payment
    events: list[dict[str, Any]]
    allowed_ends: set[tuple[str, ...]]  # the status, then the kinds of its cases
    is_own_account: bool = True  # the callbacks come from its own account
    callbacks: list[SignedCallback] = field(default_factory=list)


def session_event(session_id: UUID, status: Status, capture: Capture | None = None) -> Any:
    """Return the simulator's report about a session."""
    order = Order(
        reference=ids.format_id(ids.SESSION, session_id),
        amount_minor=TOTAL_MINOR,
        currency="THB",
        description="",
        return_url="http://shop.test/",
        callback_url="http://pay.test/",
        expires_at=_SOON,
    )
    session = Session(
        id=f"ps_{session_id.hex}",
        account=Account(api_key="x", signing_secret="x"),
        order=order,
        pay_url="http://gateway.test/pay",
        status=status,
        capture=capture,
        decline_code="card_declined" if status is Status.DECLINED else None,
    )
    return wire._event(f"session.{status}") | {"session": session.view()}


def paid_event(session_id: UUID, amount_minor: int = TOTAL_MINOR, name: str = "a") -> Any:
    capture = Capture(
        id=f"cap_{session_id.hex}{name}", amount_minor=amount_minor, currency="THB", at=_SOON
    )
    return session_event(session_id, Status.PAID, capture)


def refund_event(refund_id: UUID, capture: str, status: RefundStatus) -> Any:
    order = RefundOrder(
        reference=ids.format_id(ids.REFUND, refund_id),
        capture=capture,
        amount_minor=TOTAL_MINOR,
        currency="THB",
        callback_url="http://pay.test/",
    )
    account = Account(api_key="x", signing_secret="x")
    refund = Refund(id=f"re_{refund_id.hex}", account=account, order=order, status=status)
    return wire._event(f"refund.{status}") | {"refund": refund.view()}


# Each function creates a kind of payment and returns its events and its allowed ends.


async def _create_paid(stage: Stage) -> Ending:
    payment, session_id = await stage.open()
    return Ending(payment, [paid_event(session_id), paid_event(session_id)], {("PAID",)})


async def _create_declined(stage: Stage) -> Ending:
    payment, session_id = await stage.open()
    events = [session_event(session_id, Status.DECLINED) for _ in range(2)]
    return Ending(payment, events, {("FAILED",)})


async def _create_cancelled(stage: Stage) -> Ending:
    payment, session_id = await stage.open()
    return Ending(payment, [session_event(session_id, Status.CANCELLED)], {("PROCESSING",)})


async def _create_double_paid(stage: Stage) -> Ending:
    payment, session_id = await stage.open()
    events = [paid_event(session_id), paid_event(session_id, name="b")]
    return Ending(payment, events, {("PAID", "DOUBLE_PAYMENT")})


async def _create_wrong_amount(stage: Stage) -> Ending:
    payment, session_id = await stage.open()
    return Ending(
        payment, [paid_event(session_id, TOTAL_MINOR - 1)], {("FAILED", "AMOUNT_MISMATCH")}
    )


async def _create_paid_after_change(stage: Stage) -> Ending:
    payment, old_session_id = await stage.open()
    session_id = await stage.select(payment, 1)
    events = [
        paid_event(old_session_id),
        session_event(old_session_id, Status.DECLINED),
        paid_event(session_id),
    ]
    return Ending(payment, events, {("PAID", "ORPHAN_CAPTURE")})


async def _create_declined_after_change(stage: Stage) -> Ending:
    payment, old_session_id = await stage.open()
    session_id = await stage.select(payment, 1)
    events = [
        session_event(old_session_id, Status.DECLINED),
        session_event(session_id, Status.DECLINED),
    ]
    return Ending(payment, events, {("FAILED",)})


async def _create_paid_before_response(stage: Stage) -> Ending:
    payment, session_id = await stage.open(crash=True)
    return Ending(payment, [paid_event(session_id)], {("PAID",)})


async def _create_paid_late(stage: Stage) -> Ending:
    payment, session_id = await stage.open(expires_in_s=LATE_S)
    return Ending(payment, [paid_event(session_id)], {("EXPIRED", "LATE_PAYMENT")})


async def _create_contradictory(stage: Stage) -> Ending:
    """The first event decides the status. If it is the decline, the capture opens a case."""
    payment, session_id = await stage.open()
    events = [paid_event(session_id), session_event(session_id, Status.DECLINED)]
    return Ending(payment, events, {("PAID",), ("FAILED", "LATE_PAYMENT")})


async def _create_foreign(stage: Stage) -> Ending:
    payment, session_id = await stage.open()
    return Ending(payment, [paid_event(session_id)], {("PROCESSING",)}, is_own_account=False)


async def _create_refunded(stage: Stage) -> Ending:
    payment, session_id = await stage.open()
    capture = f"cap_{session_id.hex}a"
    exact = captured(TOTAL_MINOR, reference=capture)
    payment = await stage.world.report(payment, session_id, exact)
    refund = await request_refund(stage.world, payment)
    events = [refund_event(refund.id, capture, RefundStatus.SUCCEEDED) for _ in range(2)]
    return Ending(payment, [*events, paid_event(session_id)], {("REFUNDED",)})


KINDS: dict[Callable[[Stage], Awaitable[Ending]], int] = {
    _create_paid: 10 * SHARE,
    _create_declined: 4 * SHARE,
    _create_cancelled: 2 * SHARE,
    _create_double_paid: 4 * SHARE,
    _create_wrong_amount: 3 * SHARE,
    _create_paid_after_change: 4 * SHARE,
    _create_declined_after_change: 2 * SHARE,
    _create_paid_before_response: 2 * SHARE,
    _create_paid_late: 2 * SHARE,
    _create_contradictory: 3 * SHARE,
    _create_foreign: SHARE,
    _create_refunded: 3 * SHARE,
}
EVENTS = {"PAID": "completed", "REFUNDED": "completed", "FAILED": "failed", "EXPIRED": "expired"}


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Settings without a limit on buyer-triggered gateway calls."""
    return settings.model_copy(update={"buyer_calls_per_s": 0})


@pytest.fixture
def crashing_gateway() -> CrashingGateway:
    return CrashingGateway()


@pytest.fixture
async def service(
    settings: Settings, gateway: FakeGateway, crashing_gateway: CrashingGateway
) -> AsyncIterator[Service]:
    service = await open_service(settings, {"fake": gateway, "simulator": crashing_gateway})
    yield service
    await service.close()


@pytest.fixture
async def stage(service: Service, gateway: FakeGateway, crashing_gateway: CrashingGateway) -> Stage:
    world = await make_world(service, gateway)
    await set_auto_refund(world, on=False)
    accounts = []
    for name in ("ours", "theirs"):
        account = Account(api_key=f"key-{name}", signing_secret=f"secret-{name}")
        added = await world.perform(
            AddAccount(
                provider="simulator",
                base_url=f"http://{name}.test",
                credentials={"api_key": account.api_key, "signing_secret": account.signing_secret},
            )
        )
        accounts.append((account, added.id))
    [(account, account_id), (foreign_account, foreign_account_id)] = accounts
    method_ids = [await _add_method(world, account_id, position) for position in (10, 11)]
    return Stage(
        world,
        crashing_gateway,
        account,
        account_id,
        foreign_account,
        foreign_account_id,
        method_ids,
    )


async def _add_method(world: World, account_id: int, position: int) -> int:
    async with world.database.transaction() as tx:
        method = method_store.NewPaymentMethod(kind="card", label="Card", currencies=("THB",))
        return await method_store.add(tx, world.merchant_id, account_id, method, position)


@pytest.fixture
def ports(settings: Settings, stage: Stage, tmp_path: Path) -> Iterator[list[int]]:
    del stage  # the stage must be in the database before the processes start
    with many_files(), ExitStack() as stack:
        yield [stack.enter_context(api_process(settings, tmp_path)) for _ in range(2)]


async def create_all(stage: Stage) -> list[Ending]:
    """Create all payments. The late payments expire before the rest are created."""
    stage.crashing_gateway.answer_refund = RefundReport(state=GatewayRefundState.PENDING)
    endings = await create_kind(stage, _create_paid_late, CONCURRENCY)
    await stage.world.move_clock(LATE_S + 1)
    while await stage.world.rows("SELECT 1 FROM payment WHERE status <> 'EXPIRED' LIMIT 1"):
        await sweep(stage.world)
        await inquire_all(stage.world)
    for kind in (
        item for item in KINDS if item not in (_create_paid_late, _create_paid_before_response)
    ):
        endings += await create_kind(stage, kind, CONCURRENCY)
    # A crash must not affect concurrent gateway calls.
    endings += await create_kind(stage, _create_paid_before_response, 1)
    while await process_due_refunds(stage.world):
        pass
    return endings


async def create_kind(stage: Stage, kind: Any, concurrency: int) -> list[Ending]:
    """Create all payments of a kind."""
    limit = asyncio.Semaphore(concurrency)

    async def make() -> Ending:
        async with limit:
            return await kind(stage)

    return await asyncio.gather(*(make() for _ in range(KINDS[kind])))


def add_callbacks(stage: Stage, ending: Ending, rng: random.Random) -> None:
    """Add a callback for each of a payment's events, and sometimes a badly signed callback."""
    account = (
        (stage.account, stage.account_id)
        if ending.is_own_account
        else (stage.foreign_account, stage.foreign_account_id)
    )
    for event in ending.events:
        ending.callbacks.append(SignedCallback(*account, event))
    if rng.random() < 0.05:
        ending.callbacks.append(SignedCallback(*account, ending.events[0], flawed=True))


def shuffle_callbacks(
    stage: Stage, endings: list[Ending], rng: random.Random
) -> list[SignedCallback]:
    """Return all callbacks in random order, with enough duplicates in random encodings."""
    for ending in endings:
        add_callbacks(stage, ending, rng)
    unknown_callbacks = [
        SignedCallback(stage.account, stage.account_id, paid_event(uuid4())) for _ in range(SHARE)
    ]
    callbacks = [item for ending in endings for item in ending.callbacks] + unknown_callbacks
    genuine = [item for item in callbacks if not item.flawed]
    repeated = rng.choices(genuine, k=CALLBACKS - len(callbacks))
    callbacks += [
        SignedCallback(item.account, item.account_id, item.event, encoding=rng.randrange(3))
        for item in repeated
    ]
    rng.shuffle(callbacks)
    return callbacks


async def send(ports: list[int], callbacks: list[SignedCallback]) -> Counter[int]:
    """Send callbacks, and repeat a callback if its response is 409, as gateways do."""
    answers: Counter[int] = Counter()
    for start in range(0, len(callbacks), BATCH):
        remaining = callbacks[start : start + BATCH]
        for _ in range(TRIES_MAX):
            requests = [(item, item.request()) for item in remaining]
            statuses = await _send_batch(ports, requests)
            answers += Counter(statuses)
            conflicting = [
                callback
                for callback, status in zip(remaining, statuses, strict=True)
                if status == 409
            ]
            remaining = conflicting
            if not remaining:
                break
        assert not remaining
    return answers


async def _send_batch(ports: list[int], batch: list[tuple[SignedCallback, bytes]]) -> list[int]:
    """Send all requests over this many sockets; return the statuses in request order."""
    requests = [request for _, request in batch]
    count = min(len(requests), SOCKETS)
    responses = iter(await storm(ports, requests, SOCKETS))
    statuses = [0] * len(requests)
    for first in range(count):
        for index in range(first, len(requests), count):
            statuses[index] = next(responses).status
    return statuses


async def test_payments_end_in_a_correct_state_for_any_order_of_callbacks(
    stage: Stage, ports: list[int]
) -> None:
    print(f"STORM_SEED={SEED}")
    rng = random.Random(SEED)
    assert sum(KINDS.values()) == PAYMENTS
    endings = await create_all(stage)
    callbacks = shuffle_callbacks(stage, endings, rng)
    assert len(callbacks) == CALLBACKS

    answers = await send(ports, callbacks)

    flawed = sum(item.flawed for item in callbacks)
    assert answers.keys() <= {200, 401, 409}, answers
    assert (answers[200], answers[401]) == (CALLBACKS - flawed, flawed)
    await check_payments(stage.world, endings)
    await check_captures(stage.world)


async def check_payments(world: World, endings: list[Ending]) -> None:
    rows = await world.rows(
        """
        SELECT p.id, p.status, p.failure_reason,
            ARRAY(SELECT m.kind FROM money_case m WHERE m.payment_id = p.id ORDER BY 1) AS cases,
            ARRAY(SELECT e.type FROM event e WHERE e.payment_id = p.id) AS events
        FROM payment p
        """
    )
    assert len(rows) == PAYMENTS
    rows_by_id = {row["id"]: row for row in rows}
    wrong = []
    for ending in endings:
        row = rows_by_id[ending.payment.id]
        expected_events = [f"payment.{EVENTS[row['status']]}"] if row["status"] in EVENTS else []
        if (row["status"], *row["cases"]) not in ending.allowed_ends or row[
            "events"
        ] != expected_events:
            wrong.append((ending.allowed_ends, dict(row)))
    assert wrong == []


async def check_captures(world: World) -> None:
    """Check that each capture is either credited or assigned to a case, and counted once."""
    [row] = await world.rows(
        """
        SELECT count(*) FILTER (WHERE (m.id IS NULL) <> c.credited) AS homeless,
            count(*) - count(DISTINCT c.id) AS doubled,
            count(*) FILTER (WHERE c.credited) AS credited
        FROM capture c
        LEFT JOIN money_case m ON m.capture_id = c.id
        """
    )
    assert (row["homeless"], row["doubled"]) == (0, 0)
    [paid_for] = await world.rows("SELECT count(*) AS n FROM payment WHERE paid_at IS NOT NULL")
    assert row["credited"] == paid_for["n"]
    [refunds] = await world.rows(
        """
        SELECT sum(refunded_amount) AS refunded, sum(reserved_amount) AS reserved,
            (SELECT sum(amount) FROM refund WHERE status = 'SUCCEEDED') AS given
        FROM payment
        """
    )
    assert refunds["refunded"] == refunds["given"] == KINDS[_create_refunded] * Decimal("1590.00")
    assert refunds["reserved"] == 0
    [waiting] = await world.rows("SELECT count(*) AS n FROM callback WHERE applied_at IS NULL")
    assert waiting["n"] == SHARE + KINDS[_create_foreign], "unknown references are stored for a day"
