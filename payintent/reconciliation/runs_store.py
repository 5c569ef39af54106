"""Store reconciliation runs with their claims, results and totals."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from payintent.db.database import Executor, Tx
from payintent.db.lists import KeysetList
from payintent.reconciliation.sums_store import ReconciliationSum

STATUSES = ("running", "matched", "differs", "failed")
#: How long a worker may take between claiming a run and locking it in its transaction.
LEASE_S = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """A file in a folder or bucket; `version` changes with the file's content."""

    source: str
    account_id: int
    name: str
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRun:
    """A list to compare. Lists with the same digest are compared only once per account."""

    id: UUID
    account_id: int
    source: str
    name: str
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedRun:
    """The result of a claim. A run that was not claimed has ended or belongs to another worker."""

    id: UUID
    attempts: int
    has_ended: bool
    was_claimed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcome:
    """The result of a finished run."""

    problem: str = ""  # empty unless the run failed
    since: datetime | None = None
    until: datetime | None = None
    differences: int = 0
    opened: int = 0
    sums: Sequence[ReconciliationSum] = ()

    @property
    def status(self) -> str:
        if self.problem:
            return "failed"
        return "differs" if self.differences else "matched"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    id: UUID
    account_id: int
    provider: str
    source: str
    name: str
    sha256: str
    status: str
    attempts: int
    problem: str
    since: datetime | None
    until: datetime | None
    opened: int
    lines: int
    created_at: datetime
    ended_at: datetime | None


async def list_new_files(database: Executor, files: Sequence[SourceFile]) -> list[SourceFile]:
    """Return the files that have not been processed. Files of unknown accounts are skipped."""
    rows = await database.fetch(
        """
        SELECT source, account_id, name, version
        FROM unnest($1::text[], $2::bigint[], $3::text[], $4::text[])
            AS f (source, account_id, name, version)
        WHERE EXISTS (SELECT FROM provider_account a WHERE a.id = f.account_id)
            AND NOT EXISTS (SELECT FROM reconciliation_file t WHERE t.source = f.source
                AND t.account_id = f.account_id AND t.name = f.name AND t.version = f.version)
        ORDER BY account_id, name
        """,
        [file.source for file in files],
        [file.account_id for file in files],
        [file.name for file in files],
        [file.version for file in files],
    )
    return [SourceFile(**row) for row in rows]


async def get_provider(database: Executor, account_id: int) -> str:
    return await database.value("SELECT provider FROM provider_account WHERE id = $1", account_id)


async def claim(database: Executor, run: NewRun) -> ClaimedRun:
    """Start a run or take over an abandoned run. Raises `LockTimeoutError` if it is locked."""
    row = await database.row(
        """
        INSERT INTO reconciliation_run (id, account_id, source, name, sha256, status, lease_until)
        VALUES ($1, $2, $3, $4, $5, 'running', clock() + make_interval(secs => $6))
        ON CONFLICT ON CONSTRAINT reconciliation_run_once DO UPDATE
        SET attempts = reconciliation_run.attempts + 1, lease_until = excluded.lease_until
        WHERE reconciliation_run.status = 'running' AND reconciliation_run.lease_until <= clock()
        RETURNING id, attempts
        """,
        run.id,
        run.account_id,
        run.source,
        run.name,
        run.sha256,
        LEASE_S,
    )
    if row is not None:
        return ClaimedRun(id=row["id"], attempts=row["attempts"], has_ended=False, was_claimed=True)
    row = await database.row(
        """
        SELECT id, attempts, status <> 'running' AS has_ended
        FROM reconciliation_run
        WHERE account_id = $1 AND sha256 = $2
        """,
        run.account_id,
        run.sha256,
    )
    assert row is not None  # noqa: S101 - runs are never removed
    return ClaimedRun(**row, was_claimed=False)


async def lock(tx: Tx, run: ClaimedRun) -> bool:
    """Lock a claimed run; return False if it has ended or another worker has since claimed it."""
    row = await tx.row(
        """
        SELECT id
        FROM reconciliation_run
        WHERE id = $1 AND attempts = $2 AND status = 'running'
        FOR UPDATE
        """,
        run.id,
        run.attempts,
    )
    return row is not None


async def end(tx: Tx, run_id: UUID, outcome: RunOutcome) -> None:
    await tx.fetch(
        """
        UPDATE reconciliation_run
        SET status = $2, problem = $3, since = $4, until = $5, opened = $6,
            ended_at = clock()
        WHERE id = $1
        """,
        run_id,
        outcome.status,
        outcome.problem,
        outcome.since,
        outcome.until,
        outcome.opened,
    )
    await add_sums(tx, run_id, outcome.sums)


