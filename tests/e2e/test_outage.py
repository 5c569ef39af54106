"""Test a one-minute gateway outage during a hundred payments: nothing is lost or duplicated.

The simulator, an API and a worker are real processes. A proxy in front of the simulator refuses
connections, drops requests, and loses some responses. `OUTAGE_S` is the real duration of the
outage. The service's clock runs faster, so that the outage lasts a minute on that clock.
"""

import asyncio
import json
import os
import random
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import aiohttp
import pytest

from payintent.core import ids
from payintent.gateway_accounts.operations import AddAccount
from payintent.merchants import methods_store as method_store
from payintent.runtime.settings import Settings
from payintent.service import Service, open_service
from tests.conformance.faults import Fault, FaultProxy, faulty
from tests.e2e.drill import variables_of
from tests.refunds.refund_setup import set_auto_refund
from tests.support import processes
from tests.support.fakes import FakeGateway
from tests.support.ports import free_port
from tests.support.timeouts import PATIENCE_S, wait_until
from tests.support.world import World, make_world

OUTAGE_S = float(os.environ.get("OUTAGE_S") or 6)
SEED = int(os.environ.get("OUTAGE_SEED") or random.SystemRandom().randrange(10**9))
BUYERS = 100
SCALE = 60 / OUTAGE_S  # of the service's clock and the simulator's delays
PHASE_S = 1.5 / SCALE * 4  # the duration of each fault
GATEWAY_TIMEOUT_S = 1.0
TTL_S = 20_000  # on the service's clock; no payment expires
ABSENT_S = 1_500
RETRY_S = 0.2
START_S = 60.0
AMOUNT_MINOR = 4_990
APPROVED, DECLINED, AFTER_CHANGE = "4242424242424242", "4000000000000002", "4000009900000053"
FAULTS = (Fault.CUT, Fault.REFUSE, Fault.HANG)
BUGS = ("bug", "step_failed")
KEY, SECRET = "sim-key", "sim-secret"

#: The number of buyers of each kind, and the final status of their payments.
KINDS = {
    "during": (60, "PAID"),  # create and pay during the outage
    "declined": (10, "FAILED"),  # like "during", but the card is declined
    "before": (10, "PAID"),  # select before the outage, and pay during it
    "change": (10, "PAID"),  # select before the outage, and change the method during it
    "both": (10, "PAID"),  # like "change", but the first method is charged as well
}

#: Error codes during an outage. RATE_LIMITED means that too many buyers wait for the account.
_RETRYABLE = {"PG_UPSTREAM_ERROR", "PG_NOT_AVAILABLE", "CONFLICT", "RATE_LIMITED"}

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240 + 6 * OUTAGE_S), pytest.mark.full]


@dataclass
class Scene:
    """The URLs of all participants, and the responses so far."""

    world: World
    http: aiohttp.ClientSession
    api: str
    simulator: str
    proxy: FaultProxy
    folder: Path
    answers: Counter[tuple[int, str]] = field(default_factory=Counter)
    kinds: dict[UUID, str] = field(default_factory=dict)  # by payment

    async def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Call the API as the merchant or a browser, and count the response."""
        headers = {"Authorization": f"Bearer {self.world.api_key}", "Idempotency-Key": str(uuid4())}
        async with self.http.request(method, self.api + path, json=body, headers=headers) as answer:
            response = await answer.json()
            self.answers[answer.status, response.get("code", "")] += 1
            return answer.status, response

    async def read_gateway_session(self, session_id: UUID) -> dict[str, Any]:
        """Query the simulator for a session; return an empty dictionary if it is unknown."""
        name = ids.format_id(ids.SESSION, session_id)
        headers = {"Authorization": f"Bearer {KEY}"}
        async with self.http.get(f"{self.simulator}/v1/sessions/{name}", headers=headers) as answer:
            assert answer.status in {200, 404}
            return await answer.json() if answer.status == 200 else {}

    def bugs(self) -> str:
        """Return the log lines of unexpected errors."""
        lines = self.read_logs().splitlines()
        return "\n".join(line for line in lines if any(f'"event": "{bug}"' in line for bug in BUGS))

    def read_logs(self) -> str:
        return "".join(log.read_text() for log in self.folder.glob("service-*.log"))


@contextmanager
def process(
    folder: Path, name: str, words: list[str], environment: dict[str, str]
) -> Iterator[None]:
    """Run a process while the block runs."""
    log = folder / f"{name}.log"
    with log.open("wb") as output:
        running = processes.start(*words, env=os.environ | environment, output=output)
    try:
        yield
        assert running.poll() is None, log.read_text()
    finally:
        running.terminate()
        running.wait(PATIENCE_S)


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Settings with the API's real URL, to which the simulator sends callbacks."""
    return settings.model_copy(update={"api_base": f"http://127.0.0.1:{free_port()}/v1"})


