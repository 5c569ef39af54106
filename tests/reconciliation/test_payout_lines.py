"""Payouts in a gateway's file are recorded once; manually recorded payouts are unchanged."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

import pytest

from payintent.accounting import gateway_payouts_store as gateway_payout_store
from payintent.accounting.gateway_payouts_store import GatewayPayoutRecord
from payintent.accounting.ledger_operations import CheckLedger
from payintent.accounting.payouts_operations import (
    ListGatewayPayouts,
    RecordGatewayPayout,
    ReverseGatewayPayout,
)
from payintent.cases.operations import ListCases
from payintent.core.errors import StorageUnavailableError
from payintent.db.database import Executor, Tx
from payintent.reconciliation import listed_payouts, runs_store
from payintent.reconciliation.file import HEADER, HEADER_WITH_FEE
from payintent.reconciliation.operations import ListReconciliationRuns, ShowReconciliationRun
from payintent.reconciliation.runs import compare_new_files
from payintent.reconciliation.runs_store import RunOutcome, RunRecord
from payintent.reconciliation.sources import FolderSource
from payintent.reconciliation.sums_store import ReconciliationSum
from tests.accounting.test_payouts import balance
from tests.reconciliation.capabilities import with_capabilities
from tests.support.fakes import captured
from tests.support.world import World

pytestmark = pytest.mark.full

_AT = "2026-11-21T08:00:00Z"
_PAYMENT = f"payment,cap-1,,1590.00,THB,{_AT},"
_PAYOUT = "payout,po_1,,1543.89,THB,2026-11-23T00:30:00+07:00,46.11"
_PAYOUT_AND_FEE = "1543.89 THB and a fee of"


class Files:
    """The folder of the world's account, and a worker that processes its files."""

    def __init__(self, world: World, folder: Path) -> None:
        self.world, self.folder, self.count = world, folder, 0

    def put(self, *lines: str, header: Sequence[str] = HEADER_WITH_FEE) -> None:
        self.count += 1
        path = self.folder / str(self.world.account_id) / f"{self.count}.csv"
        path.parent.mkdir(exist_ok=True)
        path.write_text("\n".join([",".join(header), *lines, ""]))

    async def compare(self) -> RunRecord:
        """Compare the stored file; return the newest run."""
        context = self.world.service.reconciliation_context
        await compare_new_files(context, FolderSource(str(self.folder)))
        return (await self.world.perform(ListReconciliationRuns()))[0]

    async def payouts(self) -> list[GatewayPayoutRecord]:
        return await self.world.perform(ListGatewayPayouts())

    async def sums(self, run: RunRecord) -> dict[str, ReconciliationSum]:
        details = await self.world.perform(ShowReconciliationRun(run_id=run.id))
        return {side.type: side for side in details.sums}

    async def record(self, amount: str, fee: str | None = None) -> GatewayPayoutRecord:
        """Record the payout as an operator does."""
        account_id = self.world.account_id
        return await self.world.perform(
            RecordGatewayPayout(
                account_id=account_id, amount=amount, currency="THB", reference="po_1", fee=fee
            )
        )

    async def subjects(self) -> list[str | None]:
        return [case.subject for case in await self.world.perform(ListCases())]


@pytest.fixture
async def files(world: World, tmp_path: Path) -> Files:
    """A folder for files, and a single capture, `cap-1`, of 1590.00 THB."""
    payment = await world.create()
    session = (await world.select(payment)).session
    await world.report(payment, session.id, captured(159_000, reference="cap-1"))
    return Files(world, tmp_path)


async def test_a_payout_in_a_file_is_recorded_with_its_fee_and_included_in_the_sums(
    files: Files, world: World
) -> None:
    income = await balance(world, "fee_income")
    files.put(_PAYMENT, _PAYOUT)
    run = await files.compare()
    assert (run.status, run.lines, run.opened) == ("matched", 2, 0)
    [payout] = await files.payouts()
    assert (payout.reference, payout.amount, payout.fee_minor) == ("po_1", "1543.89", "4611")
    assert (payout.recorded_by, str(payout.paid_on)) == ("reconciliation", "2026-11-23")
    sums = (await files.sums(run))["payout"]
    assert (sums.currency, sums.lines, sums.records) == ("THB", 1, 1)
    assert (sums.gateway, sums.service, sums.ledger) == ("1543.89", "1543.89", "1543.89")
    assert sums.merchants == "0"
    assert await balance(world, f"gateway_clearing:{world.account_id}") == 0
    assert await balance(world, "bank") == 154_389
    assert await balance(world, "fee_income") == income + 4_611
    assert await world.perform(CheckLedger()) == []


