"""The API and workers are killed during payments: nothing is lost or duplicated.

`KILL_PAYMENTS` and `KILL_SEEDS` (separated by commas) select the long form.
"""

import asyncio
import os
import random
import signal
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

import aiohttp
import pytest

from payintent.core import ids
from tests.e2e.conftest import NewMerchant
from tests.e2e.merchant import APPROVED, Delivery, Merchant, key_of, move_clock
from tests.e2e.sandbox import Sandbox
from tests.support.patience import PATIENCE_S, wait_until

PAYMENTS = int(os.environ.get("KILL_PAYMENTS", "120"))
SEEDS = [int(seed) for seed in os.environ.get("KILL_SEEDS", "1").split(",")]
KILLING_S = PAYMENTS / 16  # as long as buyers arrive
# The gateway tells of a capture six times in 756 s; the last of them must find us alive.
CHAINS = False
SIM_TIME_SCALE = int(756 / (KILLING_S + 5))
SLOW = "13.13"  # the gateway takes its time to open a session: processes die waiting for it
INQUIRY_LOOK_S = 10.0  # a poll of the worker and an answer of the gateway, on a busy machine
INQUIRY_HOURS_MAX = 9  # of the service's time
LEASES_S = 61  # of the service's time: all that dead processes had taken is free by then
RETRY_S = 0.2
DELIVERY_LOOK_S = 2.0
DELIVERY_MOVES_MAX = 20

DECLINED, UNTOLD, AFTER_CHANGE = "4000000000000002", "4000009900000046", "4000009900000053"

EVENTS = {
    "PAID": "payment.completed",
    "FAILED": "payment.failed",
    "EXPIRED": "payment.expired",
    "CANCELLED": "payment.cancelled",
}
#: What becomes of a payment of each kind, whatever dies meanwhile. `race` may end either way.
EXPECTED = {
    "pay": {"PAID"},
    "return": {"PAID"},
    "untold": {"PAID"},
    "decline": {"FAILED"},
    "cancel": {"CANCELLED"},
    "expire": {"EXPIRED"},
    "leave": {"EXPIRED"},
    "change": {"PAID"},
    "late": {"PAID"},
    "slow": {"PAID"},
    "race": {"PAID", "EXPIRED"},
}
#: What the simulator says of a payment's current session, and the only status that may follow.
FOLLOWS = {"paid": "PAID", "declined": "FAILED", "closed": "EXPIRED", "expired": "EXPIRED"}

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(60 + 3 * PATIENCE_S)]


@dataclass
class Ledger:
    """The test's knowledge: every acknowledged payment, and the responses."""

    kinds: dict[str, str] = field(default_factory=dict)  # by payment id
    answers: Counter[int] = field(default_factory=Counter)
    broken: int = 0  # connections without an answer


class Client:
    """Buyers and a merchant that repeat requests, with the same key, until they succeed."""

    def __init__(self, merchant: Merchant, ledger: Ledger) -> None:
        self.merchant = merchant
        self.ledger = ledger

    async def create(self, kind: str, **changes: Any) -> dict[str, Any]:
        body = {"currency": "USD", "amount": "49.90", "payer_uid": kind} | changes
        payment = await self.ask("POST", "/payments", body, str(uuid4()), good=201)
        assert payment["id"] not in self.ledger.kinds
        self.ledger.kinds[payment["id"]] = kind
        return payment

    async def cancel(self, payment: dict[str, Any]) -> None:
        await self.ask("POST", f"/payments/{payment['id']}/cancel", None, str(uuid4()))

    async def select(self, payment: dict[str, Any], number: int = 0) -> str | None:
        """Select a method; return None if the checkout has ended."""
        path = f"/checkout/{payment['checkout_id']}/quotes"
        known = await self.ask("GET", path, over=True)
        if known is None:
            return None
        body = {"payment_method_id": known["quotes"][number]["payment_method_id"]}
        selected = await self.ask("POST", path, body, over=True)
        return selected and selected["next_action"]["redirect"]["url"]

    async def pay(self, page: str, card: str) -> None:
        async with self.merchant.http.post(
            page, data={"card": card}, allow_redirects=False
        ) as answer:
            await answer.read()

    async def come_back(self, payment: dict[str, Any]) -> None:
        with suppress(aiohttp.ClientError, AssertionError):
            await self.merchant.come_back(payment)

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        key: str | None = None,
        *,
        good: int = 200,
        over: bool = False,
    ) -> Any:
        """Repeat a request until its response is not a request to retry."""
        while True:
            try:
                status, answer = await self.merchant.api(method, path, body, key)
            except (aiohttp.ClientError, TimeoutError):
                self.ledger.broken += 1
            else:
                self.ledger.answers[status] += 1
                if status == good:
                    return answer
                if over and answer["code"] in ("CHECKOUT_EXPIRED", "INVALID_CHECKOUT_STATE"):
                    return None
                assert status in (502, 503) or answer["code"] == "CONFLICT", answer
            await asyncio.sleep(RETRY_S)


