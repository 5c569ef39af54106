"""What the sandbox adds to the command line: `dev` and `devchain`."""

import typer

from payintent.cli import processes
from payintent.sandbox import devchain
from payintent.sandbox.anvil_binary import describe


def add_to(app: typer.Typer) -> None:
    """Add these commands."""
    app.command()(dev)
    processes.TOLD["anvil"] = describe
    app.add_typer(devchain.app, name="devchain")


def dev() -> None:
    """Run the whole sandbox in this terminal: database, API, worker, gateway, shop, chains."""
    from payintent.sandbox.dev import run

    raise typer.Exit(run())