@pytest.fixture
async def service(settings: Settings, gateway: FakeGateway) -> AsyncIterator[Service]:
    """The test's service. Only the separate processes use the simulator."""
    service = await open_service(settings, {"fake": gateway, "simulator": gateway})
    yield service
    await service.close()


@pytest.fixture
async def scene(
    settings: Settings, service: Service, gateway: FakeGateway, tmp_path: Path
) -> AsyncIterator[Scene]:
    port = free_port()
    simulator, api = f"http://127.0.0.1:{port}", settings.api_base
    simulator_environment = {
        "SIM_ACCOUNTS": json.dumps([{"api_key": KEY, "signing_secret": SECRET}]),
        "SIM_TIME_SCALE": str(SCALE),
    }
    service_environment = variables_of(settings) | {
        "PAYINTENT_GATEWAY_TIMEOUT_S": str(GATEWAY_TIMEOUT_S)
    }
    words = [
        "payintent_sandbox.emulators.simulator",
        "--port",
        str(port),
        "--public-url",
        simulator,
    ]
    timeout = aiohttp.ClientTimeout(total=PATIENCE_S)
    async with (
        aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as http,
        faulty(simulator) as proxy,
    ):
        world = await create_world(service, gateway, proxy.url)
        with (
            process(tmp_path, "simulator", words, simulator_environment),
            process(
                tmp_path,
                "service-api",
                ["payintent", "api", "--processes", "1", "--port", _port(api)],
                service_environment,
            ),
            process(
                tmp_path,
                "service-worker",
                ["payintent", "worker", "--processes", "1"],
                service_environment,
            ),
        ):
            for url in (f"{simulator}/healthz", api.replace("/v1", "/readyz")):
                await wait_until(lambda url=url: is_well(http, url), f"{url} answers", START_S)
            running_scene = Scene(world, http, api, simulator, proxy, tmp_path)
            yield running_scene
            print(running_scene.bugs())


def _port(api: str) -> str:
    return api.rpartition(":")[2].removesuffix("/v1")


