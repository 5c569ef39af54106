"""A gateway's list compared with the records of two cells: each line belongs to one of them."""

from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from payintent.domain import ids
from payintent.domain.errors import RefusedError, StorageUnavailableError
from payintent.domain.gateway import (
    DisputedFunds,
    DisputeReport,
    DisputeState,
    GatewayRefundState,
    RefundReport,
)
from payintent.domain.payment import Payment
from payintent.domain.refund import RefundStep
from payintent.operations.reconcile import CompareProviderFile, ReconcileProviderFile
from payintent.operations.reconciliation_runs import (
    ListReconciliationRuns,
    ShowReconciliationRun,
)
from payintent.payments.record_dispute import take_dispute
from payintent.payments.settle_refund import settle_refund
from payintent.payments.transitions import lock_payments
from payintent.reconciliation import over_cells
from payintent.reconciliation.compare import ReconciliationInput, ReconciliationResult
from payintent.reconciliation.generic_layout import HEADER
from payintent.reconciliation.intake import take_files
from payintent.reconciliation.provider_file import open_provider_file
from payintent.reconciliation.sources import FolderSource
from payintent.storage import captures, reconciliation_runs, refunds
from payintent.storage.reconciliation_runs import RunRecord
from payintent.storage.refunds import NewRefund
from tests.support.cell_schema import OF_CELLS
from tests.support.cells import copy_tables
from tests.support.databases import Databases
from tests.support.fakes import captured
from tests.support.two_cells import SeveralCells, TwoCells, several_cells, two_cells
from tests.support.world import World

pytestmark = OF_CELLS
_AT = "2026-11-21T08:00:00Z"
_LEFT = "UPDATE reconciliation_run SET lease_until = clock() - interval '1 second'"
_LONG_AGO, _FAR_AWAY = datetime(2000, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)
Put = Callable[..., Path]


@pytest.fixture
async def two(world: World, databases: Databases) -> AsyncIterator[TwoCells]:
    async with two_cells(world, databases) as made:
        yield made


@pytest.fixture
def put(world: World, tmp_path: Path) -> Put:
    """Put a file of lines into the folder of the account."""

    def placed(*lines: str) -> Path:
        path = tmp_path / str(world.account_id) / "file.csv"
        path.parent.mkdir(exist_ok=True)
        path.write_text("\n".join([",".join(HEADER), *lines, ""]))
        return path

    return placed


async def _merchants(two: TwoCells) -> dict[int, int]:
    """Give a merchant of each cell."""
    return {0: (await two.world.other_merchant()).merchant.id, 1: two.world.merchant_id}


async def _begin(
    two: TwoCells, merchant_id: int, amount_minor: int = 159_000
) -> tuple[Payment, UUID]:
    [method] = await two.world.service.cells.control.fetch(
        "SELECT id FROM payment_method WHERE merchant_id = $1 ORDER BY position LIMIT 1",
        merchant_id,
    )
    amount = f"{amount_minor / 100:.2f}"
    payment = await two.world.create(
        merchant_id=merchant_id, amount=Decimal(amount), amount_text=amount
    )
    return payment, (await two.world.select(payment, method["id"])).session.id


async def _pay(
    two: TwoCells, merchant_id: int, reference: str, amount_minor: int = 159_000
) -> Payment:
    payment, session_id = await _begin(two, merchant_id, amount_minor)
    return await two.world.report(payment, session_id, captured(amount_minor, reference=reference))