async def test_a_payout_has_no_fee_if_the_file_has_no_fee_column(files: Files) -> None:
    files.put(_PAYMENT[:-1], f"payout,po_1,,1543.89,THB,{_AT}", header=HEADER)
    assert (await files.compare()).status == "matched"
    assert [payout.fee_minor for payout in await files.payouts()] == ["0"]


async def test_the_same_payout_in_another_file_is_not_recorded_again(files: Files) -> None:
    files.put(_PAYMENT, _PAYOUT)
    await files.compare()
    files.put(_PAYMENT, _PAYOUT, "")
    files.put(_PAYMENT[:-1], _PAYOUT.rpartition(",")[0], header=HEADER)  # without a fee
    run = await files.compare()
    assert (run.name, run.status, run.opened) == ("3.csv", "matched", 0)
    assert (await files.sums(run))["payout"].records == 1
    assert len(await files.payouts()) == 1
    assert await files.world.perform(CheckLedger()) == []


@pytest.mark.parametrize(
    ("line", "their_amount", "our_amount"),
    [
        ("1500.00,THB,{at},46.11", "1500.00 THB and a fee of 46.11", f"{_PAYOUT_AND_FEE} 1.00"),
        ("1543.89,USD,{at},", "1543.89 USD", "1543.89 THB"),
        ("1543.89,THB,{at},0", f"{_PAYOUT_AND_FEE} 0", f"{_PAYOUT_AND_FEE} 1.00"),
    ],
)
async def test_a_different_amount_opens_one_case_and_the_recorded_payout_is_unchanged(
    files: Files, line: str, their_amount: str, our_amount: str
) -> None:
    await files.record("1543.89", "1.00")
    files.put(_PAYMENT, f"payout,po_1,,{line.format(at=_AT)}")
    files.put(_PAYMENT, f"payout,po_1,,{line.format(at=_AT)}", "")
    await files.compare()
    runs = await files.world.perform(ListReconciliationRuns())
    assert [(run.status, run.opened) for run in runs] == [("differs", 0), ("differs", 1)]
    assert await files.subjects() == [
        f"fake payout po_1: different, {their_amount} there, {our_amount} here"
    ]
    [payout] = await files.payouts()
    assert (payout.amount, payout.fee_minor, payout.reversed_at) == ("1543.89", "100", None)


async def test_a_manually_reversed_payout_is_not_recorded_again(files: Files) -> None:
    recorded = await files.record("1543.89")
    await files.world.perform(ReverseGatewayPayout(payout_id=recorded.id, note="it never came"))
    files.put(_PAYMENT, _PAYOUT)
    run = await files.compare()
    assert (run.status, await files.subjects()) == ("matched", [])
    [payout] = await files.payouts()
    assert payout.id == recorded.id
    sums = (await files.sums(run))["payout"]
    assert (sums.lines, sums.records, sums.gateway, sums.service) == (1, 0, "1543.89", "0")


async def test_a_payout_of_a_merchants_own_account_belongs_to_the_merchant(
    files: Files, world: World
) -> None:
    await world.rows("UPDATE provider_account SET merchant_id = $1", world.merchant_id)
    files.put(_PAYMENT, _PAYOUT)
    assert (await files.sums(await files.compare()))["payout"].merchants == "1543.89"
    assert (await balance(world, "bank")) == 0
    assert await world.perform(CheckLedger()) == []


async def test_a_file_with_only_payouts_reports_no_missing_payments(files: Files) -> None:
    files.put(_PAYOUT, "payout,po_2,,7,JPY,2100-01-01T00:00:00Z,")
    run = await files.compare()
    assert (run.status, run.lines, run.opened) == ("matched", 2, 0)
    assert {payout.reference for payout in await files.payouts()} == {"po_1", "po_2"}


