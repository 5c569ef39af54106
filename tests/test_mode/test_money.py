"""Test money does not appear in the books, the figures or a gateway's lists."""

from pathlib import Path

import pytest
from prometheus_client import REGISTRY
from prometheus_client.samples import Sample

from payintent.accounting.close_statements import close_due_days
from payintent.accounting.ledger_operations import BackfillLedger, CheckLedger
from payintent.cases.model import CaseKind
from payintent.cases.operations import ListCases
from payintent.overview import store as overview_store
from payintent.overview.hourly_figures import count_outcomes
from payintent.reconciliation.file import HEADER
from payintent.reconciliation.operations import ListReconciliationRuns
from payintent.reconciliation.runs import compare_new_files
from payintent.reconciliation.sources import FolderSource
from payintent.refunds.resolve_case import ResolveCase
from payintent.worker_metrics import measure
from tests.http.builtin_gateway import act, side
from tests.refunds.requests import post_refund as refund
from tests.refunds.requests import process_refunds as send_refunds
from tests.support.world import Api, World

__all__ = ["side"]

_DAY_S = 24 * 3600
_LATE_CARD, _LESS_CARD = "4000009900000103", "4000009900000079"
_BOOKS = ("ledger_entry", "statement", "statement_close", "gateway_payout", "payout")
_WAITING = ("AMOUNT_MISMATCH", "DISPUTE", "LATE_PAYMENT")


async def _play(side: Api) -> None:
    """Create payments that are paid, refunded in part and disputed, and unassigned money."""
    created = await side.create()
    assert (await act(side, created, "pay")).json["status"] == "PAID"
    assert (await refund(side, created, amount="90.00")).status == 201
    await send_refunds(side.world)
    for state in ("open", "lost"):
        assert (await act(side, created, "dispute", state=state)).status == 200
    for card in (_LATE_CARD, _LESS_CARD):
        await act(side, await side.create(), "pay", card=card)
    payments = await side.world.rows("SELECT status FROM payment ORDER BY created_at, id")
    assert [row["status"] for row in payments] == ["PARTIALLY_REFUNDED", "FAILED", "FAILED"]
    [taken] = await side.world.rows("SELECT count(*) AS n FROM capture")
    assert taken["n"] == 3


@pytest.fixture
async def played(side: Api) -> Api:
    await _play(side)
    return side


def _figures_of_the_test_gateway() -> list[Sample]:
    return [
        sample
        for metric in REGISTRY.collect()
        for sample in metric.samples
        if sample.labels.get("provider") == "test"
    ]


async def _rows(world: World, table: str) -> int:
    [row] = await world.rows(f"SELECT count(*) AS n FROM {table}")
    return row["n"]


async def _resolve_all(world: World) -> None:
    cases = await world.perform(ListCases())
    assert sorted(case.kind for case in cases) == sorted(_WAITING)
    for case in cases:
        await world.perform(ResolveCase(case_id=case.id, resolution="accept", note="a test"))


async def _close_days(world: World) -> None:
    await world.move_clock(3 * _DAY_S)
    while await close_due_days(world.database):
        pass


async def test_ledger_and_statements_exclude_payments_at_the_test_gateway(
    played: Api,
) -> None:
    world = played.world
    await _resolve_all(world)
    assert (await world.perform(BackfillLedger())).facts == 0
    assert await world.perform(CheckLedger()) == []
    await _close_days(world)
    assert {table: await _rows(world, table) for table in _BOOKS} == dict.fromkeys(_BOOKS, 0)
    for path in ("/v1/balance", "/v1/statements"):
        answer = await played.send("GET", path, headers=played.bearer())
        assert (answer.status, answer.json) == (200, {"data": []}), path


async def test_no_statement_is_created_for_a_test_merchant(played: Api) -> None:
    world = played.world
    await world.rows(
        "INSERT INTO ledger_entry (fact_id, fact, leg, merchant_id, debit, credit, amount,"
        " currency)"
        " SELECT id, 'capture', 'net', $1::bigint, 'gateway_clearing:1',"
        " 'merchant_payable:' || $1::bigint, 1, 'THB' FROM capture LIMIT 1",
        world.merchant_id,
    )
    await _close_days(world)
    assert await _rows(world, "statement") == 0


async def test_the_operators_figures_exclude_payments_at_the_test_gateway(side: Api) -> None:
    service = side.world.service
    # Earlier tests in this process may have counted refused callbacks of the test gateway.
    before = _figures_of_the_test_gateway()
    await _play(side)
    await side.world.move_clock(10)  # the counts have settled
    while await count_outcomes(side.world.database):
        pass
    await measure(service)
    assert _figures_of_the_test_gateway() == before
    assert await overview_store.measure_open_cases(side.world.database) == {}
    overview = await overview_store.read_overview(side.world.database, None, with_conversion=True)
    assert (overview.hours, overview.conversion) == ([], [])
    assert overview.waiting.cases == len(_WAITING)  # these figures include both modes


async def test_requests_to_the_test_gateway_are_not_in_the_gateway_call_log(
    played: Api,
) -> None:
    await played.world.service.accounts.log.flush()
    assert await _rows(played.world, "gateway_call") == 0


async def test_a_gateway_file_for_a_test_account_is_refused_with_a_reason(
    played: Api, tmp_path: Path
) -> None:
    world = played.world
    folder = tmp_path / str(world.account_id)
    folder.mkdir()
    line = "payment,cap-1,,1.00,THB,2026-11-21T08:00:00Z"
    (folder / "file.csv").write_text("\n".join([",".join(HEADER), line, ""]))
    await compare_new_files(world.service.reconciliation_context, FolderSource(str(tmp_path)))
    [run] = await world.perform(ListReconciliationRuns())
    message = f"account {world.account_id} is a test account; its payments are not in the ledger"
    assert (run.status, run.problem, run.opened) == ("failed", message, 0)
    assert await world.perform(ListCases(kind=CaseKind.RECONCILIATION)) == []
