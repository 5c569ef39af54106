"""The operator's command line: processes, and every operation as a command."""

import sys
from importlib.metadata import entry_points
from typing import Any

import typer

from payintent.cli import (
    accounts,
    approvals,
    cases,
    chains,
    keys,
    merchants,
    methods,
    operators,
    payments,
    policies,
    processes,
    reconcile,
    records,
    refunds,
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
    "chain": chains.app,
    "payment": payments.app,
    "case": cases.app,
    "refund": refunds.app,
    "webhooks": webhooks.app,
    "approval": approvals.app,
    "operator": operators.app,
    "keyring": records.keyring,
    "audit": records.audit,
}
#: The group under which a distribution names a function that adds commands to a Typer app.
_ENTRY_POINTS = "payintent.commands"
#: Whatever is wrong with arguments; the framework tells no other name of it.
MISUSED: type[BaseException] = typer.BadParameter.__bases__[0]
ABORTED: type[BaseException] = typer.Abort


def build() -> typer.Typer:
    """Build the command; other installed distributions, such as the sandbox, add theirs."""
    app = typer.Typer(
        no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__
    )
    processes.add_to(app)
    reconcile.add_to(app)
    for name, commands in _COMMANDS.items():
        app.add_typer(commands, name=name)
    for entry_point in entry_points(group=_ENTRY_POINTS):
        entry_point.load()(app)
    return app


def misused(error: Any) -> int:
    """Say what is wrong with the arguments; where there were none, show the help instead."""
    message = str(error.format_message())
    if "\n" in message:
        print(message, file=sys.stderr)
    elif message:
        where = error.ctx.command_path if error.ctx else "payintent"
        known = message.replace("Value error, ", "").rstrip(".")
        print(f"payintent: {known}; see {where} --help", file=sys.stderr)
    return error.exit_code
