"""Five callbacks for each of many payments: shuffled, duplicated, reworded and late.

They are sent over real HTTP to two API processes, signed like the simulator's callbacks. In any
order, every payment must have the correct end. `STORM_SEED` repeats an order, and
`STORM_PAYMENTS=2000` selects the long form with ten thousand callbacks.
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
from tests.payments.test_expire import ask_all, sweep
from tests.refunds.refunding import asked, auto_refund, work
from tests.support.fakes import FakeGateway, captured
from tests.support.storm import api_process, many_files, storm
from tests.support.world import World, make_world

SHARE = int(os.environ.get("STORM_PAYMENTS", "400")) // 40
PAYMENTS = 40 * SHARE
CALLBACKS = 5 * PAYMENTS
SEED = int(os.environ.get("STORM_SEED") or random.SystemRandom().randrange(10**9))
BATCH = 1_000  # an answer is waited for as long as a storm's patience
SOCKETS = 48
TRIES_MAX = 20
AT_ONCE = 8
LATE_S = 60
TOTAL_MINOR = 159_000
_SOON = datetime.now(UTC) + timedelta(hours=1)
_BODY = "Content-Type: application/json\r\nContent-Length: {}\r\n\r\n"

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600), pytest.mark.full]


class Crash(BaseException):
    """The process dies during the gateway request."""


class Stand(FakeGateway):
    """The gateway for selections, which accepts them unless the process dies."""

    provider = "simulator"
    crashes = False

    async def create_session(self, account: Any, request: Any) -> Any:
        answer = await super().create_session(account, request)
        if self.crashes:
            raise Crash
        return answer


@dataclass
class Stage:
    """A merchant with two methods at one simulator account, and an account of another merchant."""

    world: World
    stand: Stand
    account: Account
    account_id: int
    other: Account
    other_id: int
    method_ids: list[int]

    async def open(self, *, crash: bool = False, **changes: Any) -> tuple[Payment, UUID]:
        """Create a payment and select its method; `crash` leaves the selection unfinished."""
        payment = await self.world.create(**changes)
        return payment, await self.select(payment, crash=crash)

    async def select(self, payment: Payment, number: int = 0, *, crash: bool = False) -> UUID:
        if not crash:
            return (await self.world.select(payment, self.method_ids[number])).session.id
        self.stand.crashes = True
        with pytest.raises(Crash):
            await self.world.select(payment, self.method_ids[number])
        self.stand.crashes = False
        [row] = await self.world.rows("SELECT id FROM session WHERE payment_id = $1", payment.id)
        return row["id"]


@dataclass(frozen=True)
class Told:
    """A callback to be sent: its payment and its wording."""

    account: Account
    account_id: int
    event: dict[str, Any]
    wording: int = 0
    flawed: bool = False

    def request(self) -> bytes:
        """Sign the callback now, and return the bytes of its request."""
        body = wire._encodings(self.event)[self.wording]
        signed = wire._signed(self.account, self.event["id"], body, flawed=self.flawed)
        headers = "".join(
            f"{name}: {value}\r\n" for name, value in signed.items() if name != "content-type"
        )
        head = f"POST /v1/callbacks/simulator/{self.account_id} HTTP/1.1\r\nHost: pay.test\r\n"
        return (head + headers + _BODY.format(len(body))).encode() + body


@dataclass
class Ending:
    """A payment, its events, and its possible ends."""

    payment: Payment
    tales: list[dict[str, Any]]  # events
    ends: set[tuple[str, ...]]  # status, then the kinds of its cases
    ours: bool = True  # told by its own account
    told: list[Told] = field(default_factory=list)


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


def paid(session_id: UUID, amount_minor: int = TOTAL_MINOR, name: str = "a") -> Any:
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


# Each kind of payment: how it is made, what is told of it, and where it must end.


async def _paid(stage: Stage) -> Ending:
    payment, session_id = await stage.open()
    return Ending(payment, [paid(session_id), paid(session_id)], {("PAID",)})


async def _declined(stage: Stage) -> Ending:
    payment, session_id = await stage.open()
    said = [session_event(session_id, Status.DECLINED) for _ in range(2)]
    return Ending(payment, said, {("FAILED",)})


async def _left(stage: Stage) -> Ending:
    payment, session_id = await stage.open()
    return Ending(payment, [session_event(session_id, Status.CANCELLED)], {("PROCESSING",)})


async def _twice(stage: Stage) -> Ending:
    payment, session_id = await stage.open()
    said = [paid(session_id), paid(session_id, name="b")]
    return Ending(payment, said, {("PAID", "DOUBLE_PAYMENT")})


async def _wrong(stage: Stage) -> Ending:
    payment, session_id = await stage.open()
    return Ending(payment, [paid(session_id, TOTAL_MINOR - 1)], {("FAILED", "AMOUNT_MISMATCH")})


async def _changed(stage: Stage) -> Ending:
    payment, left = await stage.open()
    session_id = await stage.select(payment, 1)
    said = [paid(left), session_event(left, Status.DECLINED), paid(session_id)]
    return Ending(payment, said, {("PAID", "ORPHAN_CAPTURE")})


async def _replaced(stage: Stage) -> Ending:
    payment, left = await stage.open()
    session_id = await stage.select(payment, 1)
    said = [session_event(left, Status.DECLINED), session_event(session_id, Status.DECLINED)]
    return Ending(payment, said, {("FAILED",)})


async def _early(stage: Stage) -> Ending:
    payment, session_id = await stage.open(crash=True)
    return Ending(payment, [paid(session_id)], {("PAID",)})


async def _late(stage: Stage) -> Ending:
    payment, session_id = await stage.open(expires_in_s=LATE_S)
    return Ending(payment, [paid(session_id)], {("EXPIRED", "LATE_PAYMENT")})


async def _torn(stage: Stage) -> Ending:
    """The first event ends it, and the money is assigned correctly in both cases."""
    payment, session_id = await stage.open()
    said = [paid(session_id), session_event(session_id, Status.DECLINED)]
    return Ending(payment, said, {("PAID",), ("FAILED", "LATE_PAYMENT")})


async def _foreign(stage: Stage) -> Ending:
    payment, session_id = await stage.open()
    return Ending(payment, [paid(session_id)], {("PROCESSING",)}, ours=False)


async def _given_back(stage: Stage) -> Ending:
    payment, session_id = await stage.open()
    capture = f"cap_{session_id.hex}a"
    exact = captured(TOTAL_MINOR, reference=capture)
    payment = await stage.world.report(payment, session_id, exact)
    refund = await asked(stage.world, payment)
    said = [refund_event(refund.id, capture, RefundStatus.SUCCEEDED) for _ in range(2)]
    return Ending(payment, [*said, paid(session_id)], {("REFUNDED",)})


KINDS: dict[Callable[[Stage], Awaitable[Ending]], int] = {
    _paid: 10 * SHARE,
    _declined: 4 * SHARE,
    _left: 2 * SHARE,
    _twice: 4 * SHARE,
    _wrong: 3 * SHARE,
    _changed: 4 * SHARE,
    _replaced: 2 * SHARE,
    _early: 2 * SHARE,
    _late: 2 * SHARE,
    _torn: 3 * SHARE,
    _foreign: SHARE,
    _given_back: 3 * SHARE,
}
EVENTS = {"PAID": "completed", "REFUNDED": "completed", "FAILED": "failed", "EXPIRED": "expired"}


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Settings without a limit of buyer-triggered gateway calls."""
    return settings.model_copy(update={"buyer_calls_per_s": 0})