async def live(client: Client, kind: str, chance: random.Random) -> None:
    """Run a payment from its creation to its buyer's last action."""
    if kind in ("expire", "leave", "race"):
        payment = await client.create(kind, expires_in=chance.randint(3, 5))
    else:
        payment = await client.create(kind, amount=SLOW if kind == "slow" else "49.90")
    if kind == "cancel":
        await client.cancel(payment)
    if kind in ("cancel", "expire"):
        return
    page = await client.select(payment)
    if kind in ("change", "late"):
        assert page is not None
        if kind == "late":
            await client.pay(page, AFTER_CHANGE)
        page = await client.select(payment, 1)
    if page is None or kind == "leave":
        return
    if kind == "race":
        await asyncio.sleep(chance.uniform(1, 5))
    await client.pay(page, {"decline": DECLINED, "untold": UNTOLD}.get(kind, APPROVED))
    if kind in ("return", "untold"):
        await client.come_back(payment)


async def kill(
    sandbox: Sandbox, http: aiohttp.ClientSession, name: str, chance: random.Random
) -> int:
    """Kill a process of the sandbox repeatedly. Its supervisor restarts it."""
    loop = asyncio.get_running_loop()
    kills, end = 0, loop.time() + KILLING_S
    while loop.time() < end:
        await asyncio.sleep(chance.uniform(0.2, 2.5))
        pid = await wait_until(lambda: sandbox.child(name), f"a running {name}")
        os.kill(pid, signal.SIGKILL)
        kills += 1
        await wait_until(lambda gone=pid: sandbox.child(name) not in (0, gone), f"another {name}")
        if name == "api":
            await wait_until(lambda: is_well(sandbox, http), "an API that answers")
    return kills


async def is_well(sandbox: Sandbox, http: aiohttp.ClientSession) -> bool:
    with suppress(aiohttp.ClientError):
        async with http.get(f"http://127.0.0.1:{sandbox.port_base}/readyz") as answer:
            return answer.status == 200
    return False


@pytest.fixture
async def merchant(new_merchant: NewMerchant) -> Merchant:
    """A merchant whose receiver sometimes fails."""
    made = await new_merchant()
    chance = random.Random(0)

    async def answer(_: Delivery) -> aiohttp.web.Response:
        await asyncio.sleep(chance.uniform(0, 0.5))  # so that workers die with some on the way
        return aiohttp.web.Response(status=500 if chance.random() < 0.05 else 200)

    made.receiver.answer = answer
    slow = {"match": {"amount": SLOW}, "action": "hang35s"}
    await made.simulator("PUT", "/_sim/rules", [slow])
    return made


@pytest.mark.parametrize("seed", SEEDS)
async def test_nothing_is_lost_or_doubled_when_processes_are_killed(
    sandbox: Sandbox, merchant: Merchant, seed: int
) -> None:
    chance = random.Random(seed)
    ledger = Ledger()
    client = Client(merchant, ledger)
    kinds = [list(EXPECTED)[number % len(EXPECTED)] for number in range(PAYMENTS)]
    chance.shuffle(kinds)

    async def come_and_live(kind: str) -> None:
        await asyncio.sleep(chance.uniform(0, KILLING_S))
        await live(client, kind, chance)

    async with asyncio.timeout(PATIENCE_S * 2), asyncio.TaskGroup() as work:
        killers = [
            work.create_task(kill(sandbox, merchant.http, name, chance))
            for name in ("api", "worker")
        ]
        for kind in kinds:
            work.create_task(come_and_live(kind))
        kills = await asyncio.gather(*killers)
        # What dead processes had taken comes back when their leases end; nobody wants to wait.
        await move_clock(merchant.database, LEASES_S)
    await wait_until(lambda: has_ended(merchant), "every payment has ended", PATIENCE_S)
    await deliver_all(merchant)

    print(f"answers {dict(ledger.answers)}, broken {ledger.broken}, kills {kills}")
    assert ledger.answers[500] == 0
    assert ledger.broken > 0, "nobody noticed the kills"
    assert len(ledger.kinds) == PAYMENTS
    await every_payment_is_where_it_should_be(merchant, ledger)
    await all_money_has_a_place(merchant)
    await every_event_came_once(merchant)


