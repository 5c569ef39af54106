"""Kill the API and the worker during payments: nothing is lost or duplicated.

Set `KILL_PAYMENTS` and `KILL_SEEDS` (separated by commas) if you want a longer test.
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
from tests.support.timeouts import PATIENCE_S, wait_until

PAYMENTS = int(os.environ.get("KILL_PAYMENTS", "120"))
SEEDS = [int(seed) for seed in os.environ.get("KILL_SEEDS", "1").split(",")]
KILLING_S = PAYMENTS / 16  # buyers arrive during this time
# The gateway sends a callback six times in 756 s. We must be running when the last is sent.
CHAINS = False
SIM_TIME_SCALE = int(756 / (KILLING_S + 5))
SLOW = "13.13"  # the gateway creates sessions slowly, so processes die while they wait
INQUIRY_POLL_S = 10.0  # a worker poll and a gateway response, on a busy machine
INQUIRY_HOURS_MAX = 9  # on the service's clock
LEASES_S = 61  # on the service's clock: all leases of killed processes have expired by then
RETRY_S = 0.2
DELIVERY_POLL_S = 2.0
DELIVERY_MOVES_MAX = 20

DECLINED, NO_CALLBACK, AFTER_CHANGE = "4000000000000002", "4000009900000046", "4000009900000053"

EVENTS = {
    "PAID": "payment.completed",
    "FAILED": "payment.failed",
    "EXPIRED": "payment.expired",
    "CANCELLED": "payment.cancelled",
}
#: The final statuses of each kind of payment. A `race` can end in two ways.
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
#: The payment status that must follow from the simulator's status of its current session.
FOLLOWS = {"paid": "PAID", "declined": "FAILED", "closed": "EXPIRED", "expired": "EXPIRED"}

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(60 + 3 * PATIENCE_S)]


@dataclass
class Ledger:
    """Every acknowledged payment, and the number of responses by status."""

    kinds: dict[str, str] = field(default_factory=dict)  # by payment id
    answers: Counter[int] = field(default_factory=Counter)
    connection_errors: int = 0  # requests without a response


class Client:
    """Buyers and a merchant. They repeat a request with the same key until it succeeds."""

    def __init__(self, merchant: Merchant, ledger: Ledger) -> None:
        self.merchant = merchant
        self.ledger = ledger

    async def create(self, kind: str, **changes: Any) -> dict[str, Any]:
        body = {"currency": "USD", "amount": "49.90", "payer_uid": kind} | changes
        payment = await self.request("POST", "/payments", body, str(uuid4()), expected_status=201)
        assert payment["id"] not in self.ledger.kinds
        self.ledger.kinds[payment["id"]] = kind
        return payment

    async def cancel(self, payment: dict[str, Any]) -> None:
        await self.request("POST", f"/payments/{payment['id']}/cancel", None, str(uuid4()))

    async def select(self, payment: dict[str, Any], number: int = 0) -> str | None:
        """Select a method; return None if the checkout has ended."""
        path = f"/checkout/{payment['checkout_id']}/quotes"
        response = await self.request("GET", path, may_be_closed=True)
        if response is None:
            return None
        body = {"payment_method_id": response["quotes"][number]["payment_method_id"]}
        selection = await self.request("POST", path, body, may_be_closed=True)
        return selection and selection["next_action"]["redirect"]["url"]

    async def pay(self, page: str, card: str) -> None:
        async with self.merchant.http.post(
            page, data={"card": card}, allow_redirects=False
        ) as answer:
            await answer.read()

    async def return_to_checkout(self, payment: dict[str, Any]) -> None:
        with suppress(aiohttp.ClientError, AssertionError):
            await self.merchant.return_to_checkout(payment)

    async def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        key: str | None = None,
        *,
        expected_status: int = 200,
        may_be_closed: bool = False,
    ) -> Any:
        """Repeat a request until its response is final.

        Return None if the checkout may be closed and is closed.
        """
        while True:
            try:
                status, answer = await self.merchant.api(method, path, body, key)
            except (aiohttp.ClientError, TimeoutError):
                self.ledger.connection_errors += 1
            else:
                self.ledger.answers[status] += 1
                if status == expected_status:
                    return answer
                if may_be_closed and answer["code"] in (
                    "CHECKOUT_EXPIRED",
                    "INVALID_CHECKOUT_STATE",
                ):
                    return None
                assert status in (502, 503) or answer["code"] == "CONFLICT", answer
            await asyncio.sleep(RETRY_S)


async def run_payment(client: Client, kind: str, rng: random.Random) -> None:
    """Run a payment from its creation to its buyer's last action."""
    if kind in ("expire", "leave", "race"):
        payment = await client.create(kind, expires_in=rng.randint(3, 5))
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
        await asyncio.sleep(rng.uniform(1, 5))
    await client.pay(page, {"decline": DECLINED, "untold": NO_CALLBACK}.get(kind, APPROVED))
    if kind in ("return", "untold"):
        await client.return_to_checkout(payment)