@pytest.fixture
def stand() -> Stand:
    return Stand()


@pytest.fixture
async def service(settings: Settings, gateway: FakeGateway, stand: Stand) -> AsyncIterator[Service]:
    service = await open_service(settings, {"fake": gateway, "simulator": stand})
    yield service
    await service.close()


@pytest.fixture
async def stage(service: Service, gateway: FakeGateway, stand: Stand) -> Stage:
    world = await make_world(service, gateway)
    await auto_refund(world, on=False)
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
    [(account, account_id), (other, other_id)] = accounts
    method_ids = [await _add_method(world, account_id, position) for position in (10, 11)]
    return Stage(world, stand, account, account_id, other, other_id, method_ids)


async def _add_method(world: World, account_id: int, position: int) -> int:
    async with world.database.transaction() as tx:
        method = method_store.NewPaymentMethod(kind="card", label="Card", currencies=("THB",))
        return await method_store.add(tx, world.merchant_id, account_id, method, position)


@pytest.fixture
def ports(settings: Settings, stage: Stage, tmp_path: Path) -> Iterator[list[int]]:
    del stage  # it is in the database before the processes are
    with many_files(), ExitStack() as stack:
        yield [stack.enter_context(api_process(settings, tmp_path)) for _ in range(2)]


async def prepared(stage: Stage) -> list[Ending]:
    """Create all payments with the lifecycle. Late payments expire before the others."""
    stage.stand.answer_refund = RefundReport(state=GatewayRefundState.PENDING)
    found = await made(stage, _late, AT_ONCE)
    await stage.world.move_clock(LATE_S + 1)
    while await stage.world.rows("SELECT 1 FROM payment WHERE status <> 'EXPIRED' LIMIT 1"):
        await sweep(stage.world)
        await ask_all(stage.world)
    for kind in (item for item in KINDS if item not in (_late, _early)):
        found += await made(stage, kind, AT_ONCE)
    found += await made(stage, _early, 1)  # while processes die, nobody else asks the gateway
    while await work(stage.world):
        pass
    return found


