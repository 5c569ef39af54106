"""The commands that the sandbox adds to `payintent`: `dev`, `env`, `seed` and `devchain`.

Every `payintent --help` imports this module, so a command's dependencies are imported when it runs.
"""

import typer

from payintent.cli.commands import EXTRA_CHECKS
from payintent_sandbox.chains import commands

_PAYMENTS_MAX = 100_000_000


def add_to(app: typer.Typer) -> None:
    """Add `dev`, `env`, `seed` and `devchain` to the command line."""
    app.command()(dev)
    app.command()(env)
    app.command()(seed)
    EXTRA_CHECKS["anvil"] = _describe_anvil
    app.add_typer(commands.app, name="devchain")


def dev(
    chains: bool = typer.Option(
        True, help="Run development chains for token payments. Startup is faster without them."
    ),
) -> None:
    """Run the whole sandbox in this terminal: database, API, worker, gateway, shop and chains."""
    from payintent_sandbox.dev import run

    raise typer.Exit(run(chains=chains))


def env() -> None:
    """Print the running sandbox's settings as shell exports: eval "$(payintent env)"."""
    from payintent_sandbox.exports import print_exports

    raise typer.Exit(print_exports())


def seed(
    payments: int = typer.Option(..., min=1, max=_PAYMENTS_MAX, help="The number of payments."),
    days: int = typer.Option(90, min=1, max=3_650, help="The age of the oldest payment."),
) -> None:
    """Fill a sandbox's database with payments and all of their related data."""
    from payintent_sandbox.seed.command import run

    run(payments, days)


def _describe_anvil() -> str:
    from payintent_sandbox.chains.anvil_binary import describe

    return describe()