async def _refund(
    two: TwoCells,
    payment: Payment,
    reference: str,
    state: GatewayRefundState | None = GatewayRefundState.DONE,
) -> UUID:
    """Refund 90.00 of a payment; by default the gateway has done it, else it has the reference."""
    database = two.world.service.cells.of(payment.id)
    async with database.transaction() as tx:
        locked = await lock_payments(tx, [payment.id])
        held = await captures.lock_credited(tx, payment.id)
        new = NewRefund(
            id=database.id_generator.new_id(),
            merchant_id=payment.merchant_id,
            payment_id=payment.id,
            capture_id=held.id,
            case_id=None,
            amount=Decimal("90.00"),
            amount_text="90.00",
            currency="THB",
            amount_minor=9_000,
            reason="a book was missing",
            destination=None,
            step=RefundStep.SENT,
            requested_by="tests",
            at=locked.now,
        )
        refund_id = (await refunds.add(tx, new)).id
        if state is None:
            await tx.fetch("UPDATE refund SET reference = $2 WHERE id = $1", refund_id, reference)
        else:
            report = RefundReport(state=state, reference=reference)
            await settle_refund(tx, refund_id, report)
    return refund_id


async def _compare(two: TwoCells, path: Path, *, write: bool = True, **more: Any) -> Any:
    fields = {"provider": "fake", "since": _LONG_AGO, "until": _FAR_AWAY} | more
    comparison = ReconciliationInput(file=open_provider_file(path), **fields)
    kind = ReconcileProviderFile if write else CompareProviderFile
    return await two.world.perform(kind(comparison=comparison))


async def _cases(two: TwoCells) -> set[tuple[int, str]]:
    """Give the cell of each case, and the beginning of what it says."""
    return {
        (cell, row["subject"].partition(",")[0])
        for cell, database in two.world.service.cells.items()
        for row in await database.fetch("SELECT subject FROM money_case")
    }


async def _take(two: TwoCells, folder: Path) -> list[RunRecord]:
    await take_files(two.world.service.reconciliation_context, FolderSource(str(folder)))
    return await two.world.perform(ListReconciliationRuns())


def _counts(found: ReconciliationResult) -> dict[str, tuple[int, ...]]:
    return {
        one.type: (one.lines, one.matched, one.missing, one.extra, one.different)
        for one in found.tallies
    }


async def test_each_cell_has_its_own_lines_and_cell_0_those_that_no_cell_knows(
    two: TwoCells, put: Put
) -> None:
    for cell, merchant_id in (await _merchants(two)).items():
        for what in ("same", "less", "lost"):
            payment = await _pay(two, merchant_id, f"{what}-{cell}")
            if what == "same":
                for refund in ("same", "lost"):
                    await _refund(two, payment, f"back-{refund}-{cell}")
    _, open_session = await _begin(two, two.world.merchant_id)
    named = ids.format_id(ids.SESSION, open_session)
    path = put(
        *(f"payment,same-{cell},,1590.00,THB,{_AT}" for cell in (0, 1)),
        *(f"payment,less-{cell},,1500.00,THB,{_AT}" for cell in (0, 1)),
        *(f"refund,back-same-{cell},,90.00,THB,{_AT}" for cell in (0, 1)),
        f"payment,unknown,,12.00,THB,{_AT}",
        f"payment,untold,{named},1590.00,THB,{_AT}",
        f"refund,unknown-back,,12.00,THB,{_AT}",
    )
    foreseen = await _compare(two, path, write=False)
    assert await _cases(two) == set()
    found = await _compare(two, path)
    assert found.tallies == foreseen.tallies
    assert _counts(found) == {"payment": (6, 2, 2, 2, 2), "refund": (3, 2, 2, 1, 0)}
    assert (found.opened, found.asked) == (9, 1)
    sums = {one.type: (one.lines, one.records, one.gateway, one.ledger) for one in found.sums}
    assert sums == {"payment": (6, 6, "7782", "9540"), "refund": (3, 4, "192", "360")}
    assert await _cases(two) == {
        *((cell, f"fake payment less-{cell}: different") for cell in (0, 1)),
        *((cell, f"fake payment lost-{cell}: missing") for cell in (0, 1)),
        *((cell, f"fake refund back-lost-{cell}: missing") for cell in (0, 1)),
        (0, "fake payment unknown: extra"),
        (0, "fake refund unknown-back: extra"),
        (1, "fake payment untold: extra"),
    }
    assert (await _compare(two, path)).opened == 0


