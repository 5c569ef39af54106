"""The confirmation prompt of destructive commands, on standard error."""

import sys
from collections.abc import Sequence

import typer

from payintent.cli.common import fail

Yes = typer.Option(
    False,
    "--yes",
    help="Do not ask for confirmation. Without a terminal, no confirmation is needed.",
)
DryRun = typer.Option(False, "--dry-run", help="Print the changes without making them.")


def is_at_terminal() -> bool:
    return sys.stdin.isatty()


def confirm(action: str, changes: Sequence[str]) -> None:
    """Show the changes and ask; end the command with status 1 unless the answer is yes."""
    print(f"payintent: {action}", file=sys.stderr)
    for line in changes:
        print(f"  {line}", file=sys.stderr)
    print("Continue? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        fail("nothing was done")
