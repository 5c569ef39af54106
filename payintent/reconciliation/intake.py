"""Takes gateways' files as they arrive, and compares each once, whoever finds it first."""

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from uuid import UUID

from payintent.domain.errors import LockTimeoutError
from payintent.domain.settlement_file import FileLayout
from payintent.log import get_logger
from payintent.reconciliation.compare import ReconciliationInput, compare_file
from payintent.reconciliation.provider_file import ProviderFile
from payintent.reconciliation.runs import SOURCE_FAILURES, fail, failures_recorded, note_end
from payintent.reconciliation.sources import FileSource, SourceUnavailableError
from payintent.storage import reconciliation_runs
from payintent.storage.database import Database
from payintent.storage.reconciliation_runs import ClaimedRun, FoundFile, NewRun, RunEnd

WHO = "reconciliation"
_log = get_logger("reconciliation")
_ATTEMPTS_MAX = 5  # a run that ended its worker so often is given up


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconciliationContext:
    database: Database
    layouts: Callable[[str], Sequence[FileLayout]]  # of a provider
    currencies: Callable[[str], frozenset[str] | None]  # that a provider takes; None: any


async def take_files(context: ReconciliationContext, source: FileSource) -> None:
    """Compare each file of a source that has not been; one that fails stops no other."""
    try:
        async with aclosing(source.walk_files()) as pages:
            async for page in pages:
                for file in await reconciliation_runs.list_new_files(context.database, page):
                    await _take_file(context, source, file)
    except SourceUnavailableError as error:
        SOURCE_FAILURES.labels(source.name).inc()
        _log.warning("reconciliation_source_unavailable", source=source.name, why=str(error))


async def _take_file(context: ReconciliationContext, source: FileSource, file: FoundFile) -> None:
    try:
        async with source.open(file) as path:
            await _take(context, file, path)
    except (OSError, SourceUnavailableError) as error:
        SOURCE_FAILURES.labels(source.name).inc()
        _log.warning("reconciliation_file_unavailable", file=file.name, why=type(error).__name__)
    except LockTimeoutError:
        _log.info("reconciliation_run_busy", file=file.name)  # another worker compares it


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundList:
    """A list on this machine; the times are those whose records it must have."""

    path: Path
    sha256: str
    since: datetime | None = None  # None: the time of its first line, and a while
    until: datetime | None = None  # None: the time of its last line
    lists_disputes: bool = False  # all of them


async def compare_list(
    context: ReconciliationContext, new: NewRun, found: FoundList
) -> UUID | None:
    """Compare a list as a run of its own; gives the run, None while another worker does it."""
    run = await reconciliation_runs.claim(context.database, new)
    if run.has_ended:
        return run.id
    if not run.is_ours:
        return None
    if run.attempts > _ATTEMPTS_MAX:
        problem = f"it was begun {_ATTEMPTS_MAX} times and never ended"
        await fail(context.database, run, problem)
    else:
        async with failures_recorded(context.database, run):
            await _compare(context, new, run, found)
    return run.id


async def _take(context: ReconciliationContext, file: FoundFile, path: Path) -> None:
    new = NewRun(
        id=context.database.id_generator.new_id(),
        account_id=file.account_id,
        source=file.source,
        name=file.name,
        sha256=await asyncio.to_thread(read_digest, path),
    )
    run_id = await compare_list(context, new, FoundList(path=path, sha256=new.sha256))
    if run_id is not None:
        await reconciliation_runs.mark_taken(context.database, file, run_id)


def read_digest(path: Path) -> str:
    with path.open("rb") as raw:
        return hashlib.file_digest(raw, "sha256").hexdigest()


async def _compare(
    context: ReconciliationContext, new: NewRun, run: ClaimedRun, listed: FoundList
) -> None:
    """Compare, open cases and end the run in one transaction, unless another worker has the run."""
    providers = await reconciliation_runs.list_accounts(context.database, [new.account_id])
    provider = providers[new.account_id]
    comparison = ReconciliationInput(
        file=ProviderFile(
            path=listed.path, sha256=listed.sha256, layouts=context.layouts(provider)
        ),
        provider=provider,
        account_id=new.account_id,
        since=listed.since,
        until=listed.until,
        currencies=context.currencies(provider),
        lists_disputes=listed.lists_disputes,
    )
    async with context.database.transaction() as tx:
        if not await reconciliation_runs.lock(tx, run):
            return
        compared = await compare_file(tx, comparison, WHO)
        found = await compared.write(tx)
        ended = RunEnd(
            status="differs" if found.found else "matched",
            since=found.since,
            until=found.until,
            opened=found.opened,
            sums=found.sums,
        )
        await reconciliation_runs.end(tx, run.id, ended)
    note_end(run, new.account_id, ended.status, found.found)
