"""Progress of changes to many rows, on standard error."""

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager

_LINES_MAX = 20


@contextmanager
def show_progress(action: str, total: int) -> Generator[Callable[[int], None]]:
    """Show a bar at a terminal, and lines anywhere else."""
    if sys.stderr.isatty():
        with _bar(action, total) as advance:
            yield advance
        return
    yield _lines(action, total)


@contextmanager
def _bar(action: str, total: int) -> Generator[Callable[[int], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn(action), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(action, total=total)
        yield lambda count: progress.advance(task, count)


def _lines(action: str, total: int) -> Callable[[int], None]:
    """Print the total, and then a line for each twentieth of it."""
    print(f"payintent: {action}: {total} rows", file=sys.stderr)
    finished_rows = printed_rows = 0

    def advance(count: int) -> None:
        nonlocal finished_rows, printed_rows
        finished_rows += count
        if finished_rows == total or finished_rows - printed_rows >= max(1, total // _LINES_MAX):
            printed_rows = finished_rows
            print(f"payintent: {action}: {finished_rows} of {total}", file=sys.stderr)

    return advance