async def test_an_invalid_payout_fails_the_run_with_its_line_number(
    files: Files, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.put(_PAYOUT, _PAYMENT, _PAYOUT)
    assert (await files.compare()).problem == "line 4: duplicate of line 2"
    files.put(_PAYMENT, *(_PAYOUT.replace("po_1", f"po_{number}") for number in range(3)))
    with monkeypatch.context() as patch:
        patch.setattr(listed_payouts, "PAYOUTS_MAX", 2)
        assert (await files.compare()).problem == "line 5: a file can contain at most 2 payouts"
    files.put(_PAYMENT, _PAYOUT.replace("THB", "EUR"))
    context = with_capabilities(world.service.reconciliation_context, decimals={"THB": 2})
    await compare_new_files(context, FolderSource(str(files.folder)))
    [run, *_] = await world.perform(ListReconciliationRuns())
    assert run.problem == "line 3: fake does not support EUR"
    assert await files.payouts() == []


async def test_payouts_are_recorded_only_if_the_run_completes(
    files: Files, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.put(_PAYMENT, _PAYOUT)
    end = runs_store.end

    async def die_at_the_end(tx: Tx, run_id: UUID, outcome: RunOutcome) -> None:
        await end(tx, run_id, outcome)
        await tx.fetch("SELECT pg_terminate_backend(pg_backend_pid())")

    with monkeypatch.context() as patch:
        patch.setattr(runs_store, "end", die_at_the_end)
        with pytest.raises(StorageUnavailableError):
            await files.compare()
    assert await files.payouts() == []
    await world.rows("UPDATE reconciliation_run SET lease_until = clock() - interval '1 second'")
    assert (await files.compare()).status == "matched"
    assert len(await files.payouts()) == 1


async def test_concurrent_files_with_the_same_payouts_record_each_payout_once(
    files: Files, world: World
) -> None:
    lines = [_PAYOUT.replace("po_1", f"po_{number}") for number in range(20)]
    files.put(_PAYMENT, *lines)
    files.put(_PAYMENT, *reversed(lines))
    await asyncio.gather(*(files.compare() for _ in range(4)))
    runs = await world.perform(ListReconciliationRuns())
    assert [run.status for run in runs] == ["matched", "matched"]
    recorded = [payout.reference for payout in await files.payouts()]
    assert len(recorded) == 20
    assert recorded == sorted(recorded, reverse=True)  # a fixed order prevents deadlocks
    assert await world.perform(CheckLedger()) == []


async def test_a_different_payout_recorded_during_the_comparison_stays_and_opens_a_case(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    find_latest = gateway_payout_store.find_latest

    async def find_before_it_is_recorded(
        database: Executor, account_id: int, references: Sequence[str]
    ) -> dict[str, GatewayPayoutRecord]:
        monkeypatch.setattr(gateway_payout_store, "find_latest", find_latest)
        latest = await find_latest(database, account_id, references)
        await files.record("1.00", "46.11")
        return latest

    monkeypatch.setattr(gateway_payout_store, "find_latest", find_before_it_is_recorded)
    files.put(_PAYMENT, _PAYOUT)
    assert (await files.compare()).status == "differs"
    assert [payout.amount for payout in await files.payouts()] == ["1.00"]
    [subject] = await files.subjects()
    assert subject is not None
    fee = "and a fee of 46.11"
    assert subject.endswith(f": different, 1543.89 THB {fee} there, 1.00 THB {fee} here")


async def test_the_file_in_the_documentation_is_recorded(files: Files, world: World) -> None:
    page = (Path(__file__).parents[2] / "docs" / "operate" / "reconciliation.md").read_text()
    example = page.partition("### Payouts in a file")[2].split("```")[1]
    _, header, *lines = example.strip().splitlines()
    await world.rows("UPDATE capture SET reference = 'cap_8c1f'")
    files.put(*lines, header=[header])
    assert (await files.compare()).status == "matched"
    assert [payout.fee_minor for payout in await files.payouts()] == ["4611"]
