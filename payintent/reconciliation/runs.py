"""Complete the reconciliation runs that this worker has claimed, and record failures."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from prometheus_client import Counter

from payintent.core.errors import (
    ChainUnavailableError,
    LockTimeoutError,
    RefusedError,
    StorageUnavailableError,
)
from payintent.db.database import Database
from payintent.db.locks import LockLostError
from payintent.reconciliation import runs_store
from payintent.reconciliation.file import InvalidProviderFileError
from payintent.reconciliation.runs_store import ClaimedRun, RunEnd
from payintent.runtime.log import get_logger

_log = get_logger("reconciliation")
_PROBLEM_CHARS_MAX = 1_000

RUNS = Counter("payintent_reconciliation_ended_total", "Reconciliation runs", ["status"])
SOURCE_FAILURES = Counter(
    "payintent_reconciliation_source_failures_total",
    "Failed reads of a folder, store, reporting API or chain",
    ["source"],
)


@asynccontextmanager
async def failures_recorded(database: Database, run: ClaimedRun) -> AsyncGenerator[None]:
    """Mark the run as failed if the block raises, so that it does not block later runs.

    If the database or the chain is unavailable, the error propagates instead, and a worker resumes
    the run when its lease expires.
    """
    try:
        yield
    except (ChainUnavailableError, StorageUnavailableError, LockTimeoutError, LockLostError):
        raise
    except InvalidProviderFileError as error:
        await fail(database, run, "; ".join(error.problems))
    except RefusedError as error:
        await fail(database, run, error.message)
    except Exception as error:  # noqa: BLE001 - a bug in one comparison must not stop the others
        _log.error("reconciliation_run_failed", run=str(run.id), exc_info=error)
        await fail(database, run, f"an error of the service: {type(error).__name__}")


async def fail(database: Database, run: ClaimedRun, problem: str) -> None:
    """Mark a run as failed, unless another worker has since claimed it."""
    async with database.transaction() as tx:
        if not await runs_store.lock(tx, run):
            return
        problem = problem[:_PROBLEM_CHARS_MAX] or "unknown"
        await runs_store.end(tx, run.id, RunEnd(problem=problem))
    RUNS.labels("failed").inc()
    _log.error("reconciliation_failed", run=str(run.id), problem=problem)


def note_end(run: ClaimedRun, account_id: int, run_end: RunEnd) -> None:
    """Report a finished run. Call after commit."""
    RUNS.labels(run_end.status).inc()
    _log.info(
        "reconciliation_ended",
        run=str(run.id),
        gateway_account=account_id,
        status=run_end.status,
        differences=run_end.differences,
    )