async def test_money_that_two_cells_count_and_the_gateway_has_once_is_a_case(
    two: TwoCells, put: Put
) -> None:
    for merchant_id in (await _merchants(two)).values():
        payment = await _pay(two, merchant_id, "twice")
        await _refund(two, payment, "back-twice")
    path = put(f"payment,twice,,1590.00,THB,{_AT}", f"refund,back-twice,,90.00,THB,{_AT}")
    found = await _compare(two, path, since=_FAR_AWAY)  # nothing is expected by its time
    assert _counts(found) == {"payment": (1, 1, 1, 0, 0), "refund": (1, 1, 1, 0, 0)}
    sums = {one.type: (one.lines, one.records, one.gateway, one.service) for one in found.sums}
    assert sums == {"payment": (1, 2, "1590", "3180"), "refund": (1, 2, "90", "180")}
    assert await _cases(two) == {
        (1, "fake payment twice: missing"),
        (1, "fake refund back-twice: missing"),
    }


async def test_a_line_of_two_cells_is_left_where_the_record_says_the_same(
    two: TwoCells, put: Put
) -> None:
    for cell, merchant_id in (await _merchants(two)).items():
        payment = await _pay(two, merchant_id, "twice", 50_000 * (cell + 1))
        await _refund(two, payment, "back-twice", None if cell == 0 else GatewayRefundState.DONE)
    path = put(f"payment,twice,,1000.00,THB,{_AT}", f"refund,back-twice,,90.00,THB,{_AT}")
    found = await _compare(two, path, since=_FAR_AWAY)
    assert _counts(found) == {"payment": (1, 1, 1, 0, 0), "refund": (1, 1, 0, 0, 0)}
    assert await _cases(two) == {(0, "fake payment twice: missing")}


async def test_disputed_money_is_compared_in_its_cell_and_counted_once(
    two: TwoCells, put: Put
) -> None:
    service = two.world.service
    for cell, merchant_id in (await _merchants(two)).items():
        await _pay(two, merchant_id, f"cap-{cell}")
        for reference in (f"dispute-{cell}", "dispute-twice"):
            report = DisputeReport(
                reference=reference,
                capture=f"cap-{cell}",
                state=DisputeState.OPEN,
                funds=DisputedFunds.WITHDRAWN,
                amount_minor=1_000,
                currency="THB",
                reason="fraudulent",
                respond_by=None,
            )
            database = service.cells.at(cell)
            async with database.transaction() as tx:
                await take_dispute(tx, two.world.account_id, report)
    path = put(
        *(f"payment,cap-{cell},,1590.00,THB,{_AT}" for cell in (0, 1)),
        *(f"dispute,dispute-{cell},,10.00,THB,{_AT}" for cell in (0, 1)),
        f"dispute,dispute-twice,,10.00,THB,{_AT}",
    )
    found = await _compare(two, path, since=_FAR_AWAY)
    assert _counts(found)["dispute"] == (3, 3, 1, 0, 0)
    assert {cell for cell, said in await _cases(two) if said.endswith("missing")} == {1}


