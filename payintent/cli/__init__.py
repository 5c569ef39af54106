"""The operator's command line: processes, and every operation as a command."""

import importlib
import importlib.util

import typer

from payintent.cli import (
    accounts,
    keys,
    merchants,
    methods,
    operators,
    payments,
    policies,
    processes,
    records,
    webhooks,
)

_COMMANDS = {
    "merchant": merchants.app,
    "key": keys.app,
    "account": accounts.app,
    "method": methods.app,
    "provider": policies.provider,
    "tax": policies.tax,
    "restriction": policies.restriction,
    "fraud": policies.fraud,
    "limit": policies.limit,
    "payment": payments.app,
    "webhooks": webhooks.app,
    "operator": operators.app,
    "keyring": records.keyring,
    "audit": records.audit,
}
_SANDBOX = "payintent.sandbox.commands"


def build() -> typer.Typer:
    """Build the command; where the sandbox is installed it adds its own."""
    app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, help=__doc__)
    processes.add_to(app)
    for name, commands in _COMMANDS.items():
        app.add_typer(commands, name=name)
    # Found by name, for nothing outside the sandbox imports it, and production can do without.
    if importlib.util.find_spec("payintent.sandbox") is not None:
        importlib.import_module(_SANDBOX).add_to(app)
    return app


def main() -> None:
    """Run the command."""
    build()()
