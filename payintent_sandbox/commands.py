"""The commands that the sandbox adds to `payintent`: `dev` and `devchain`.

Every `payintent --help` imports this module, so what the commands need is imported when they run.
"""

import typer

from payintent.cli.extra_checks import EXTRA_CHECKS
from payintent_sandbox.chains import commands


def add_to(app: typer.Typer) -> None:
    """Add `dev` and `devchain` to the command line."""
    app.command()(dev)
    EXTRA_CHECKS["anvil"] = _describe_anvil
    app.add_typer(commands.app, name="devchain")


def dev() -> None:
    """Run the whole sandbox in this terminal: database, API, worker, gateway, shop, chains."""
    from payintent_sandbox.dev import run

    raise typer.Exit(run())


def _describe_anvil() -> str:
    from payintent_sandbox.chains.anvil_binary import describe

    return describe()
