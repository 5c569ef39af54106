"""A list reads only as many rows as it shows, regardless of the number of payments."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from payintent.core.money import CURRENCIES
from payintent.fraud import store as fraud_store
from payintent.payments import list_store as payment_lists
from payintent.payments.list_store import PaymentFilter
from payintent.payments.model import PaymentStatus
from payintent.runtime.settings import Settings
from tests.support.databases import Databases
from tests.support.filled_database import open_filled_template
from tests.support.plans import Recorder, nodes, pages_read, plan
from tests.support.rows import write_payments
from tests.support.world import World

pytestmark = pytest.mark.full

ROWS = 40_000
LIMIT = 10
START = datetime(2026, 11, 21, 8, tzinfo=UTC)
MIDDLE = START + timedelta(milliseconds=ROWS / 2)
LATER, EARLIER = MIDDLE + timedelta(seconds=1), MIDDLE - timedelta(seconds=1)

_FILTERS = [
    {"statuses": statuses, "currencies": currencies, "payer_uid": payer}
    for statuses, currencies, payer in product(
        (tuple(PaymentStatus), (PaymentStatus.PAID,), (PaymentStatus.REFUNDED,)),
        (tuple(CURRENCIES), ("THB",), ("JPY",)),
        (None, "ann", "nobody"),
    )
]
_POSITIONS: list[dict[str, Any]] = [
    {},
    {"before": (MIDDLE, UUID(int=0))},
    {"created_from": MIDDLE},
    {"created_before": MIDDLE},
    {"created_from": EARLIER, "created_before": LATER},
    {"created_from": EARLIER, "created_before": LATER, "before": (MIDDLE, UUID(int=2**128 - 1))},
    {"created_before": MIDDLE, "before": (LATER, UUID(int=0))},
    {"created_from": LATER, "created_before": EARLIER},
]


def rows_read(node: dict[str, Any]) -> float:
    """Count the table and index rows that were read, whether returned or discarded."""
    return sum(
        item["Actual Loops"]
        * sum(
            item.get(name, 0)
            for name in ("Actual Rows", "Rows Removed by Filter", "Rows Removed by Index Recheck")
        )
        for item in nodes(node)
        if item.get("Relation Name") == "payment" or item["Node Type"] == "Bitmap Index Scan"
    )


@pytest.fixture(scope="module", params=["no other payments", "alone", "among small merchants"])
def template(
    databases: Databases, any_settings: Settings, request: pytest.FixtureRequest
) -> Iterator[str]:
    """A merchant with payments of almost only one kind and payer."""

    async def fill(world: World, raw: asyncpg.Connection) -> None:
        await _fill(world, raw, request.param)

    with open_filled_template(databases, any_settings, fill) as name:
        yield name


async def _fill(world: World, raw: asyncpg.Connection, surroundings: str) -> None:
    one_kind: dict[str, Any] = {"statuses": ("PAID",), "currencies": ("THB",), "payers": ("ann",)}
    await write_payments(world, ROWS, **one_kind)
    if surroundings != "no other payments":
        await write_payments(world, 200)
    if surroundings == "among small merchants":
        other_merchant_id = world.merchant_id + 1
        await write_payments(world, 3_000, merchant_id=other_merchant_id)
        await raw.execute(
            "UPDATE payment SET merchant_id = $1 + extract(epoch FROM created_at - $2) * 1000 "
            "WHERE merchant_id = $1",
            other_merchant_id,
            START,
        )
    await raw.execute("VACUUM (ANALYZE) payment")


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
async def test_a_list_reads_rows_in_proportion_to_its_page_and_not_to_the_table(
    world: World, raw: asyncpg.Connection, mode: str
) -> None:
    await raw.execute(f"SET plan_cache_mode = {mode}")
    for filters, position in product(_FILTERS, _POSITIONS):
        recorder = Recorder()
        payment_filter = PaymentFilter(
            merchant_id=world.merchant_id, limit=LIMIT, **filters, **position
        )
        await payment_lists.list_payments(recorder, payment_filter)
        root = await plan(raw, recorder)
        lookups = len(payment_filter.statuses) * len(payment_filter.currencies)
        if lookups == len(PaymentStatus) * len(CURRENCIES) and payment_filter.payer_uid is None:
            lookups = 1
        # If few rows match at all, PostgreSQL may choose a different plan.
        assert rows_read(root) <= lookups * LIMIT + 5 * LIMIT, (filters, position)
        # An index lookup reads as many pages as its height; each listed row needs two lookups.
        assert pages_read(root) <= lookups * 4 + LIMIT * 10, (filters, position)


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
async def test_counting_recent_payments_of_a_payer_does_not_read_older_payments(
    world: World, raw: asyncpg.Connection, mode: str
) -> None:
    await raw.execute(f"SET plan_cache_mode = {mode}")
    since = (datetime.now(UTC) - START).total_seconds()
    for payer, window_s in (("ann", 1.0), ("ann", since + 3600), ("nobody", since + 3600)):
        recorder = Recorder()
        await fraud_store.count_payments(
            recorder, world.merchant_id, payer, int(window_s), LIMIT, list(PaymentStatus)
        )
        root = await plan(raw, recorder)
        kinds = len(PaymentStatus) * len(CURRENCIES)
        assert rows_read(root) <= LIMIT * 2, payer
        assert pages_read(root) <= kinds * 4 + LIMIT, payer