async def add_sums(tx: Tx, run_id: UUID, sums: Sequence[ReconciliationSum]) -> None:
    """Add each side's totals to the totals stored for the run."""
    await tx.fetch(
        """
        INSERT INTO reconciliation_sum AS s
            (run_id, type, currency, lines, records, gateway, service, ledger, merchants)
        SELECT $1, type, currency, lines, records, gateway::numeric, service::numeric,
            ledger::numeric, merchants::numeric
        FROM unnest($2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::text[], $7::text[],
            $8::text[], $9::text[])
            AS s (type, currency, lines, records, gateway, service, ledger, merchants)
        ON CONFLICT (run_id, type, currency) DO UPDATE
        SET lines = s.lines + excluded.lines, records = s.records + excluded.records,
            gateway = s.gateway + excluded.gateway, service = s.service + excluded.service,
            ledger = s.ledger + excluded.ledger, merchants = s.merchants + excluded.merchants
        """,
        run_id,
        [total.type for total in sums],
        [total.currency for total in sums],
        [total.lines for total in sums],
        [total.records for total in sums],
        [total.gateway for total in sums],
        [total.service for total in sums],
        [total.ledger for total in sums],
        [total.merchants for total in sums],
    )


async def mark_processed(database: Executor, file: SourceFile, run_id: UUID) -> None:
    """Mark a file as processed once its run has ended, so that it is not read again."""
    await database.fetch(
        """
        INSERT INTO reconciliation_file (source, account_id, name, version, run_id)
        SELECT $1, $2, $3, $4, id FROM reconciliation_run WHERE id = $5 AND status <> 'running'
        ON CONFLICT DO NOTHING
        """,
        file.source,
        file.account_id,
        file.name,
        file.version,
        run_id,
    )


async def lock_status(tx: Tx, run_id: UUID) -> str | None:
    """Lock a run and return its status, or None if it does not exist."""
    return await tx.value("SELECT status FROM reconciliation_run WHERE id = $1 FOR UPDATE", run_id)


async def reopen(tx: Tx, run_id: UUID) -> None:
    """Reset a failed run, which must be locked. A worker retries it when it next finds the file."""
    await tx.fetch("DELETE FROM reconciliation_file WHERE run_id = $1", run_id)
    await tx.fetch(
        """
        UPDATE reconciliation_run
        SET status = 'running', problem = '', attempts = 0, lease_until = clock(), ended_at = NULL
        WHERE id = $1
        """,
        run_id,
    )


async def get(database: Executor, run_id: UUID) -> RunRecord | None:
    row = await database.row(_SELECT + "WHERE r.id = $1", run_id)
    return RunRecord(**row) if row else None


async def list_runs(
    database: Executor, account_id: int | None, status: str | None, before: UUID | None, limit: int
) -> list[RunRecord]:
    rows = await _RUNS.page(database, before, limit, account_id=account_id, status=status)
    return [RunRecord(**row) for row in rows]


_SELECT = """
    SELECT r.id, r.account_id, a.provider, r.source, r.name, r.sha256, r.status, r.attempts,
        r.problem, r.since, r.until, r.opened,
        (SELECT coalesce(sum(s.lines), 0)::bigint FROM reconciliation_sum s WHERE s.run_id = r.id)
            AS lines, r.created_at, r.ended_at
    FROM reconciliation_run r
    JOIN provider_account a ON a.id = r.account_id
"""
_RUNS = KeysetList(_SELECT, "r.id", account_id="r.account_id = {}", status="r.status = {}")


async def list_sums(database: Executor, run_id: UUID) -> list[ReconciliationSum]:
    rows = await database.fetch(
        """
        SELECT type, currency, lines, records, trim_scale(gateway)::text AS gateway,
            trim_scale(service)::text AS service, trim_scale(ledger)::text AS ledger,
            trim_scale(merchants)::text AS merchants
        FROM reconciliation_sum
        WHERE run_id = $1
        ORDER BY type, currency
        """,
        run_id,
    )
    return [ReconciliationSum(**row) for row in rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportingAccount:
    """A live account whose gateway has a reporting API, and the names of its runs."""

    account_id: int
    provider: str
    newest_run_name: str | None  # None: no runs yet
    open_run_name: str | None  # name of the oldest open run; None: no open run


async def list_reporting_accounts(
    database: Executor, providers: Sequence[str], source: str
) -> list[ReportingAccount]:
    """List the enabled live accounts of these providers. Run names must sort by day."""
    rows = await database.fetch(
        """
        SELECT a.id AS account_id, a.provider, max(r.name) AS newest_run_name,
            min(r.name) FILTER (WHERE r.status = 'running') AS open_run_name
        FROM provider_account a
        LEFT JOIN reconciliation_run r ON r.account_id = a.id AND r.source = $2
        WHERE a.provider = ANY($1::text[]) AND a.livemode AND a.enabled
        GROUP BY a.id
        ORDER BY a.id
        LIMIT 100000
        """,
        providers,
        source,
    )
    return [ReportingAccount(**row) for row in rows]


async def count_recent(database: Executor, hours: int) -> dict[str, int]:
    """Count, by status, the runs that failed or found differences in the last `hours` hours."""
    rows = await database.fetch(
        """
        SELECT status, count(*) AS runs
        FROM reconciliation_run
        WHERE status <> 'matched' AND ended_at > clock() - make_interval(hours => $1)
        GROUP BY status
        """,
        hours,
    )
    return {row["status"]: row["runs"] for row in rows}
