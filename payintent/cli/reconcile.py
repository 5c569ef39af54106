"""`payintent reconcile`: a provider's own list of payments, refunds and payouts, beside ours."""

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import NoReturn

import typer

from payintent.cli.common import (
    Json,
    Why,
    describe_as_operator,
    print_record,
    print_table,
    run_as_operator,
)
from payintent.cli.confirmation import DryRun, Yes, confirm, is_at_terminal
from payintent.operations.reconcile import CompareProviderFile, ReconcileProviderFile
from payintent.reconciliation.compare import ReconciliationInput, ReconciliationResult
from payintent.reconciliation.provider_file import InvalidProviderFileError, open_provider_file

#: As of `diff`: 0 where nothing differs, 1 where something does, 2 where nobody can tell.
_DIFFERS, _TROUBLE = 1, 2
_LONG_BYTES = 1 << 20
_COLUMNS = ("type", "lines", "matched", "missing", "extra", "different", "books")


def add_to(app: typer.Typer) -> None:
    app.command()(reconcile)


def reconcile(
    provider: str = typer.Option(..., help="Whose file it is, such as stripe."),
    file: Path = typer.Option(
        ..., help="A file of the gateway as it is, or a CSV file; docs/refunds.md has both."
    ),
    account: int | None = typer.Option(None, help="Of one account; left out: all of them."),
    since: datetime | None = typer.Option(
        None,
        "--from",
        help="Look for what came to us from this time on, UTC; left out: the file's first line.",
    ),
    until: datetime | None = typer.Option(
        None, "--to", help="Up to this time, UTC; left out: its last line."
    ),
    apply: bool = typer.Option(
        False, "--apply", help="Open a case for each difference, and record payouts."
    ),
    why: str = Why,
    yes: bool = Yes,
    dry_run: bool = DryRun,
    as_json: bool = Json,
) -> None:
    """Compare a provider's file with ours; exit status 1 where they differ."""
    period = (account, since, until)
    try:
        if apply and not (yes or dry_run) and is_at_terminal():
            with _read(file, provider, *period) as comparison:
                changes = describe_as_operator(ReconcileProviderFile(comparison=comparison), why)
            confirm("reconcile", changes)
        with _read(file, provider, *period) as comparison:
            if apply and not dry_run:
                found = run_as_operator(ReconcileProviderFile(comparison=comparison), why)
            else:
                compare = CompareProviderFile(comparison=comparison, foresees_cases=dry_run)
                found = run_as_operator(compare)
    except InvalidProviderFileError as bad:
        _end(bad.problems)
    except typer.Exit as ended:  # the refusal is printed already
        raise typer.Exit(_TROUBLE) from ended
    done = f"opened, {found.asked} asked about at once" if apply else ""
    is_done = apply and not dry_run
    _show(found, "would be opened" if dry_run else done, is_done=is_done, as_json=as_json)
    raise typer.Exit(_DIFFERS if found.found else 0)


@contextmanager
def _read(
    file: Path,
    provider: str,
    account_id: int | None,
    since: datetime | None,
    until: datetime | None,
) -> Generator[ReconciliationInput]:
    """Read the file, and show how far it is read and compared."""
    with _progress(file) as report_progress:
        yield ReconciliationInput(
            file=open_provider_file(file, report_progress),
            provider=provider,
            account_id=account_id,
            since=since,
            until=until,
        )


@contextmanager
def _progress(file: Path) -> Generator[Callable[[int], None]]:
    """Show how far a long file was read, to whoever sits at a terminal."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    size = file.stat().st_size if file.is_file() else 0
    quiet = size < _LONG_BYTES or not sys.stderr.isatty()
    console = Console(stderr=True)
    columns = (TextColumn("comparing"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=quiet) as progress:
        task = progress.add_task("read", total=2 * size)  # once for its digest, once to load
        yield lambda count: progress.advance(task, count)


def _show(found: ReconciliationResult, opened: str, *, is_done: bool, as_json: bool) -> None:
    if as_json:
        print_record(found, as_json=True)
        return
    print_table(found.tallies, _COLUMNS, as_json=False)
    for difference in found.differences:
        print(difference)
    if (more := found.found - len(found.differences)) > 0:
        print(f"and {more} more")
    if found.payouts.lines:
        _show_payouts(found, "recorded" if is_done else "would be recorded")
    if opened:
        print(f"{found.opened} cases {opened}")


def _show_payouts(found: ReconciliationResult, done: str) -> None:
    payouts = found.payouts
    for payout in found.new_payouts:
        print(f"{payout}, {done}")
    if (more := payouts.new - len(found.new_payouts)) > 0:
        print(f"and {more} more")
    print(
        f"{payouts.lines} payouts: {payouts.new} {done}, {payouts.repeated} recorded before, "
        f"{payouts.reversed} reversed before, {payouts.different} different"
    )


def _end(problems: list[str]) -> NoReturn:
    for problem in problems:
        print(f"payintent: {problem}", file=sys.stderr)
    raise typer.Exit(_TROUBLE)