async def is_well(http: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with http.get(url) as answer:
            return answer.status == 200
    except aiohttp.ClientError:
        return False


async def create_world(service: Service, gateway: FakeGateway, base_url: str) -> World:
    """Create a merchant with two methods at the simulator, and accelerate the clock."""
    world = await make_world(service, gateway)
    await set_auto_refund(world, on=True)
    account = await world.perform(
        AddAccount(
            provider="simulator",
            base_url=base_url,
            credentials={"api_key": KEY, "signing_secret": SECRET},
        )
    )
    await world.rows("UPDATE payment_method SET enabled = false")
    async with service.database.transaction() as tx:
        for position, label in enumerate(("Card", "Other card")):
            method = method_store.NewPaymentMethod(kind="card", label=label, currencies=("USD",))
            await method_store.add(tx, world.merchant_id, account.id, method, position)
    await set_clock(world, 0)
    return world


async def set_clock(world: World, later_s: float) -> None:
    """Accelerate the service's clock, and advance it by this many seconds."""
    [row] = await world.rows("SELECT clock() AS now, statement_timestamp() AS here")
    now, here = (f"timestamptz '{row[name].isoformat()}'" for name in ("now", "here"))
    await world.rows(
        "CREATE OR REPLACE FUNCTION clock() RETURNS timestamptz LANGUAGE sql STABLE RETURN "
        f"date_trunc('milliseconds', {now} + interval '{later_s} seconds' "
        f"+ (statement_timestamp() - {here}) * {SCALE})"
    )


# Buyers


async def create(scene: Scene, kind: str) -> dict[str, Any]:
    body = {"currency": "USD", "amount": "49.90", "payer_uid": kind, "expires_in": TTL_S}
    status, payment = await scene.call("POST", "/payments", body)
    assert status == 201, payment
    payment_id = ids.parse_id(ids.PAYMENT, payment["id"])
    assert payment_id is not None
    scene.kinds[payment_id] = kind
    return payment


async def select(scene: Scene, payment: dict[str, Any], number: int = 0) -> str:
    """Repeat a selection until it works; return the gateway's page."""
    path = f"/checkout/{payment['checkout_id']}/quotes"
    while True:
        status, response = await scene.call("GET", path)
        assert status == 200, response
        if response["quotes"]:
            selection = {"payment_method_id": response["quotes"][number]["payment_method_id"]}
            status, answer = await scene.call("POST", path, selection)
            if status == 200:
                return answer["next_action"]["redirect"]["url"]
            assert answer["code"] in _RETRYABLE, answer
        await asyncio.sleep(RETRY_S)


async def pay(scene: Scene, page: str, card: str) -> None:
    async with scene.http.post(page, data={"card": card}, allow_redirects=False) as answer:
        assert answer.status == 303, await answer.text()


async def run_payment(scene: Scene, kind: str, started: asyncio.Event, wait_s: float) -> None:
    """Run a payment from its creation to its buyer's last action."""
    early = kind in {"before", "change", "both"}
    payment = await create(scene, kind) if early else None
    page = await select(scene, payment) if payment else None
    if kind == "both" and page:
        await pay(scene, page, AFTER_CHANGE)
    await started.wait()
    await asyncio.sleep(wait_s)
    payment = payment or await create(scene, kind)
    if kind in {"change", "both"}:
        page = await select(scene, payment, 1)
    page = page or await select(scene, payment)
    await pay(scene, page, DECLINED if kind == "declined" else APPROVED)


async def outage(scene: Scene, started: asyncio.Event) -> None:
    """Make the gateway fail in changing ways."""
    await wait_until(
        lambda: _have_selected(scene), "the early buyers have selected a method", PATIENCE_S
    )
    loop = asyncio.get_running_loop()
    end, number = loop.time() + OUTAGE_S, 0
    while loop.time() < end:
        async with scene.proxy.fault(FAULTS[number % len(FAULTS)]):
            started.set()
            await asyncio.sleep(min(PHASE_S, max(0.0, end - loop.time())))
        number += 1


async def _have_selected(scene: Scene) -> bool:
    early = sum(count for kind, (count, _) in KINDS.items() if kind in {"before", "change", "both"})
    rows = await scene.world.rows("SELECT 1 FROM payment WHERE status = 'PROCESSING'")
    return len(rows) == early


async def test_a_gateway_outage_loses_no_payment_and_charges_nobody_twice(
    scene: Scene,
) -> None:
    print(f"OUTAGE_SEED={SEED} OUTAGE_S={OUTAGE_S}")
    rng, started = random.Random(SEED), asyncio.Event()
    async with asyncio.timeout(2 * PATIENCE_S), asyncio.TaskGroup() as tasks:
        tasks.create_task(outage(scene, started))
        for kind, (count, _) in KINDS.items():
            for _ in range(count):
                wait_s = rng.uniform(0, OUTAGE_S * 0.9)
                tasks.create_task(run_payment(scene, kind, started, wait_s))
    # If a gateway does not know a session, we accept that only after ten minutes.
    await set_clock(scene.world, ABSENT_S)
    await wait_until(
        lambda: has_everything_ended(scene),
        "all sessions, refunds and payments have ended",
        2 * PATIENCE_S,
    )
    await wait_until(lambda: is_breaker_closed(scene), "the circuit breaker is closed", PATIENCE_S)

    print(f"answers {dict(scene.answers)}, affected {scene.proxy.affected_count}")
    assert len(scene.kinds) == BUYERS
    assert {pair for pair in scene.answers if pair[0] >= 500} <= {(502, "PG_UPSTREAM_ERROR")}
    assert scene.proxy.affected_count > 0
    assert scene.bugs() == ""
    assert "gateway_down" in scene.read_logs()
    assert "gateway_back" in scene.read_logs()
    await check_payments(scene)
    await check_captures(scene)


async def has_everything_ended(scene: Scene) -> bool:
    """Return whether all sessions, refunds and payments have ended."""
    [row] = await scene.world.rows(
        """
        SELECT (SELECT count(*) FROM session WHERE life <> 'ended')
            + (SELECT count(*) FROM refund WHERE step <> 'ended')
            + (SELECT count(*) FROM payment WHERE status IN ('PENDING', 'PROCESSING')) AS left,
            (SELECT count(*) FROM capture WHERE NOT credited) AS surplus
        """
    )
    return row["left"] == 0 and row["surplus"] == KINDS["both"][0]


async def is_breaker_closed(scene: Scene) -> bool:
    """Return whether the breaker is closed. If it is open, send a request that can close it."""
    if await scene.world.rows("SELECT 1 FROM gateway_outage"):
        payment = await create(scene, "afterwards")
        del scene.kinds[max(scene.kinds)]
        await select(scene, payment)
        return False
    return True


async def check_payments(scene: Scene) -> None:
    for payment_id, kind in scene.kinds.items():
        [row] = await scene.world.rows(
            """
            SELECT p.status, p.refunded_amount,
                ARRAY(SELECT e.type FROM event e WHERE e.payment_id = p.id) AS events,
                ARRAY(SELECT m.kind || ' ' || m.status FROM money_case m WHERE m.payment_id = p.id)
                    AS cases
            FROM payment p
            WHERE p.id = $1
            """,
            payment_id,
        )
        assert row["status"] == KINDS[kind][1], (kind, dict(row))
        event = "payment.completed" if row["status"] == "PAID" else "payment.failed"
        assert row["events"] == [event], (kind, dict(row))
        cases = ["ORPHAN_CAPTURE REFUNDED"] if kind == "both" else []
        assert row["cases"] == cases, (kind, dict(row))
        assert row["refunded_amount"] == 0


async def check_captures(scene: Scene) -> None:
    """Compare the simulator's data with ours, session by session."""
    rows = await scene.world.rows(
        """
        SELECT s.id, s.payment_id, c.reference, c.amount_minor, c.credited, c.refunded_minor
        FROM session s
        LEFT JOIN capture c ON c.session_id = s.id
        WHERE s.payment_id = ANY($1::uuid[])
        """,
        list(scene.kinds),
    )
    assert len({row["id"] for row in rows}) == len(rows), "a session with two captures"
    net_amounts: Counter[UUID] = Counter()
    for row in rows:
        gateway_session = await scene.read_gateway_session(row["id"])
        capture = gateway_session.get("capture")
        assert gateway_session.get("status") not in {"open", "authorising"}, (
            "the session can still be paid"
        )
        if capture is None:
            assert row["reference"] is None, "a capture that the gateway does not know"
            continue
        assert row["reference"] == capture["id"], "a capture that is not stored"
        assert int(row["amount_minor"]) == capture["amount_minor"] == AMOUNT_MINOR
        assert int(row["refunded_minor"]) == capture["refunded_minor"]
        assert capture["refunded_minor"] == (0 if row["credited"] else AMOUNT_MINOR)
        net_amounts[row["payment_id"]] += AMOUNT_MINOR - capture["refunded_minor"]
    charged = {payment_id for payment_id, kind in scene.kinds.items() if KINDS[kind][1] == "PAID"}
    assert net_amounts.keys() == charged
    assert set(net_amounts.values()) == {AMOUNT_MINOR}, "a buyer was charged twice"