async def kill(sandbox: Sandbox, http: aiohttp.ClientSession, name: str, rng: random.Random) -> int:
    """Kill a process of the sandbox repeatedly. Its supervisor restarts it."""
    loop = asyncio.get_running_loop()
    kills, end = 0, loop.time() + KILLING_S
    while loop.time() < end:
        await asyncio.sleep(rng.uniform(0.2, 2.5))
        pid = await wait_until(lambda: sandbox.child(name), f"a running {name}")
        os.kill(pid, signal.SIGKILL)
        kills += 1
        await wait_until(lambda gone=pid: sandbox.child(name) not in (0, gone), f"another {name}")
        if name == "api":
            await wait_until(lambda: is_well(sandbox, http), "a ready API")
    return kills


async def is_well(sandbox: Sandbox, http: aiohttp.ClientSession) -> bool:
    with suppress(aiohttp.ClientError):
        async with http.get(f"http://127.0.0.1:{sandbox.port_base}/readyz") as answer:
            return answer.status == 200
    return False


@pytest.fixture
async def merchant(new_merchant: NewMerchant) -> Merchant:
    """A merchant whose receiver sometimes fails."""
    failing_merchant = await new_merchant()
    rng = random.Random(0)

    async def answer(_: Delivery) -> aiohttp.web.Response:
        await asyncio.sleep(rng.uniform(0, 0.5))  # so that workers are killed during deliveries
        return aiohttp.web.Response(status=500 if rng.random() < 0.05 else 200)

    failing_merchant.receiver.answer = answer
    slow = {"match": {"amount": SLOW}, "action": "hang35s"}
    await failing_merchant.simulator("PUT", "/_sim/rules", [slow])
    return failing_merchant


@pytest.mark.parametrize("seed", SEEDS)
async def test_nothing_is_lost_or_duplicated_when_processes_are_killed(
    sandbox: Sandbox, merchant: Merchant, seed: int
) -> None:
    rng = random.Random(seed)
    ledger = Ledger()
    client = Client(merchant, ledger)
    kinds = [list(EXPECTED)[number % len(EXPECTED)] for number in range(PAYMENTS)]
    rng.shuffle(kinds)

    async def start_later(kind: str) -> None:
        await asyncio.sleep(rng.uniform(0, KILLING_S))
        await run_payment(client, kind, rng)

    async with asyncio.timeout(PATIENCE_S * 2), asyncio.TaskGroup() as work:
        killers = [
            work.create_task(kill(sandbox, merchant.http, name, rng)) for name in ("api", "worker")
        ]
        for kind in kinds:
            work.create_task(start_later(kind))
        kills = await asyncio.gather(*killers)
        # Advance the clock past the leases of the killed processes instead of waiting.
        await move_clock(merchant.database, LEASES_S)
    await wait_until(lambda: have_all_ended(merchant), "every payment has ended", PATIENCE_S)
    await deliver_all(merchant)

    print(f"answers {dict(ledger.answers)}, broken {ledger.connection_errors}, kills {kills}")
    assert ledger.answers[500] == 0
    assert ledger.connection_errors > 0, "no client noticed the kills"
    assert len(ledger.kinds) == PAYMENTS
    await check_payments(merchant, ledger)
    await check_captures(merchant)
    await check_deliveries(merchant)


async def have_all_ended(merchant: Merchant) -> bool:
    [row] = await merchant.rows(
        "SELECT count(*) FROM payment "
        "WHERE merchant_id = $1 AND status IN ('PENDING', 'PROCESSING')",
        merchant.id,
    )
    return row["count"] == 0


