"""No statement of a hot path scans a table that grows with payments.

The statements are recorded from the running service, with a history of about ten thousand payments.
Their generic plans are checked, as for prepared statements.
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
#: Tables that grow with payments. All other tables contain what operators configure.
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
#: With ten thousand payments, these tables are still so small that a scan is the best plan. To
#: detect a missing index, scans are disabled.
SMALL = GROWING - {"payment", "session", "checkout", "event", "delivery", "attempt", "capture"}
REQUIRED_INDEXES = (
    *("payment_due", "payment_ended", "delivery_due", "session_payment", "refund_due"),
    *("payment_order_number", "attempt_event", "money_case_payment", "capture_payment"),
)
_PARTIAL = "SELECT indexrelid::regclass::text FROM pg_index WHERE indpred IS NOT NULL"
_BY_KEY = re.compile(r"\bid = ")
_PLANNED = re.compile(r"\s*(SELECT|WITH|INSERT|UPDATE|DELETE)\b")


@contextmanager
def _statements(statements: set[str]) -> Iterator[None]:
    """Record every statement that is sent to the database."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("fetch", "fetchrow"):
            send = getattr(asyncpg.Connection, name)

            async def record(connection: Any, query: str, *args: Any, send: Any = send) -> Any:
                statements.add(query)
                return await send(connection, query, *args)

            patch.setattr(asyncpg.Connection, name, record)
        yield


async def _run_all(work: Work) -> None:
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
    await _use_portal(database, merchant_id, payment_id)
    await _investigate(service, payment_id)
    for criteria in (
        payment_lists.PaymentFilter(merchant_id=merchant_id, payer_uid="buyer-1"),
        payment_lists.PaymentFilter(merchant_id=merchant_id, currencies=("THB",)),
    ):
        await payment_lists.list_payments(database, criteria)


async def _use_portal(database: Database, merchant_id: int, payment_id: UUID) -> None:
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


async def _investigate(service: Service, payment_id: UUID) -> None:
    """Act as an operator who investigates a payment, and as a gateway's callback."""
    database = service.database
    public_id = ids.format_id(ids.PAYMENT, payment_id)
    actor = Actor("test", "it is looked up")
    await service.run_operation(ShowPayment(payment_id=public_id), actor)
    await service.run_operation(ShowTimeline(payment_id=public_id), actor)
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
async def hot_paths(settings: Settings) -> AsyncIterator[tuple[set[str], asyncpg.Connection]]:
    """The statements of the hot paths, and a connection to the database with a history."""
    service = await open_service(settings, {"simulator": AcceptingGateway()})
    await seed(service, PAYMENTS, 90, lambda _: None)
    raw = await asyncpg.connect(settings.database_url)
    work = await Work.open(service, raw, Random(13))
    work.each = 2
    statements: set[str] = set()
    with _statements(statements):
        await _run_all(work)
    yield {statement for statement in statements if _PLANNED.match(statement)}, raw
    await raw.close()
    await service.close()


async def _list_scans(raw: asyncpg.Connection, statements: set[str]) -> list[str]:
    """List the tables that are scanned completely, with the statements that scan them."""
    partial = {row[0] for row in await raw.fetch(_PARTIAL)}
    scans: set[str] = set()
    for seqscan, tables in (("on", GROWING - SMALL), ("off", GROWING)):
        await raw.execute(f"SET enable_seqscan = {seqscan}")
        for statement in statements:
            scans |= {
                f"{node['Node Type']} of {node['Relation Name']}: {' '.join(statement.split())}"
                for node in nodes(await generic_plan(raw, statement))
                if node.get("Relation Name") in tables and _reads_all(node, partial)
            }
    return sorted(scans)


def _reads_all(node: dict[str, Any], partial: set[str]) -> bool:
    """Return whether a table, a complete index, or all merchants' rows are scanned."""
    if node["Node Type"] == "Seq Scan":
        return True
    if not node["Node Type"].startswith("Index") or node["Index Name"] in partial:
        return False
    condition = node.get("Index Cond", "")
    return not condition or (
        "merchant_id = " in node.get("Filter", "") and not _BY_KEY.search(condition)
    )


async def test_no_statement_of_a_hot_path_scans_a_growing_table(
    hot_paths: tuple[set[str], asyncpg.Connection],
) -> None:
    statements, raw = hot_paths
    assert len(statements) > 70
    assert await _list_scans(raw, statements) == []
    # The check works: if any of these indexes is missing, a table is scanned.
    for index in REQUIRED_INDEXES:
        transaction = raw.transaction()
        await transaction.start()
        await raw.execute(f"DROP INDEX {index}")
        assert await _list_scans(raw, statements), index
        await transaction.rollback()
    # Rows that retention has already processed are not read again.
    assert {"payment_payer_details", "payment_payer", "chain_receipt_address"} <= await _indexes(
        raw, statements
    )
    assert 101 in await _estimate_limit_rows(raw)


async def _indexes(raw: asyncpg.Connection, statements: set[str]) -> set[str]:
    """Return the names of the indexes that the statements use."""
    plans = [await generic_plan(raw, statement) for statement in statements]
    return {node["Index Name"] for plan in plans for node in nodes(plan) if "Index Name" in node}


async def _estimate_limit_rows(raw: asyncpg.Connection) -> list[int]:
    """List the row estimates of a page's generic plan with an unknown limit.

    If they grow with the table, each call is planned again, which costs as much as running it.
    """
    recorder = Recorder()
    await payment_lists.list_payments(recorder, payment_lists.PaymentFilter(merchant_id=1))
    plan = await generic_plan(raw, recorder.query)
    return [node["Plan Rows"] for node in nodes(plan) if node["Node Type"] == "Limit"]
