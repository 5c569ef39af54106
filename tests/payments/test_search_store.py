"""Searches and timelines read only the displayed rows, and never scan a large table."""

import json
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from itertools import product
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from payintent.cases import list_store as case_lists
from payintent.cases.list_store import CaseFilter
from payintent.core.money import CURRENCIES
from payintent.disputes import store as dispute_store
from payintent.disputes.store import DisputeFilter
from payintent.payment_history import store as history_store
from payintent.payments import search_store as payment_search
from payintent.payments.list_store import PaymentFilter
from payintent.payments.model import PaymentStatus
from payintent.refunds import list_store as refund_lists
from payintent.refunds.list_store import MerchantRefundFilter, RefundFilter
from payintent.runtime.settings import Settings
from payintent.webhooks import deliveries_store as delivery_store
from payintent.webhooks import endpoints_store as endpoint_store
from payintent.webhooks.model import MissedEvents
from tests.support.databases import Databases
from tests.support.filled_database import open_filled_template
from tests.support.plans import Recorder, nodes, pages_read, plan
from tests.support.rows import write_payments
from tests.support.world import World

pytestmark = pytest.mark.full

_ROWS = 20_000
_LIMIT = 10
_NO_ID = UUID(int=1)
_MODES = ("force_custom_plan", "force_generic_plan")
#: Tables that grow with payments, and have many rows here.
_LARGE = {"payment", "callback", "money_case", "audit", "delivery", "refund", "capture"}


@pytest.fixture(scope="module")
def crowded_template(databases: Databases, any_settings: Settings) -> Iterator[str]:
    """Many payments, sessions, callbacks, cases, audit entries and deliveries of two merchants."""
    with open_filled_template(databases, any_settings, _fill) as name:
        yield name


@pytest.fixture
def template(request: pytest.FixtureRequest, template: str) -> str:
    """Return the crowded database if a test uses it, because copying it is slow."""
    if "crowded" in request.fixturenames:
        return request.getfixturevalue("crowded_template")
    return template


@pytest.fixture
def crowded(raw: asyncpg.Connection) -> asyncpg.Connection:
    """A connection to a copy of the crowded database."""
    return raw


async def _fill(world: World, raw: asyncpg.Connection) -> None:
    other_merchant_id = (await world.add_merchant(methods="none")).merchant.id
    await write_payments(world, _ROWS)
    await write_payments(world, 200, merchant_id=other_merchant_id)
    await raw.execute(
        """
        UPDATE payment
        SET metadata = json_build_object('order_id', 'A-' || id),
            payer_email = 'ann-' || right(checkout_id, 4) || '@shop.example'
        """
    )
    for statement in _FILL:
        await raw.execute(statement, world.merchant_id)
    await raw.execute("VACUUM (ANALYZE)")