async def deliver_all(merchant: Merchant) -> None:
    """Wait until every event is delivered; advance the clock past the retry delays."""

    async def is_delivered() -> bool:
        rows = await merchant.rows(
            "SELECT event_id FROM delivery WHERE merchant_id = $1 AND state <> 'delivered'",
            merchant.id,
        )
        return not rows

    for moves in range(2, DELIVERY_MOVES_MAX):
        with suppress(AssertionError):
            await wait_until(is_delivered, "every event is delivered", DELIVERY_POLL_S)
            return
        await move_clock(merchant.database, moves * LEASES_S)
    await wait_until(is_delivered, "every event is delivered")


async def check_payments(merchant: Merchant, ledger: Ledger) -> None:
    rows = await merchant.rows("SELECT * FROM payment WHERE merchant_id = $1", merchant.id)
    assert {ids.format_id(ids.PAYMENT, row["id"]) for row in rows} == set(ledger.kinds)
    for row in rows:
        name = ids.format_id(ids.PAYMENT, row["id"])
        kind, status = ledger.kinds[name], row["status"]
        assert status in EXPECTED[kind], (name, kind, status)
        events = await merchant.events({"id": name})
        assert events == [EVENTS[status]], (name, kind, events)
        if row["session_id"] is not None:
            await check_against_gateway(merchant, name, row)


async def check_against_gateway(merchant: Merchant, name: str, row: Any) -> None:
    reference = ids.format_id(ids.SESSION, row["session_id"])
    gateway_status = (await merchant.simulator("GET", f"/v1/sessions/{reference}"))["status"]
    if gateway_status == "paid" and row["status"] == "EXPIRED":
        # The gateway was unresponsive for 30 s on the service's clock, then reported a capture.
        assert await merchant.cases({"id": name}) == ["LATE_PAYMENT"]
        return
    expected = FOLLOWS.get(gateway_status)
    if gateway_status != "open":  # an open session is still to be closed if its payment has expired
        assert row["status"] == expected, (name, gateway_status, row["status"])
    else:
        assert row["status"] == "EXPIRED", (name, gateway_status, row["status"])


async def check_captures(merchant: Merchant) -> None:
    """Check that every gateway capture is stored, and credited to its payment or to a case."""
    sessions = await merchant.rows(
        "SELECT s.id, s.payment_id FROM session s JOIN payment p ON p.id = s.payment_id "
        "WHERE p.merchant_id = $1",
        merchant.id,
    )

    async def is_assigned(session_id: UUID) -> bool:
        reference = ids.format_id(ids.SESSION, session_id)
        gateway_session = await merchant.simulator("GET", f"/v1/sessions/{reference}")
        captures = await merchant.rows(
            "SELECT c.credited, m.kind FROM capture c "
            "LEFT JOIN money_case m ON m.capture_id = c.id WHERE c.session_id = $1",
            session_id,
        )
        if gateway_session.get("status") != "paid":
            return not captures
        return len(captures) == 1 and captures[0]["credited"] == (captures[0]["kind"] is None)

    async def is_assigned_within(session_id: UUID, timeout_s: float) -> bool:
        with suppress(AssertionError):
            return await wait_until(
                lambda: is_assigned(session_id), "the capture is assigned", timeout_s
            )
        return False

    # If a callback was lost in a kill, the next inquiry replaces it, up to an hour later.
    hours = 0
    for row in sessions:
        payment_id = ids.format_id(ids.PAYMENT, row["payment_id"])
        while not await is_assigned_within(row["id"], INQUIRY_POLL_S):
            hours += 1
            assert hours <= INQUIRY_HOURS_MAX, f"a capture of {payment_id} is not assigned"
            await move_clock(merchant.database, DELIVERY_MOVES_MAX * LEASES_S + hours * 3600)


async def check_deliveries(merchant: Merchant) -> None:
    """Check that each event arrived with its stored body and under a single id."""
    events = {
        str(row["id"]): row
        for row in await merchant.rows("SELECT * FROM event WHERE merchant_id = $1", merchant.id)
    }
    assert merchant.receiver.verification_errors == []
    bodies_by_id: dict[str, set[bytes]] = {}
    for delivery in merchant.receiver.deliveries:
        bodies_by_id.setdefault(delivery.webhook_id, set()).add(delivery.body)
        assert key_of({"id": delivery.payment_id}) == events[delivery.webhook_id]["payment_id"]
    assert set(bodies_by_id) == set(events)
    for webhook_id, bodies in bodies_by_id.items():
        assert bodies == {events[webhook_id]["body"].encode()}
    assert len({row["payment_id"] for row in events.values()}) == len(events)
