"""Each gateway file is compared once by any worker, even if a previous file was invalid."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from payintent.cases.model import CaseKind
from payintent.cases.operations import ListCases
from payintent.core.errors import ErrorCode, LockTimeoutError, RefusedError, StorageUnavailableError
from payintent.db.database import Tx
from payintent.gateways.settlement_reports import FileLayout, ProviderFileLine
from payintent.reconciliation import runs, runs_store, sources
from payintent.reconciliation.file import HEADER
from payintent.reconciliation.operations import (
    ListReconciliationRuns,
    RetryReconciliationRun,
    ShowReconciliationRun,
)
from payintent.reconciliation.runs import compare_new_files
from payintent.reconciliation.runs_store import NewRun, RunOutcome, RunRecord
from payintent.reconciliation.sources import FolderSource
from payintent.worker import reconcile
from payintent.worker_metrics import RECONCILIATIONS, measure
from tests.reconciliation.capabilities import with_capabilities
from tests.support.fakes import captured
from tests.support.world import World

_AT = "2026-11-21T08:00:00Z"
_EXPIRE_LEASE = "UPDATE reconciliation_run SET lease_until = clock() - interval '1 second'"
Put = Callable[..., Path]


@pytest.fixture
def put(world: World, tmp_path: Path) -> Put:
    """Put a file of lines into an account's folder, by default the world's account."""

    def write_file(*lines: str, name: str = "file.csv", account: object = None) -> Path:
        folder = tmp_path / str(account or world.account_id)
        folder.mkdir(exist_ok=True)
        path = folder / name
        path.write_text("\n".join([",".join(HEADER), *lines, ""]))
        return path

    return write_file


async def _compare(world: World, folder: Path) -> list[RunRecord]:
    await compare_new_files(world.service.reconciliation_context, FolderSource(str(folder)))
    return await world.perform(ListReconciliationRuns())


async def _pay(world: World, reference: str) -> None:
    payment = await world.create()
    session = (await world.select(payment)).session
    await world.report(payment, session.id, captured(159_000, reference=reference))


async def _claim(world: World, path: Path) -> NewRun:
    """Claim a file's run, like a worker that dies afterwards."""
    new = NewRun(
        id=world.service.database.id_generator.new_id(),
        account_id=world.account_id,
        source="folder",
        name=path.name,
        sha256=runs.read_digest(path),
    )
    assert (await runs_store.claim(world.service.database, new)).was_claimed
    return new


async def test_a_matching_file_is_stored_as_a_run_with_counts_and_sums(
    world: World, put: Put, tmp_path: Path
) -> None:
    for reference in ("cap-1", "cap-2"):
        await _pay(world, reference)
    put(f"payment,cap-1,,1590.00,THB,{_AT}", f"payment,cap-2,,1590.00,THB,{_AT}")
    [run] = await _compare(world, tmp_path)
    assert (run.status, run.lines, run.opened, run.name) == ("matched", 2, 0, "file.csv")
    [sums] = (await world.perform(ShowReconciliationRun(run_id=run.id))).sums
    assert (sums.type, sums.currency, sums.lines, sums.records) == ("payment", "THB", 2, 2)
    assert {sums.gateway, sums.service, sums.ledger, sums.merchants} == {"3180"}
    assert await world.perform(ListCases(kind=CaseKind.RECONCILIATION)) == []
    assert await _compare(world, tmp_path) == [run]


