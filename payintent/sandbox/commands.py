"""What the sandbox adds to the command line: `dev`."""

import typer


def add_to(app: typer.Typer) -> None:
    """Add these commands."""
    app.command()(dev)


def dev() -> None:
    """Run the whole sandbox in this terminal: database, API, worker, gateway, shop."""
    from payintent.sandbox.dev import run

    raise typer.Exit(run())