async def made(stage: Stage, kind: Any, at_once: int) -> list[Ending]:
    """Create all payments of a kind."""
    limit = asyncio.Semaphore(at_once)

    async def make() -> Ending:
        async with limit:
            return await kind(stage)

    return await asyncio.gather(*(make() for _ in range(KINDS[kind])))


def tell(stage: Stage, ending: Ending, chance: random.Random) -> None:
    """Return a payment's events, each at least once, in some of its wordings."""
    account = (stage.account, stage.account_id) if ending.ours else (stage.other, stage.other_id)
    for event in ending.tales:
        ending.told.append(Told(*account, event))
    if chance.random() < 0.05:
        ending.told.append(Told(*account, ending.tales[0], flawed=True))


def everything(stage: Stage, endings: list[Ending], chance: random.Random) -> list[Told]:
    """Return all callbacks, duplicated until there are enough, and shuffled."""
    for ending in endings:
        tell(stage, ending, chance)
    nobodys = [Told(stage.account, stage.account_id, paid(uuid4())) for _ in range(SHARE)]
    told = [item for ending in endings for item in ending.told] + nobodys
    genuine = [item for item in told if not item.flawed]
    again = chance.choices(genuine, k=CALLBACKS - len(told))
    told += [
        Told(item.account, item.account_id, item.event, wording=chance.randrange(3))
        for item in again
    ]
    chance.shuffle(told)
    return told


async def send(ports: list[int], told: list[Told]) -> Counter[int]:
    """Send callbacks like gateways: repeat those whose response requests a retry."""
    answers: Counter[int] = Counter()
    for start in range(0, len(told), BATCH):
        left = told[start : start + BATCH]
        for _ in range(TRIES_MAX):
            sent = [(item, item.request()) for item in left]
            got = await _answers(ports, sent)
            answers += Counter(got)
            again = [one for one, status in zip(left, got, strict=True) if status == 409]
            left = again
            if not left:
                break
        assert not left
    return answers


async def _answers(ports: list[int], sent: list[tuple[Told, bytes]]) -> list[int]:
    """Send all requests over this many sockets; return the statuses in request order."""
    requests = [request for _, request in sent]
    count = min(len(requests), SOCKETS)
    came = iter(await storm(ports, requests, SOCKETS))
    found = [0] * len(requests)
    for first in range(count):
        for index in range(first, len(requests), count):
            found[index] = next(came).status
    return found


async def test_callbacks_in_any_order_end_in_the_states_that_follow_from_them(
    stage: Stage, ports: list[int]
) -> None:
    print(f"STORM_SEED={SEED}")
    chance = random.Random(SEED)
    assert sum(KINDS.values()) == PAYMENTS
    endings = await prepared(stage)
    told = everything(stage, endings, chance)
    assert len(told) == CALLBACKS

    answers = await send(ports, told)

    flawed = sum(item.flawed for item in told)
    assert answers.keys() <= {200, 401, 409}, answers
    assert (answers[200], answers[401]) == (CALLBACKS - flawed, flawed)
    await every_payment_is_where_it_must_be(stage.world, endings)
    await every_capture_has_its_place(stage.world)


async def every_payment_is_where_it_must_be(world: World, endings: list[Ending]) -> None:
    rows = await world.rows(
        """
        SELECT p.id, p.status, p.failure_reason,
            ARRAY(SELECT m.kind FROM money_case m WHERE m.payment_id = p.id ORDER BY 1) AS cases,
            ARRAY(SELECT e.type FROM event e WHERE e.payment_id = p.id) AS events
        FROM payment p
        """
    )
    assert len(rows) == PAYMENTS
    found = {row["id"]: row for row in rows}
    wrong = []
    for ending in endings:
        row = found[ending.payment.id]
        told = [f"payment.{EVENTS[row['status']]}"] if row["status"] in EVENTS else []
        if (row["status"], *row["cases"]) not in ending.ends or row["events"] != told:
            wrong.append((ending.ends, dict(row)))
    assert wrong == []


async def every_capture_has_its_place(world: World) -> None:
    """Each capture is credited or a separate case, and nothing is counted twice."""
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
    assert refunds["refunded"] == refunds["given"] == KINDS[_given_back] * Decimal("1590.00")
    assert refunds["reserved"] == 0
    [waiting] = await world.rows("SELECT count(*) AS n FROM callback WHERE applied_at IS NULL")
    assert waiting["n"] == SHARE + KINDS[_foreign], "whoever nobody knows is kept for a day"
