"""`payintent seed` writes the same data as the service would."""

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import RFC_4122

import asyncpg
import pytest

from payintent.accounting import ledger_check_store
from payintent.core import ids
from payintent.operators.operation import Actor
from payintent.payment_history.operations import ShowPayment
from payintent.payments import store as payment_store
from payintent.payments.model import PaymentStatus
from payintent.payments.serialization import make_event_body
from payintent.runtime.settings import Settings
from payintent.service import Service, open_service
from payintent.webhooks.model import EventType
from payintent_sandbox.seed.history import NotASandboxError, seed
from tests.support.terminal import Terminal

pytestmark = pytest.mark.full

PAYMENTS = 2_000
DAYS = 10
_IDS = {
    **dict.fromkeys(("payment", "event", "attempt", "capture", "refund", "audit"), True),
    **dict.fromkeys(("session",), False),
}
_WRONG_MONEY = """
    SELECT p.id
    FROM payment p
    LEFT JOIN capture c ON c.payment_id = p.id AND c.credited
    LEFT JOIN refund r ON r.payment_id = p.id
    WHERE (p.paid_at IS NULL) <> (c.id IS NULL)
        OR c.amount_minor <> p.amount * 100
        OR c.refunded_minor <> p.refunded_amount * 100
        OR coalesce(r.amount, 0) <> p.refunded_amount
"""
_WRONG_DELIVERIES = """
    SELECT d.event_id
    FROM delivery d
    LEFT JOIN attempt a ON a.event_id = d.event_id
    GROUP BY d.event_id
    HAVING count(a.id) <> d.attempts
        OR count(a.id) FILTER (WHERE a.outcome = 'delivered')
            <> (d.state = 'delivered')::int
"""


async def _seed(service: Service, count: int = PAYMENTS) -> list[int]:
    batch_sizes: list[int] = []
    await seed(service, count, DAYS, batch_sizes.append)
    return batch_sizes


@pytest.fixture
async def seeded(settings: Settings) -> Any:
    """A service with the gateways of every installation, and a history."""
    service = await open_service(settings)
    assert sum(await _seed(service)) == PAYMENTS
    yield service
    await service.close()


async def test_a_seeded_history_looks_as_if_the_service_had_written_it(
    seeded: Service, settings: Settings
) -> None:
    raw = await asyncpg.connect(settings.database_url)
    statuses = Counter(row[0] for row in await raw.fetch("SELECT status FROM payment"))
    assert set(statuses) == set(PaymentStatus)
    assert statuses.total() == PAYMENTS
    assert await raw.fetch(_WRONG_MONEY) == []
    assert await raw.fetch(_WRONG_DELIVERIES) == []
    assert {row[0] for row in await raw.fetch("SELECT DISTINCT state FROM delivery")} == {
        *("delivered", "dead", "pending", "skipped")
    }
    cases = await raw.fetchval("SELECT count(*) FROM money_case WHERE status = 'ACCEPTED'")
    assert cases > 0
    assert await ledger_check_store.find_differences(seeded.database) == []
    await _check_ids(raw)
    await _check_events(seeded, raw)
    await _check_shown(seeded, raw)
    await raw.close()


async def _check_ids(raw: asyncpg.Connection) -> None:
    now = datetime.now(UTC)
    for table, timed in _IDS.items():
        row_ids = [row["id"] for row in await raw.fetch(f"SELECT id FROM {table}")]
        assert row_ids, table
        if timed:
            assert {(item.version, item.variant) for item in row_ids} == {(7, RFC_4122)}, table
            times = [datetime.fromtimestamp(ids.get_unix_ms(item) / 1000, UTC) for item in row_ids]
            assert now - timedelta(days=DAYS, minutes=1) < min(times), table
            assert max(times) < now + timedelta(minutes=1), table
    created = await raw.fetch("SELECT id, created_at FROM payment")
    for payment_id, created_at in created:
        assert ids.get_unix_ms(payment_id) == round(created_at.timestamp() * 1000)


async def _check_events(service: Service, raw: asyncpg.Connection) -> None:
    """Every ended payment has its event, with the same bytes as the service would write."""
    events = await raw.fetch(
        "SELECT e.* FROM event e JOIN payment p ON p.id = e.payment_id WHERE refunded_amount = 0"
    )
    ended_count = "SELECT count(*) FROM payment WHERE status NOT IN ('PENDING', 'PROCESSING')"
    assert await raw.fetchval(ended_count) == await raw.fetchval("SELECT count(*) FROM event")
    batch = await payment_store.get_batch(
        service.database, [event["payment_id"] for event in events]
    )
    for event, stored in zip(events, batch, strict=True):
        assert stored is not None
        kind, at = EventType(event["type"]), event["occurred_at"]
        assert event["body"] == make_event_body(stored.payment, stored.session, kind, at)


async def _check_shown(service: Service, raw: asyncpg.Connection) -> None:
    one_each = await raw.fetch("SELECT DISTINCT ON (status) id, status FROM payment")
    for row in one_each:
        show_payment = ShowPayment(payment_id=ids.format_id(ids.PAYMENT, row["id"]))
        payment = await service.run_operation(show_payment, Actor("test", "show a payment"))
        assert payment["status"] == row["status"]


async def test_a_second_history_uses_the_same_merchants(
    seeded: Service, settings: Settings
) -> None:
    count = "SELECT (SELECT count(*) FROM merchant) AS m, (SELECT count(*) FROM payment) AS p"
    before = await seeded.database.row(count)
    await _seed(seeded, 10)
    after = await seeded.database.row(count)
    assert before is not None
    assert after is not None
    assert (after["m"], after["p"]) == (before["m"], before["p"] + 10)


async def test_no_history_is_seeded_outside_a_sandbox(settings: Settings) -> None:
    service = await open_service(settings.model_copy(update={"sandbox": False}))
    with pytest.raises(NotASandboxError):
        await _seed(service, 10)
    row = await service.database.row("SELECT count(*) AS found FROM payment")
    assert row is not None
    assert row["found"] == 0
    await service.close()


def test_the_command_prints_its_progress_and_is_refused_outside_a_sandbox(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = Terminal(settings, monkeypatch).run("seed", "--payments", "100")
    assert (result.status, "100 of 100" in result.err) == (0, True), result
    assert result.out.startswith("wrote 100 payments over 90 days in ")
    outside = settings.model_copy(update={"sandbox": False})
    result = Terminal(outside, monkeypatch).run("seed", "--payments", "100")
    assert (result.status, result.out) == (1, ""), result
    assert "not a sandbox" in result.err
    assert asyncio.run(_count(settings)) == 100


async def _count(settings: Settings) -> int:
    raw = await asyncpg.connect(settings.database_url)
    count: int = await raw.fetchval("SELECT count(*) FROM payment")
    await raw.close()
    return count