_FILL = [
    """
    INSERT INTO event (id, payment_id, merchant_id, type, body, occurred_at)
    SELECT gen_random_uuid(), id, merchant_id, 'payment.completed', '{}', updated_at
    FROM payment WHERE status = 'PAID' AND $1::bigint IS NOT NULL
    """,
    """
    INSERT INTO delivery (event_id, merchant_id, state, next_at)
    SELECT id, merchant_id,
        CASE WHEN merchant_id <> $1 OR random() < 0.01 THEN 'dead' ELSE 'delivered' END, occurred_at
    FROM event
    """,
    """
    INSERT INTO callback (account_id, callback_id, session_id, applied_at)
    SELECT 1, n::text, gen_random_uuid(), clock()
    FROM generate_series(1, 20000) n WHERE $1::bigint IS NOT NULL
    """,
    """
    INSERT INTO money_case (id, kind, merchant_id, payment_id, subject, opened_at)
    SELECT gen_random_uuid(), 'RECONCILIATION', merchant_id, id, id::text, created_at
    FROM payment WHERE status = 'FAILED' AND merchant_id = $1
    """,
    """
    INSERT INTO audit (id, who, why, action, merchant_id, details)
    SELECT (lpad(to_hex(n), 12, '0') || '70008' || left(md5(n::text), 15))::uuid, 'x', '', 'x.set',
        CASE WHEN n % 3 = 0 THEN $1::bigint WHEN n % 3 = 1 THEN $1 + 1 END, '{}'
    FROM generate_series(1, 20000) n
    """,
    """
    INSERT INTO capture (id, account_id, reference, currency, amount_minor, credited, captured_at,
        callback_id)
    SELECT id, 1, 'ch_' || id, currency, 100, false, created_at, n::text
    FROM (SELECT *, row_number() OVER () AS n FROM payment WHERE merchant_id = $1) p
    WHERE n <= 20000
    """,
    """
    INSERT INTO refund (id, merchant_id, payment_id, capture_id, amount, amount_text, currency,
        amount_minor, status, step, requested_by)
    SELECT id, merchant_id, id, id, 1, '1', currency, 100,
        CASE WHEN n % 100 = 0 THEN 'PENDING' ELSE 'SUCCEEDED' END,
        CASE WHEN n % 100 > 0 THEN 'ended' WHEN n % 200 = 0 THEN 'approval' ELSE 'sent' END, 'x'
    FROM (SELECT *, row_number() OVER () AS n FROM payment WHERE merchant_id = $1) p
    WHERE id IN (SELECT id FROM capture)
    """,
]


async def _check_plan(
    raw: asyncpg.Connection, recorder: Recorder, *, pages: int, mode: str = "force_generic_plan"
) -> None:
    """Run a statement; check that it reads few pages and does not scan large tables."""
    await raw.execute(f"SET plan_cache_mode = {mode}")
    root = await plan(raw, recorder)
    scanned = {
        node["Relation Name"]
        for node in nodes(root)
        if node["Node Type"] == "Seq Scan" and node["Actual Loops"]
    }
    assert scanned & _LARGE == set(), recorder.query
    assert pages_read(root) <= pages, recorder.query


async def test_a_search_reads_a_limited_number_of_pages(crowded: asyncpg.Connection) -> None:
    order = await crowded.fetchval("SELECT metadata ->> 'order_id' FROM payment LIMIT 1")
    scope = PaymentFilter(limit=_LIMIT)
    searches: list[tuple[Callable[[Recorder], Awaitable[object]], int]] = [
        (lambda recorder: payment_search.find_by_order(recorder, order), 20),
        (lambda recorder: payment_search.find_by_order(recorder, "nothing"), 20),
        (lambda recorder: payment_search.find_by_reference(recorder, "pi_nothing"), 60),
        (lambda recorder: payment_search.find_by_email(recorder, "Ann-7@shop.example"), 20),
        (lambda recorder: payment_search.find_by_address(recorder, bytes(20)), 20),
        (lambda recorder: payment_search.find_by_transaction(recorder, bytes(32)), 60),
        (lambda recorder: payment_search.find_by_id(recorder, _NO_ID), 30),
        (lambda recorder: payment_search.find_by_checkout(recorder, "cs_nothing"), 10),
        (lambda recorder: payment_search.list_records(recorder, [_NO_ID], scope), 20),
    ]
    for (search, pages), mode in product(searches, _MODES):
        recorder = Recorder()
        await search(recorder)
        await _check_plan(crowded, recorder, pages=pages, mode=mode)


@pytest.mark.parametrize(
    "change",
    ["metadata = json_build_object('order_id', '%s')", "payer_email = '%s@shop.example'"],
    ids=["order number", "email"],
)
async def test_updates_to_a_widely_shared_search_value_are_not_slower(
    world: World, raw: asyncpg.Connection, change: str
) -> None:
    """If an index stored equal values in a chain of pages, each update would traverse the chain."""
    await write_payments(world, _ROWS)
    await raw.execute(f"UPDATE payment SET {change % 'shared'}")
    await raw.execute("VACUUM (ANALYZE)")
    shared = await _pages_of_change(raw, change % "before", change % "shared")
    fresh = await _pages_of_change(raw, change % "before", change % "fresh")
    assert shared <= fresh + 10