async def has_ended(merchant: Merchant) -> bool:
    [row] = await merchant.rows(
        "SELECT count(*) FROM payment "
        "WHERE merchant_id = $1 AND status IN ('PENDING', 'PROCESSING')",
        merchant.id,
    )
    return row["count"] == 0


async def deliver_all(merchant: Merchant) -> None:
    """Wait until every event is delivered; advance the clock past the retry delays."""

    async def is_told() -> bool:
        rows = await merchant.rows(
            "SELECT event_id FROM delivery WHERE merchant_id = $1 AND state <> 'delivered'",
            merchant.id,
        )
        return not rows

    for moves in range(2, DELIVERY_MOVES_MAX):
        with suppress(AssertionError):
            await wait_until(is_told, "every event is delivered", DELIVERY_LOOK_S)
            return
        await move_clock(merchant.database, moves * LEASES_S)
    await wait_until(is_told, "every event is delivered")


async def every_payment_is_where_it_should_be(merchant: Merchant, ledger: Ledger) -> None:
    rows = await merchant.rows("SELECT * FROM payment WHERE merchant_id = $1", merchant.id)
    assert {ids.format_id(ids.PAYMENT, row["id"]) for row in rows} == set(ledger.kinds)
    for row in rows:
        name = ids.format_id(ids.PAYMENT, row["id"])
        kind, status = ledger.kinds[name], row["status"]
        assert status in EXPECTED[kind], (name, kind, status)
        events = await merchant.events({"id": name})
        assert events == [EVENTS[status]], (name, kind, events)
        if row["session_id"] is not None:
            await follows_from_the_gateways_word(merchant, name, row)


async def follows_from_the_gateways_word(merchant: Merchant, name: str, row: Any) -> None:
    reference = ids.format_id(ids.SESSION, row["session_id"])
    said = (await merchant.simulator("GET", f"/v1/sessions/{reference}"))["status"]
    if said == "paid" and row["status"] == "EXPIRED":
        # The gateway answered nobody for 30 s of the service's time, then said: paid.
        assert await merchant.cases({"id": name}) == ["LATE_PAYMENT"]
        return
    expected = FOLLOWS.get(said)
    if said != "open":  # a session that is still to be closed, of a payment that has expired
        assert row["status"] == expected, (name, said, row["status"])
    else:
        assert row["status"] == "EXPIRED", (name, said, row["status"])


async def all_money_has_a_place(merchant: Merchant) -> None:
    """Every capture of the gateway is known, and credited to its payment or a separate case."""
    sessions = await merchant.rows(
        "SELECT s.id, s.payment_id FROM session s JOIN payment p ON p.id = s.payment_id "
        "WHERE p.merchant_id = $1",
        merchant.id,
    )

    async def is_placed(session_id: UUID) -> bool:
        reference = ids.format_id(ids.SESSION, session_id)
        said = await merchant.simulator("GET", f"/v1/sessions/{reference}")
        places = await merchant.rows(
            "SELECT c.credited, m.kind FROM capture c "
            "LEFT JOIN money_case m ON m.capture_id = c.id WHERE c.session_id = $1",
            session_id,
        )
        if said.get("status") != "paid":
            return not places
        return len(places) == 1 and places[0]["credited"] == (places[0]["kind"] is None)

    async def is_placed_within(session_id: UUID, look_s: float) -> bool:
        with suppress(AssertionError):
            return await wait_until(lambda: is_placed(session_id), "its money has a place", look_s)
        return False

    # A callback that was killed is made up for by the next inquiry, which may be an hour away.
    hours = 0
    for row in sessions:
        payment_id = ids.format_id(ids.PAYMENT, row["payment_id"])
        while not await is_placed_within(row["id"], INQUIRY_LOOK_S):
            hours += 1
            assert hours <= INQUIRY_HOURS_MAX, (
                f"the money of a session of {payment_id} has no place"
            )
            await move_clock(merchant.database, DELIVERY_MOVES_MAX * LEASES_S + hours * 3600)


async def every_event_came_once(merchant: Merchant) -> None:
    """Each event arrived with the bytes in the database, and never with a different id."""
    events = {
        str(row["id"]): row
        for row in await merchant.rows("SELECT * FROM event WHERE merchant_id = $1", merchant.id)
    }
    assert merchant.receiver.refused == []
    came: dict[str, set[bytes]] = {}
    for delivery in merchant.receiver.deliveries:
        came.setdefault(delivery.webhook_id, set()).add(delivery.body)
        assert key_of({"id": delivery.payment_id}) == events[delivery.webhook_id]["payment_id"]
    assert set(came) == set(events)
    for webhook_id, bodies in came.items():
        assert bodies == {events[webhook_id]["body"].encode()}
    assert len({row["payment_id"] for row in events.values()}) == len(events)
