"""The question that destructive commands ask at a terminal, on standard error."""

import sys
from collections.abc import Sequence

import typer

from payintent.cli.common import fail

Yes = typer.Option(False, "--yes", help="Do not ask; without a terminal nothing is asked.")
DryRun = typer.Option(False, "--dry-run", help="Print what would be done, and do nothing.")


def is_at_terminal() -> bool:
    """Tell whether a person can answer; scripts are not asked, and go on."""
    return sys.stdin.isatty()


def confirm(action: str, changes: Sequence[str]) -> None:
    """Show what would change, and ask; ends the command with status 1 unless it is yes."""
    print(f"payintent: {action}", file=sys.stderr)
    for line in changes:
        print(f"  {line}", file=sys.stderr)
    print("Do it? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        fail("nothing was done")