async def _pages_of_change(raw: asyncpg.Connection, before: str, after: str) -> int:
    """Count the pages of an update: the minimum of three, because the first may prune pages."""
    update = "UPDATE payment SET %s WHERE id = (SELECT id FROM payment ORDER BY id LIMIT 1)"
    counts = []
    for _ in range(3):
        await raw.execute(update % before)
        explained = await raw.fetchval(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {update % after}")
        counts.append(pages_read(json.loads(explained)[0]["Plan"]))
    return min(counts)


async def test_a_list_of_all_merchants_reads_pages_in_proportion_to_its_limit(
    world: World, crowded: asyncpg.Connection
) -> None:
    every = tuple(PaymentStatus)
    for statuses, payer, merchant_id, mode in product(
        (every, (PaymentStatus.PAID,), (PaymentStatus.REFUNDED,)),
        (None, "ann", "nobody"),
        (None, world.merchant_id),
        _MODES,
    ):
        scope = PaymentFilter(
            merchant_id=merchant_id, statuses=statuses, payer_uid=payer, limit=_LIMIT
        )
        recorder = Recorder()
        await payment_search.list_positions(recorder, scope)
        lookups = (2 if merchant_id is None else 1) * len(statuses) * len(CURRENCIES)
        await _check_plan(crowded, recorder, pages=lookups * (4 + _LIMIT), mode=mode)


async def test_a_timeline_reads_only_its_payment(world: World, crowded: asyncpg.Connection) -> None:
    payment_id = await crowded.fetchval("SELECT id FROM payment WHERE status = 'FAILED' LIMIT 1")
    for read, pages in (
        (lambda recorder: history_store.list_entries(recorder, payment_id), 150),
        (lambda recorder: case_lists.list_for_payment(recorder, payment_id), 10),
    ):
        recorder = Recorder()
        await read(recorder)
        await _check_plan(crowded, recorder, pages=pages)
    since = await crowded.fetchval("SELECT id FROM audit ORDER BY id DESC OFFSET 100 LIMIT 1")
    recorder = Recorder()
    await history_store.list_audit_entries(recorder, world.merchant_id, since, ["pay_x"])
    await _check_plan(crowded, recorder, pages=100)


async def test_a_queue_reads_a_limited_number_of_pages(
    world: World, crowded: asyncpg.Connection
) -> None:
    """Without an index in list order, only the newest rows up to a limit are scanned.

    These tables have fewer rows than the limit, so the test disables sequential scans.
    """
    await crowded.execute("UPDATE delivery SET state = 'skipped' WHERE state = 'delivered'")
    await crowded.execute("VACUUM (ANALYZE) delivery")
    await crowded.execute("SET enable_seqscan = off")
    merchant_id = world.merchant_id
    deliveries = product((None, merchant_id), (None, "dead", "skipped", "pending"))
    refunds = [
        RefundFilter(merchant_id=merchant, status=status, step=step)
        for merchant, (status, step) in product(
            (None, merchant_id), ((None, None), (None, "approval"), ("PENDING", None))
        )
    ]
    queues: list[tuple[Callable[[Recorder], Awaitable[object]], int]] = [
        *(
            (partial(_deliveries, merchant, state), 2_500 if state == "skipped" else 250)
            for merchant, state in deliveries
        ),
        *(
            (partial(_deliveries, merchant_id, state), pages)
            for state, pages in (("pending", 20), ("dead", 250), ("skipped", 2_500), (None, 250))
        ),
        *((partial(_refunds, filters), 1_500) for filters in refunds),
        *((partial(_own_refunds, merchant_id, status), 50) for status in (None, "FAILED")),
        (
            lambda recorder: case_lists.list_cases(recorder, CaseFilter(status="OPEN"), _LIMIT),
            4_000,
        ),
        (lambda recorder: dispute_store.list_disputes(recorder, DisputeFilter(), _LIMIT), 50),
        *((partial(_filtered, read, filters), pages) for read, filters, pages in _OLDEST_FIRST),
        *(
            (partial(_filtered, read, filters), 100)
            for read, filters in await _payment_filters(crowded)
        ),
        (lambda recorder: endpoint_store.list_endpoints(recorder, None, 0, _LIMIT), 2_500),
        (lambda recorder: endpoint_store.list_endpoints(recorder, merchant_id, 0, _LIMIT), 1_500),
    ]
    for (read, pages), mode in product(queues, _MODES):
        recorder = Recorder()
        await read(recorder)
        await _check_plan(crowded, recorder, pages=pages, mode=mode)


_OLDEST_FIRST: list[tuple[Any, Any, int]] = [
    (case_lists.list_cases, CaseFilter(oldest_first=True), 4_000),
    (dispute_store.list_disputes, DisputeFilter(oldest_first=True), 50),
    (refund_lists.list_refunds, RefundFilter(oldest_first=True), 1_500),
]


async def _payment_filters(crowded: asyncpg.Connection) -> list[tuple[Any, Any]]:
    rows = await crowded.fetch(
        "SELECT DISTINCT payment_id FROM money_case WHERE payment_id IS NOT NULL LIMIT 3"
    )
    payment_ids = [row["payment_id"] for row in rows]
    return [
        (read, build(payment_ids=payment_ids, oldest_first=oldest_first))
        for read, build in (
            (case_lists.list_cases, CaseFilter),
            (dispute_store.list_disputes, DisputeFilter),
            (refund_lists.list_refunds, RefundFilter),
        )
        for oldest_first in (False, True)
    ]


async def _filtered(read: Any, filters: Any, recorder: Recorder) -> None:
    await read(recorder, filters, _LIMIT)


async def _deliveries(merchant_id: int | None, state: str | None, recorder: Recorder) -> None:
    await delivery_store.list_deliveries(recorder, _LIMIT, merchant_id=merchant_id, state=state)


async def _own_refunds(merchant_id: int, status: str | None, recorder: Recorder) -> None:
    filters = MerchantRefundFilter(merchant_id=merchant_id, status=status)
    await refund_lists.list_by_update(recorder, filters, _LIMIT)


async def _refunds(filters: RefundFilter, recorder: Recorder) -> None:
    await refund_lists.list_refunds(recorder, filters, _LIMIT)


async def test_a_page_of_a_payment_history_reads_only_its_payment(
    crowded: asyncpg.Connection,
) -> None:
    payment_id = await crowded.fetchval("SELECT id FROM payment WHERE status = 'FAILED' LIMIT 1")
    for read, pages in (
        (lambda recorder: history_store.list_entries(recorder, payment_id, None, 100, 100), 150),
        (lambda recorder: history_store.list_subject_ids(recorder, payment_id), 20),
    ):
        recorder = Recorder()
        await read(recorder)
        await _check_plan(crowded, recorder, pages=pages)


async def test_counting_missed_events_does_not_read_delivered_events(
    world: World, crowded: asyncpg.Connection
) -> None:
    missed = MissedEvents(merchant_id=world.merchant_id)
    count = await crowded.fetchval(
        "SELECT count(*) FROM delivery WHERE state = 'dead' AND merchant_id = $1", world.merchant_id
    )
    recorder = Recorder()
    with pytest.raises(AssertionError):  # because the recorder returns no rows
        await delivery_store.count_missed(recorder, missed)
    await _check_plan(crowded, recorder, pages=20 + 4 * count, mode="force_custom_plan")
