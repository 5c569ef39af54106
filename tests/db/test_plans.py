"""No statement of a hot path scans a table that grows with payments.

The statements are recorded from the running service, with a history of about ten thousand payments,
and get the generic plan of prepared statements.
"""

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from bench.flat_work import OPERATIONS, AcceptingGateway, Work
from payintent import worker as worker_steps
from payintent import worker_metrics
from payintent.callbacks import store as callback_store
from payintent.callbacks.receive import apply_deferred_callbacks
from payintent.core import ids
from payintent.db.database import Database
from payintent.merchants import call_log
from payintent.operators.operation import Actor
from payintent.overview import hourly_figures
from payintent.payment_history.operations import ShowPayment, ShowTimeline
from payintent.payments import captures_store as capture_store
from payintent.payments import list_store as payment_lists
from payintent.payments import search_store as payment_search
from payintent.payments import sessions_store as session_store
from payintent.payments import store as payment_store
from payintent.refunds import list_store as refund_lists
from payintent.refunds import store as refund_store
from payintent.refunds.list_store import MerchantRefundFilter
from payintent.runtime.settings import Settings
from payintent.service import Service, open_service
from payintent.webhooks import deliveries_store as delivery_store
from payintent.webhooks import endpoints_store, feed_store
from payintent_sandbox.seed.history import seed
from tests.support.plans import Recorder, generic_plan, nodes

pytestmark = pytest.mark.full

PAYMENTS = 10_000
#: What grows with payments. Of others there are as many rows as operators set up.
GROWING = {
    *(
        "payment",
        "session",
        "checkout",
        "ledger_entry",
        "event",
        "delivery",
        "attempt",
        "callback",
        "capture",
    ),
    *("refund", "money_case", "idempotency", "audit", "dispute", "gateway_call", "api_call"),
    "chain_receipt",
}
#: Of these a history of ten thousand payments has so few rows that reading them through is right.
#: What an index is for is seen where that is forbidden.
FEW = GROWING - {"payment", "session", "checkout", "event", "delivery", "attempt", "capture"}
GUARDED = (
    *("payment_due", "payment_ended", "delivery_due", "session_payment", "refund_due"),
    *("payment_order_number", "attempt_event", "money_case_payment", "capture_payment"),
)
_PARTIAL = "SELECT indexrelid::regclass::text FROM pg_index WHERE indpred IS NOT NULL"
_BY_KEY = re.compile(r"\bid = ")
_PLANNED = re.compile(r"\s*(SELECT|WITH|INSERT|UPDATE|DELETE)\b")


@contextmanager
def _statements(into: set[str]) -> Iterator[None]:
    """Record every statement that is sent to the database."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("fetch", "fetchrow"):
            send = getattr(asyncpg.Connection, name)

            async def kept(connection: Any, query: str, *args: Any, send: Any = send) -> Any:
                into.add(query)
                return await send(connection, query, *args)

            patch.setattr(asyncpg.Connection, name, kept)
        yield


async def _do_all(work: Work) -> None:
    """Run the daily work of merchants, buyers, gateways and the worker."""
    service = work.service
    for do in OPERATIONS.values():
        await do(work)
    database, merchant_id = service.database, work.merchant_id
    _, payment_id = work.any_age[0]
    limit = 10
    await worker_steps.expire(database, service.settings)
    await worker_steps.prune(database, service.settings)
    await worker_steps._apply_retention(database, service.settings)
    await worker_metrics.measure(service)
    await apply_deferred_callbacks(database, limit)
    await session_store.claim_due(database, limit, 60.0, [])
    await refund_store.claim_due(database, limit, 60.0, [])
    await hourly_figures.count_outcomes(database)
    await payment_store.get_change_markers(database, [payment_id])
    await feed_store.number_new_events(database, merchant_id)
    await feed_store.read_page(database, merchant_id, feed_store.FEED_START, [], limit)
    await feed_store.get_change_markers(database, [merchant_id])
    await delivery_store.list_deliveries(database, limit, merchant_id=merchant_id)
    await refund_lists.list_for_merchant(database, merchant_id, None, limit)
    await _look_at_the_portal(database, merchant_id, payment_id)
    await _look_up(service, payment_id)
    for wanted in (
        payment_lists.PaymentFilter(merchant_id=merchant_id, payer_uid="buyer-1"),
        payment_lists.PaymentFilter(merchant_id=merchant_id, currencies=("THB",)),
    ):
        await payment_lists.list_payments(database, wanted)


async def _look_at_the_portal(database: Database, merchant_id: int, payment_id: UUID) -> None:
    """Act as a member who opens the first page, and filters and exports lists."""
    await endpoints_store.get_endpoint_health(database, merchant_id)
    await delivery_store.list_deliveries(
        database, 10, merchant_id=merchant_id, payment_ids=[payment_id]
    )
    await refund_lists.list_for_order(database, [payment_id], None, 10, status="FAILED")
    criteria = MerchantRefundFilter(merchant_id=merchant_id, status="FAILED")
    await refund_lists.list_by_update(database, criteria, 10)
    for only_failed in (True, False):
        await call_log.list_api_calls(database, merchant_id, 10, only_failed=only_failed)


async def _look_up(service: Service, payment_id: UUID) -> None:
    """Act as an operator who investigates a payment, and as a gateway's callback."""
    database = service.database
    named = ids.format_id(ids.PAYMENT, payment_id)
    actor = Actor("test", "it is looked up")
    await service.run_operation(ShowPayment(payment_id=named), actor)
    await service.run_operation(ShowTimeline(payment_id=named), actor)
    await payment_search.find_by_order(database, "A-7")
    await payment_search.find_by_email(database, "buyer-7@example.com")
    await payment_search.find_by_reference(database, "pi_7")
    await payment_search.find_by_id(database, payment_id)
    await payment_search.find_by_checkout(database, "cs_0000000000000007")
    await refund_lists.list_for_payment(database, payment_id, None, 10)
    async with database.transaction() as tx:
        await capture_store.find(tx, 1, "pi_7")
        new = callback_store.NewCallback(
            account_id=1, callback_id="7", session_id=None, refund_id=None, report=None, body=b""
        )
        await callback_store.add(tx, [new])