async def test_each_difference_opens_one_case_that_states_both_amounts(
    world: World, put: Put, tmp_path: Path
) -> None:
    await _pay(world, "cap-1")
    put(f"payment,cap-1,,1500.00,THB,{_AT}", f"payment,cap-2,,12.00,THB,{_AT}")
    [run] = await _compare(world, tmp_path)
    assert (run.status, run.opened) == ("differs", 2)
    [sums] = (await world.perform(ShowReconciliationRun(run_id=run.id))).sums
    assert (sums.gateway, sums.service, sums.ledger) == ("1512", "1590", "1590")
    put(f"payment,cap-1,,1500.00,THB,{_AT}", f"payment,cap-2,,12,THB,{_AT}", name="again.csv")
    [repeated, _] = await _compare(world, tmp_path)
    assert (repeated.status, repeated.opened) == ("differs", 0)
    subjects = {item.subject for item in await world.perform(ListCases())}
    assert subjects == {
        "fake payment cap-1: different, 1500.00 THB there, 1590.00 THB here",
        "fake payment cap-2: extra, 12.00 THB at 2026-11-21T08:00:00.000Z",
    }


async def test_amounts_missing_from_the_ledger_and_the_merchants_balance_are_differences(
    world: World, put: Put, tmp_path: Path
) -> None:
    await _pay(world, "cap-0")
    await world.rows(
        "INSERT INTO capture (id, account_id, reference, session_id, payment_id, currency,"
        " amount_minor, credited, captured_at) SELECT gen_random_uuid(), account_id, 'cap-1',"
        " session_id, payment_id, 'THB', 500, false, captured_at FROM capture"
    )
    put(f"payment,cap-0,,1590,THB,{_AT}", f"payment,cap-1,,5.00,THB,{_AT}")
    [run] = await _compare(world, tmp_path)
    assert (run.status, run.opened) == ("differs", 2)
    [sums] = (await world.perform(ShowReconciliationRun(run_id=run.id))).sums
    assert (sums.gateway, sums.service) == ("1595", "1595")
    assert (sums.ledger, sums.merchants) == ("1590", "1590")
    assert {item.subject for item in await world.perform(ListCases())} == {
        "fake payment cap-1: ledger, 0 THB in the ledger, 5.00 THB captured or refunded",
        "fake payment cap-1: merchants, 0 THB for the merchant, 5.00 THB captured or refunded",
    }


async def test_an_invalid_file_is_reported_and_does_not_stop_other_files(
    world: World, put: Put, tmp_path: Path
) -> None:
    await _pay(world, "cap-1")
    put("payment,cap-1,,x,THB,now", name="a.csv")
    put(f"payment,cap-1,,1590.00,THB,{_AT}", name="b.csv")
    valid_run, failed_run = await _compare(world, tmp_path)
    assert (valid_run.name, valid_run.status, failed_run.name, failed_run.status) == (
        "b.csv",
        "matched",
        "a.csv",
        "failed",
    )
    assert failed_run.problem.startswith("line 2: amount must be a plain decimal above zero")
    assert await _compare(world, tmp_path) == [valid_run, failed_run]


async def test_unfinished_files_and_files_without_an_account_are_ignored(
    world: World, put: Put, tmp_path: Path
) -> None:
    for name in (".hidden.csv", "a.csv.part", "a.tmp", "a.csv.filepart"):
        put(f"payment,cap-1,,1.00,THB,{_AT}", name=name)
    for account in ("999", "accounts", "9" * 25):
        put(f"payment,cap-1,,1.00,THB,{_AT}", account=account)
    (tmp_path / "loose.csv").touch()
    (tmp_path / str(world.account_id) / "folder").mkdir()
    assert await _compare(world, tmp_path) == []


