"""`payintent reconcile`: a provider's own list of payments and refunds, held against ours."""

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import NoReturn

import typer

from payintent.cli.common import Json, Why, print_record, print_table, run_as_operator
from payintent.operations.provider_file import InvalidProviderFileError, read_provider_file
from payintent.operations.reconcile import (
    CompareProviderFile,
    ReconcileProviderFile,
    ReconciliationInput,
    ReconciliationResult,
)

#: As of `diff`: 0 where nothing differs, 1 where something does, 2 where nobody can tell.
_DIFFERS, _TROUBLE = 1, 2
_LONG_BYTES = 1 << 20
_COLUMNS = ("type", "lines", "matched", "missing", "extra", "different")


def add_to(app: typer.Typer) -> None:
    """Add `reconcile` to the application."""
    app.command()(reconcile)


def reconcile(
    provider: str = typer.Option(..., help="Whose file it is, such as stripe."),
    file: Path = typer.Option(..., help="A CSV file; docs/refunds.md has its columns."),
    account: int | None = typer.Option(None, help="Of one account; left out: all of them."),
    since: datetime | None = typer.Option(
        None,
        "--from",
        help="Look for what came to us from this time on, UTC; left out: the file's first line.",
    ),
    until: datetime | None = typer.Option(
        None, "--to", help="Up to this time, UTC; left out: its last line."
    ),
    apply: bool = typer.Option(False, "--apply", help="Open a case for each difference."),
    why: str = Why,
    as_json: bool = Json,
) -> None:
    """Compare a provider's file with ours; exit status 1 where they differ."""
    try:
        with _progress(file) as report_progress:
            comparison = ReconciliationInput(
                file=read_provider_file(file, report_progress),
                provider=provider,
                account_id=account,
                since=since,
                until=until,
            )
            kind = ReconcileProviderFile if apply else CompareProviderFile
            found = run_as_operator(kind(comparison=comparison), why)
    except InvalidProviderFileError as bad:
        _end(bad.problems)
    except typer.Exit as ended:  # the refusal is printed already
        raise typer.Exit(_TROUBLE) from ended
    _show(found, applied=apply, as_json=as_json)
    raise typer.Exit(_DIFFERS if found.found else 0)


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
        task = progress.add_task("read", total=2 * size)  # once to see, once to load
        yield lambda count: progress.advance(task, count)


def _show(found: ReconciliationResult, *, applied: bool, as_json: bool) -> None:
    if as_json:
        print_record(found, as_json=True)
        return
    print_table(found.tallies, _COLUMNS, as_json=False)
    for difference in found.differences:
        print(difference)
    if (more := found.found - len(found.differences)) > 0:
        print(f"and {more} more")
    if applied:
        print(f"{found.opened} cases opened, {found.asked} asked about at once")


def _end(problems: list[str]) -> NoReturn:
    for problem in problems:
        print(f"payintent: {problem}", file=sys.stderr)
    raise typer.Exit(_TROUBLE)