@pytest.fixture
async def found(settings: Settings) -> AsyncIterator[tuple[set[str], asyncpg.Connection]]:
    """The statements of the hot paths, and a connection to the database with a history."""
    service = await open_service(settings, {"simulator": AcceptingGateway()})
    await seed(service, PAYMENTS, 90, lambda _: None)
    raw = await asyncpg.connect(settings.database_url)
    work = await Work.open(service, raw, Random(13))
    work.each = 2
    statements: set[str] = set()
    with _statements(statements):
        await _do_all(work)
    yield {statement for statement in statements if _PLANNED.match(statement)}, raw
    await raw.close()
    await service.close()


async def _read_through(raw: asyncpg.Connection, statements: set[str]) -> list[str]:
    """List the tables, with the statements, that are scanned completely."""
    partial = {row[0] for row in await raw.fetch(_PARTIAL)}
    bad: set[str] = set()
    for seqscan, tables in (("on", GROWING - FEW), ("off", GROWING)):
        await raw.execute(f"SET enable_seqscan = {seqscan}")
        for statement in statements:
            bad |= {
                f"{node['Node Type']} of {node['Relation Name']}: {' '.join(statement.split())}"
                for node in nodes(await generic_plan(raw, statement))
                if node.get("Relation Name") in tables and _reads_all(node, partial)
            }
    return sorted(bad)


def _reads_all(node: dict[str, Any], partial: set[str]) -> bool:
    """Return whether a table, a complete index, or all merchants' rows are scanned."""
    if node["Node Type"] == "Seq Scan":
        return True
    if not node["Node Type"].startswith("Index") or node["Index Name"] in partial:
        return False
    within = node.get("Index Cond", "")
    return not within or ("merchant_id = " in node.get("Filter", "") and not _BY_KEY.search(within))


async def test_no_statement_of_a_hot_path_scans_a_growing_table(
    found: tuple[set[str], asyncpg.Connection],
) -> None:
    statements, raw = found
    assert len(statements) > 70
    assert await _read_through(raw, statements) == []
    # What the test is to see, it does: without any of these, something is read through.
    for index in GUARDED:
        change = raw.transaction()
        await change.start()
        await raw.execute(f"DROP INDEX {index}")
        assert await _read_through(raw, statements), index
        await change.rollback()
    # What retention has pruned before is not read again.
    assert {"payment_payer_details", "payment_payer", "chain_receipt_address"} <= await _indexes(
        raw, statements
    )
    assert 101 in await _bounds_foreseen(raw)


async def _indexes(raw: asyncpg.Connection, statements: set[str]) -> set[str]:
    """Return the names of the indexes with which the statements start."""
    plans = [await generic_plan(raw, statement) for statement in statements]
    return {node["Index Name"] for plan in plans for node in nodes(plan) if "Index Name" in node}


async def _bounds_foreseen(raw: asyncpg.Connection) -> list[int]:
    """List the row estimates of a page's generic plan, whose limit is unknown.

    If they grow with the table, each call is planned again, which costs as much as running it.
    """
    asked = Recorder()
    await payment_lists.list_payments(asked, payment_lists.PaymentFilter(merchant_id=1))
    plan = await generic_plan(raw, asked.query)
    return [node["Plan Rows"] for node in nodes(plan) if node["Node Type"] == "Limit"]
