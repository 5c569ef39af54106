"""`payintent reconcile`: compare a provider's payments, refunds and payouts with our records."""

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import typer

from payintent.cli.common import (
    DryRun,
    Json,
    Why,
    Yes,
    confirm,
    describe_as_operator,
    is_at_terminal,
    print_record,
    print_table,
    run_as_operator,
    to_one_line,
)
from payintent.reconciliation.compare import ReconciliationInput, ReconciliationResult
from payintent.reconciliation.file import InvalidProviderFileError, open_provider_file
from payintent.reconciliation.operations import CompareProviderFile, ReconcileProviderFile

#: Exit statuses as in diff(1): 1 for differences, 2 for a failed comparison.
_EXIT_DIFFERENT, _EXIT_FAILED = 1, 2
_PROGRESS_BYTES_MIN = 1 << 20
_COLUMNS = ("type", "lines", "matched", "missing", "extra", "different", "books")


def add_to(app: typer.Typer) -> None:
    app.command()(reconcile)


def reconcile(
    provider: str = typer.Option(..., help="The provider of the file, such as stripe."),
    file: Path = typer.Option(
        ...,
        help="The gateway's original file, or a CSV file; see docs/operate/reconciliation.md.",
    ),
    account: int | None = typer.Option(
        None, help="Compare only this account; defaults to all accounts."
    ),
    since: datetime | None = typer.Option(
        None,
        "--from",
        help="Start of the period (UTC); defaults to the first line of the file.",
    ),
    until: datetime | None = typer.Option(
        None, "--to", help="End of the period (UTC); defaults to the last line of the file."
    ),
    apply: bool = typer.Option(
        False, "--apply", help="Open a case for each difference, and record payouts."
    ),
    why: str = Why,
    yes: bool = Yes,
    dry_run: bool = DryRun,
    as_json: bool = Json,
) -> None:
    """Compare a provider's file with our records, and exit with status 1 if they differ."""
    period = (account, since, until)
    try:
        if apply and not (yes or dry_run) and is_at_terminal():
            with _open_comparison(file, provider, *period) as comparison:
                changes = describe_as_operator(ReconcileProviderFile(comparison=comparison), why)
            confirm("reconcile", changes)
        with _open_comparison(file, provider, *period) as comparison:
            if apply and not dry_run:
                result = run_as_operator(ReconcileProviderFile(comparison=comparison), why)
            else:
                compare = CompareProviderFile(comparison=comparison, counts_new_cases=dry_run)
                result = run_as_operator(compare)
    except InvalidProviderFileError as error:
        for problem in error.problems:
            print(f"payintent: {problem}", file=sys.stderr)
        raise typer.Exit(_EXIT_FAILED) from error
    except typer.Exit as error:  # already reported
        raise typer.Exit(_EXIT_FAILED) from error
    summary = f"cases that would be opened: {result.opened}" if dry_run else ""
    if apply and not dry_run:
        summary = f"cases opened: {result.opened}, inquiries scheduled: {result.inquiries}"
    _print_result(result, summary, is_done=apply and not dry_run, as_json=as_json)
    raise typer.Exit(_EXIT_DIFFERENT if result.difference_count else 0)


@contextmanager
def _open_comparison(
    file: Path,
    provider: str,
    account_id: int | None,
    since: datetime | None,
    until: datetime | None,
) -> Generator[ReconciliationInput]:
    """Open the provider's file, and show the progress of reading it."""
    with _show_file_progress(file) as report_progress:
        yield ReconciliationInput(
            file=open_provider_file(file, report_progress),
            provider=provider,
            account_id=account_id,
            since=since,
            until=until,
        )


@contextmanager
def _show_file_progress(file: Path) -> Generator[Callable[[int], None]]:
    """Show progress in a terminal if the file is large."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    size = file.stat().st_size if file.is_file() else 0
    is_hidden = size < _PROGRESS_BYTES_MIN or not sys.stderr.isatty()
    console = Console(stderr=True)
    columns = (TextColumn("comparing"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=is_hidden) as progress:
        task = progress.add_task(
            "read", total=2 * size
        )  # the file is read twice: for its digest, and to load it
        yield lambda count: progress.advance(task, count)


def _print_result(
    result: ReconciliationResult, summary: str, *, is_done: bool, as_json: bool
) -> None:
    if as_json:
        print_record(result, as_json=True)
        return
    print_table(result.tallies, _COLUMNS, as_json=False)
    for difference in result.differences:
        print(to_one_line(difference))
    if (hidden_count := result.difference_count - len(result.differences)) > 0:
        print(f"and {hidden_count} more")
    if result.payouts.lines:
        _print_payouts(result, "recorded" if is_done else "would be recorded")
    if summary:
        print(summary)


def _print_payouts(result: ReconciliationResult, verb: str) -> None:
    payouts = result.payouts
    for payout in result.new_payouts:
        print(to_one_line(f"{payout}, {verb}"))
    if (hidden_count := payouts.new - len(result.new_payouts)) > 0:
        print(f"and {hidden_count} more")
    print(
        f"payouts: {payouts.new} {verb}, {payouts.repeated} already recorded, "
        f"{payouts.reversed} already reversed, {payouts.different} different"
    )
