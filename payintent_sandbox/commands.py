"""The commands that the sandbox adds to `payintent`: `dev` and `devchain`."""

import typer

from payintent.cli import doctor
from payintent_sandbox.chains import commands
from payintent_sandbox.chains.anvil_binary import describe


def add_to(app: typer.Typer) -> None:
    """Add `dev` and `devchain` to the command line."""
    app.command()(dev)
    doctor.EXTRA_CHECKS["anvil"] = describe
    app.add_typer(commands.app, name="devchain")


def dev() -> None:
    """Run the whole sandbox in this terminal: database, API, worker, gateway, shop, chains."""
    from payintent_sandbox.dev import run

    raise typer.Exit(run())
