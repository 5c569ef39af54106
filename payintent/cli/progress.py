"""How far a change of many rows is, on standard error: a bar at a terminal, lines elsewhere."""

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager

_STEPS = 20  # lines, where no terminal shows a bar


@contextmanager
def show_progress(action: str, total: int) -> Generator[Callable[[int], None]]:
    """Show how many rows are done: a bar at a terminal, lines anywhere else."""
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
    """Give what prints the count before, and then after each twentieth of it."""
    print(f"payintent: {action}: {total} to do", file=sys.stderr)
    done = shown = 0

    def advance(count: int) -> None:
        nonlocal done, shown
        done += count
        if done == total or done - shown >= max(1, total // _STEPS):
            shown = done
            print(f"payintent: {action}: {done} of {total}", file=sys.stderr)

    return advance