async def test_more_lines_of_two_cells_than_can_be_are_refused_and_nothing_is_written(
    two: TwoCells, put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    for merchant_id in (await _merchants(two)).values():
        await _pay(two, merchant_id, "twice")
    monkeypatch.setattr(over_cells, "OPENED_MAX", 0)
    with pytest.raises(RefusedError, match="records of several cells"):
        await _compare(two, put(f"payment,twice,,1590.00,THB,{_AT}"))
    assert await _cases(two) == set()


async def test_a_list_waits_for_a_cell_that_is_away_and_opens_no_case(
    two: TwoCells, put: Put, tmp_path: Path
) -> None:
    await _pay(two, two.world.merchant_id, "cap-1")
    path = put(f"payment,cap-1,,1590.00,THB,{_AT}")
    await two.away(1)
    for _ in range(7):  # more often than a run may be begun
        assert await _take(two, tmp_path) == []
    for write in (False, True):
        with pytest.raises(RefusedError, match="cell 1 does not answer: nothing can be compared"):
            await _compare(two, path, write=write)
    await two.back(1)
    assert await _cases(two) == set()
    [run] = await _take(two, tmp_path)
    assert (run.status, run.lines, run.opened, run.attempts) == ("matched", 1, 0, 1)


async def test_a_worker_that_dies_between_two_cells_doubles_nothing(
    two: TwoCells, put: Put, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for cell, merchant_id in (await _merchants(two)).items():
        await _pay(two, merchant_id, f"less-{cell}")
    put(*(f"payment,less-{cell},,1500.00,THB,{_AT}" for cell in (0, 1)))

    async def die(*_: object) -> None:
        raise StorageUnavailableError("the worker is gone")

    with monkeypatch.context() as patched:  # cell 1 has committed, control never does
        patched.setattr(reconciliation_runs, "end", die)
        with pytest.raises(StorageUnavailableError):
            await _take(two, tmp_path)
    assert await _cases(two) == {(1, "fake payment less-1: different")}
    await two.world.service.cells.control.fetch(_LEFT)
    [run] = await _take(two, tmp_path)
    assert (run.status, run.lines, run.opened, run.attempts) == ("differs", 2, 1, 2)
    assert await _cases(two) == {(cell, f"fake payment less-{cell}: different") for cell in (0, 1)}
    [sums] = (await two.world.perform(ShowReconciliationRun(run_id=run.id))).sums
    assert (sums.lines, sums.records, sums.gateway, sums.service) == (2, 2, "3000", "3180")


async def _in_three(two: SeveralCells) -> dict[int, int]:
    """Give a merchant of each of three cells."""
    merchants = {cell: (await two.world.other_merchant()).merchant.id for cell in (0, 1, 2)}
    for cell in (1, 2):
        await two.move(cell, merchants[cell])
    await copy_tables(two.world.service.cells)
    return merchants


async def test_lines_of_three_cells_are_parted_among_them_and_wait_for_each(
    world: World, databases: Databases, put: Put, tmp_path: Path
) -> None:
    async with several_cells(world, databases, (1, 2)) as three:
        merchants = await _in_three(three)
        for cell, merchant_id in merchants.items():
            payment = await _pay(three, merchant_id, f"same-{cell}")
            await _refund(three, payment, f"back-{cell}")
            await _pay(three, merchant_id, f"lost-{cell}")
            await _pay(three, merchant_id, "thrice", 50_000 * (cell + 1))
            if cell:
                await _pay(three, merchant_id, "twice")
        path = put(
            *(f"payment,same-{cell},,1590.00,THB,{_AT}" for cell in merchants),
            *(f"refund,back-{cell},,90.00,THB,{_AT}" for cell in merchants),
            f"payment,thrice,,1000.00,THB,{_AT}",
            f"payment,twice,,1590.00,THB,{_AT}",
            f"payment,unknown,,12.00,THB,{_AT}",
        )
        for cell in (1, 2):
            await three.away(cell)
            with pytest.raises(RefusedError, match=f"cell {cell} does not answer"):
                await _compare(three, path)
            assert await _take(three, tmp_path) == []
            await three.back(cell)
        assert await _cases(three) == set()
        found = await _compare(three, path)
        assert _counts(found) == {"payment": (6, 5, 6, 1, 0), "refund": (3, 3, 0, 0, 0)}
        assert await _cases(three) == {
            *((cell, f"fake payment lost-{cell}: missing") for cell in merchants),
            *((cell, "fake payment thrice: missing") for cell in (0, 2)),
            (2, "fake payment twice: missing"),
            (0, "fake payment unknown: extra"),
        }