async def test_a_new_file_is_processed_regardless_of_the_number_of_earlier_files(
    world: World, put: Put, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files stay in their folder, and earlier files are always checked first."""
    monkeypatch.setattr(sources, "_PAGE_FILES", 2)
    for number in range(5):
        put(f"payment,cap-{number},,1.00,THB,{_AT}", name=f"{number}.csv")
        assert len(await _compare(world, tmp_path)) == number + 1


async def test_the_same_content_under_another_name_is_not_compared_again(
    world: World, put: Put, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(f"payment,cap-1,,1.00,THB,{_AT}")
    [run] = await _compare(world, tmp_path)
    put(f"payment,cap-1,,1.00,THB,{_AT}", name="copy.csv")
    assert await _compare(world, tmp_path) == [run]
    other_account_id = await world.add_account("http://other.test", signing_secret="x")
    put(f"payment,cap-1,,1.00,THB,{_AT}", account=other_account_id)
    assert [item.account_id for item in await _compare(world, tmp_path)] == [
        other_account_id,
        run.account_id,
    ]
    read: list[Path] = []
    monkeypatch.setattr(runs, "read_digest", read.append)
    await _compare(world, tmp_path)
    assert read == []


async def test_a_run_of_another_worker_is_not_claimed_before_its_lease_expires(
    world: World, put: Put, tmp_path: Path
) -> None:
    new = await _claim(world, put(f"payment,cap-1,,1.00,THB,{_AT}"))
    [run] = await _compare(world, tmp_path)
    assert (run.status, run.attempts) == ("running", 1)
    [[file]] = [page async for page in FolderSource(str(tmp_path)).walk_files()]
    await runs_store.mark_processed(world.service.database, file, new.id)
    await world.rows(_EXPIRE_LEASE)
    [run] = await _compare(world, tmp_path)
    assert (run.status, run.attempts, run.opened) == ("differs", 2, 1)


async def test_a_locked_run_cannot_be_claimed_even_after_its_lease(world: World, put: Put) -> None:
    new = await _claim(world, put(f"payment,cap-1,,1.00,THB,{_AT}"))
    database = world.service.database
    await world.rows(_EXPIRE_LEASE)
    async with database.transaction() as tx:
        own_run = runs_store.ClaimedRun(id=new.id, attempts=1, has_ended=False, was_claimed=True)
        assert await runs_store.lock(tx, own_run)
        with pytest.raises(LockTimeoutError):
            await runs_store.claim(database, new)
    claimed_run = await runs_store.claim(database, new)
    assert (claimed_run.was_claimed, claimed_run.attempts) == (True, 2)
    async with database.transaction() as tx:
        assert not await runs_store.lock(tx, own_run)


async def test_concurrent_workers_compare_a_file_once(
    world: World, put: Put, tmp_path: Path
) -> None:
    put(f"payment,cap-1,,1.00,THB,{_AT}")
    await asyncio.gather(*(_compare(world, tmp_path) for _ in range(4)))
    [run] = await _compare(world, tmp_path)
    assert (run.status, run.attempts, run.opened) == ("differs", 1, 1)
    assert len(await world.perform(ListCases(kind=CaseKind.RECONCILIATION))) == 1


async def test_a_worker_that_dies_leaves_no_changes_and_its_run_is_repeated(
    world: World, put: Put, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(f"payment,cap-1,,1.00,THB,{_AT}")
    end = runs_store.end

    async def die_at_the_end(tx: Tx, run_id: UUID, outcome: RunOutcome) -> None:
        await end(tx, run_id, outcome)
        await tx.fetch("SELECT pg_terminate_backend(pg_backend_pid())")

    with monkeypatch.context() as patched:
        patched.setattr(runs_store, "end", die_at_the_end)
        with pytest.raises(StorageUnavailableError):
            await _compare(world, tmp_path)
    [run] = await world.perform(ListReconciliationRuns())
    assert (run.status, run.lines) == ("running", 0)
    assert await world.perform(ListCases(kind=CaseKind.RECONCILIATION)) == []
    await world.rows(_EXPIRE_LEASE)
    [run] = await _compare(world, tmp_path)
    assert (run.status, run.attempts, run.opened, run.lines) == ("differs", 2, 1, 1)


async def test_a_run_that_never_ends_fails_after_five_attempts(
    world: World, put: Put, tmp_path: Path
) -> None:
    await _claim(world, put(f"payment,cap-1,,1.00,THB,{_AT}"))
    await world.rows(_EXPIRE_LEASE + ", attempts = 5")
    [run] = await _compare(world, tmp_path)
    assert (run.status, run.problem) == (
        "failed",
        "the worker stopped unexpectedly in each of 5 attempts",
    )


async def test_a_failed_run_can_be_retried(world: World, put: Put, tmp_path: Path) -> None:
    put(*[f"payment,cap-1,,1.00,THB,{_AT}"] * 2)
    [run] = await _compare(world, tmp_path)
    assert run.problem == "line 3: duplicate of line 2"
    await world.perform(RetryReconciliationRun(run_id=run.id))
    [repeated] = await _compare(world, tmp_path)
    assert (repeated.status, repeated.attempts) == ("failed", 1)
    await world.rows("UPDATE reconciliation_run SET status = 'matched', problem = ''")
    for run_id, code in ((run.id, ErrorCode.CONFLICT), (UUID(int=1), ErrorCode.NOT_FOUND)):
        with pytest.raises(RefusedError) as error:
            await world.perform(RetryReconciliationRun(run_id=run_id))
        assert error.value.code is code


@pytest.mark.parametrize(
    ("filters", "code"),
    [
        ({"status": "odd"}, ErrorCode.BAD_REQUEST),
        ({"account_id": 0}, ErrorCode.NOT_FOUND),
        ({"limit": 0}, ErrorCode.BAD_REQUEST),
    ],
)
async def test_invalid_filters_of_the_run_list_are_refused(
    world: World, filters: dict[str, Any], code: ErrorCode
) -> None:
    with pytest.raises(RefusedError) as error:
        await world.perform(ListReconciliationRuns(**filters))
    assert error.value.code is code


async def test_a_worker_processes_files_from_the_configured_folder(
    world: World, put: Put, tmp_path: Path
) -> None:
    put(f"payment,cap-1,,1.00,THB,{_AT}")
    await reconcile(world.service)
    assert await world.perform(ListReconciliationRuns()) == []  # no folder is configured
    settings = world.service.settings.model_copy(update={"settlement_folder": str(tmp_path)})
    service = replace(world.service, settings=settings)
    await reconcile(service)
    await measure(service)
    assert [run.status for run in await world.perform(ListReconciliationRuns())] == ["differs"]
    metrics = {
        status: RECONCILIATIONS.labels(status)._value.get() for status in ("differs", "failed")
    }
    assert metrics == {"differs": 1, "failed": 0}


async def test_a_file_in_a_gateway_layout_is_read_and_irrelevant_lines_are_skipped(
    world: World, tmp_path: Path
) -> None:
    def read(number: int, row: Sequence[str]) -> ProviderFileLine | None:
        if row[0] != "sale":
            return None
        return ProviderFileLine(
            number=number,
            type="payment",
            reference=row[1],
            our_id=None,
            amount=Decimal(row[2]),
            currency="THB",
            at=datetime(2026, 11, 21, tzinfo=UTC),
        )

    await _pay(world, "cap-1")
    path = tmp_path / str(world.account_id) / "theirs.csv"
    path.parent.mkdir()
    path.write_text("kind;name;money\n".replace(";", ",") + "fee,x,1\nsale,cap-1,1590\n")
    layout = FileLayout(name="theirs", matches=lambda first: first[:1] == ["kind"], read=read)
    context = with_capabilities(world.service.reconciliation_context, layouts=(layout,))
    await compare_new_files(context, FolderSource(str(tmp_path)))
    [run] = await world.perform(ListReconciliationRuns())
    assert (run.status, run.lines) == ("matched", 1)


async def test_an_unreadable_folder_is_counted_as_a_source_failure(
    world: World, put: Put, tmp_path: Path
) -> None:
    failures = runs.SOURCE_FAILURES.labels("folder")
    before = failures._value.get()
    assert await _compare(world, tmp_path / "nothing") == []
    assert failures._value.get() == before + 1
