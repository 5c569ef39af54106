"""The operator's command line: processes, merchants, keys, payments, webhooks."""

import importlib
import importlib.util

import typer

from payintent.cli import keys, merchants, operators, payments, processes, webhooks

_SANDBOX = "payintent.sandbox.commands"


def build() -> typer.Typer:
    """Build the command; where the sandbox is installed it adds its own."""
    app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, help=__doc__)
    processes.add_to(app)
    app.add_typer(merchants.app, name="merchant")
    app.add_typer(keys.app, name="key")
    app.add_typer(payments.app, name="payment")
    app.add_typer(webhooks.app, name="webhooks")
    app.add_typer(operators.app, name="operator")
    # Found by name, for nothing outside the sandbox imports it, and production can do without.
    if importlib.util.find_spec("payintent.sandbox") is not None:
        importlib.import_module(_SANDBOX).add_to(app)
    return app


def main() -> None:
    """Run the command."""
    build()()
