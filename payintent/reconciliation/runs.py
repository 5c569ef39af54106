"""Compare new files and lists, each in a single worker, and record the results."""

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from prometheus_client import Counter

from payintent.core.errors import (
    ChainUnavailableError,
    LockTimeoutError,
    RefusedError,
    StorageUnavailableError,
)
from payintent.db.database import Database
from payintent.db.locks import LockLostError
from payintent.gateways.port import GatewayCapabilities
from payintent.reconciliation import runs_store
from payintent.reconciliation.compare import ReconciliationInput, compare_file
from payintent.reconciliation.file import InvalidProviderFileError, ProviderFile
from payintent.reconciliation.runs_store import ClaimedRun, NewRun, RunOutcome, SourceFile
from payintent.reconciliation.sources import FileSource, SourceUnavailableError
from payintent.runtime.log import get_logger

RECORDED_BY = "reconciliation"
_ATTEMPTS_MAX = 5  # after this many worker crashes, a run is marked as failed
_PROBLEM_CHARS_MAX = 1_000
_log = get_logger("reconciliation")

RUNS = Counter("payintent_reconciliation_ended_total", "Reconciliation runs", ["status"])
SOURCE_FAILURES = Counter(
    "payintent_reconciliation_source_failures_total",
    "Failures to read a folder, object store, reporting API or chain",
    ["source"],
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconciliationContext:
    database: Database
    capabilities: Callable[[str], GatewayCapabilities | None]  # by provider name


async def compare_new_files(context: ReconciliationContext, source: FileSource) -> None:
    """Compare a source's new files. If a file fails, the remaining files are still compared."""
    try:
        async with aclosing(source.walk_files()) as pages:
            async for page in pages:
                for file in await runs_store.list_new_files(context.database, page):
                    await _compare_source_file(context, source, file)
    except SourceUnavailableError as error:
        SOURCE_FAILURES.labels(source.name).inc()
        _log.warning("reconciliation_source_unavailable", source=source.name, why=str(error))


async def _compare_source_file(
    context: ReconciliationContext, source: FileSource, file: SourceFile
) -> None:
    database = context.database
    try:
        async with source.open(file) as path:
            new_run = NewRun(
                id=database.id_generator.new_id(),
                account_id=file.account_id,
                source=file.source,
                name=file.name,
                sha256=await asyncio.to_thread(read_digest, path),
            )
            comparison = ReconciliationInput(
                file=ProviderFile(path=path, sha256=new_run.sha256),
                provider=await runs_store.get_provider(database, file.account_id),
                account_id=file.account_id,
            )
            run_id = await compare_list(context, new_run, comparison)
            if run_id is not None:
                await runs_store.mark_processed(database, file, run_id)
    except (OSError, SourceUnavailableError) as error:
        SOURCE_FAILURES.labels(source.name).inc()
        _log.warning("reconciliation_file_unavailable", file=file.name, why=type(error).__name__)
    except LockTimeoutError:
        _log.info("reconciliation_run_busy", file=file.name)  # another worker is comparing it


async def compare_list(
    context: ReconciliationContext, new_run: NewRun, comparison: ReconciliationInput
) -> UUID | None:
    """Compare a list and return its run id; None if another worker is processing it."""
    run = await runs_store.claim(context.database, new_run)
    if run.has_ended:
        return run.id
    if not run.was_claimed:
        return None
    if run.attempts > _ATTEMPTS_MAX:
        problem = f"the worker stopped unexpectedly in each of {_ATTEMPTS_MAX} attempts"
        await mark_failed(context.database, run, problem)
    else:
        async with record_failures(context.database, run):
            await _compare(context, new_run, run, comparison)
    return run.id


def read_digest(path: Path) -> str:
    with path.open("rb") as raw:
        return hashlib.file_digest(raw, "sha256").hexdigest()


async def _compare(
    context: ReconciliationContext,
    new_run: NewRun,
    run: ClaimedRun,
    comparison: ReconciliationInput,
) -> None:
    """Compare, open cases and end the run in one transaction; do nothing if the claim is lost."""
    comparison = comparison.adapt_to_gateway(context.capabilities(comparison.provider))
    async with context.database.transaction() as tx:
        if not await runs_store.lock(tx, run):
            return
        compared_file = await compare_file(tx, comparison, RECORDED_BY)
        result = await compared_file.open_cases(tx)
        outcome = RunOutcome(
            since=result.since,
            until=result.until,
            differences=result.difference_count,
            opened=result.opened,
            sums=result.sums,
        )
        await runs_store.end(tx, run.id, outcome)
    report_end(run, new_run.account_id, outcome)


@asynccontextmanager
async def record_failures(database: Database, run: ClaimedRun) -> AsyncGenerator[None]:
    """Mark the run as failed if the `with` block raises, so that it does not delay later runs.

    If the database or the chain is unavailable, the error propagates instead, and a worker resumes
    the run when its lease expires.
    """
    try:
        yield
    except (ChainUnavailableError, StorageUnavailableError, LockTimeoutError, LockLostError):
        raise
    except InvalidProviderFileError as error:
        await mark_failed(database, run, "; ".join(error.problems))
    except RefusedError as error:
        await mark_failed(database, run, error.message)
    except Exception as error:  # noqa: BLE001 - a bug in one comparison must not stop the others
        _log.error("reconciliation_run_failed", run=str(run.id), exc_info=error)
        await mark_failed(database, run, f"internal error: {type(error).__name__}")


async def mark_failed(database: Database, run: ClaimedRun, problem: str) -> None:
    """Mark a run as failed, unless another worker has since claimed it."""
    async with database.transaction() as tx:
        if not await runs_store.lock(tx, run):
            return
        problem = problem[:_PROBLEM_CHARS_MAX] or "unknown"
        await runs_store.end(tx, run.id, RunOutcome(problem=problem))
    RUNS.labels("failed").inc()
    _log.error("reconciliation_failed", run=str(run.id), problem=problem)


def report_end(run: ClaimedRun, account_id: int, outcome: RunOutcome) -> None:
    """Count and log a finished run. Call after commit."""
    RUNS.labels(outcome.status).inc()
    _log.info(
        "reconciliation_ended",
        run=str(run.id),
        gateway_account=account_id,
        status=outcome.status,
        differences=outcome.differences,
    )
