"""The operator's command line: commands that start processes, and a command for each operation."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import typer

from payintent.runtime.version import describe_version

#: Help for the top-level commands, by the module in this package that adds them.
_COMMANDS = {
    "processes": {
        "api": "Serve the API and the hosted checkout, and the operator routes on a separate port.",
        "worker": "Run the background loops for expiry, inquiries, refunds, webhooks and chains.",
        "migrate": "Migrate the database schema to this version.",
    },
    "doctor": {
        "doctor": "Check settings, secrets, database, migrations, setup and chains.",
    },
    "reconcile": {
        "reconcile": "Compare a provider's file with our records, and exit with status 1 if they"
        " differ.",
    },
}

#: Help for the command groups, such as `merchant` in `payintent merchant list`.
_GROUPS = {
    "merchant": "Merchants and their activation.",
    "key": "Merchants' API keys.",
    "account": "Gateway accounts of the platform and of merchants.",
    "method": "Payment methods of merchants.",
    "provider": "Enable and disable providers for all merchants.",
    "tax": "Tax rates, if this service manages tax.",
    "restriction": "Countries where crypto or on-ramp orders are restricted.",
    "fraud": "Fraud rules and their decisions.",
    "limit": "Rate limits of individual merchants.",
    "chain": "Chains with their contracts, tokens, finality and progress.",
    "payment": "Find, show, cancel, refund and end payments.",
    "payment-link": "Payment links of merchants.",
    "quotes": "Explain why a payment method is or is not offered to a buyer.",
    "case": "Cases that need manual review, such as money without a payment.",
    "refund": "Refunds and their approval.",
    "payer": "Export and erase a payer's data.",
    "config": "Export, compare and apply the configuration as one file.",
    "retention": "Retention rules for old data.",
    "ledger": "Balances, checks and backfill of the double-entry ledger.",
    "payout": "Payouts to merchants.",
    "gateway-payout": "Payouts received from gateways.",
    "reconciliation": "Reconciliation runs of the worker.",
    "statement": "Daily statements for merchants.",
    "dispute": "Disputes and their deadlines.",
    "webhooks": "Events and their delivery.",
    "approval": "Proposals that need approval.",
    "operator": "Operators, their roles and tokens.",
    "keyring": "The keys that encrypt secrets.",
    "audit": "The audit log.",
}
#: Commands that do not load plugins, because searching for plugins takes longer than running a
#: small command. `doctor` is excluded because plugins add checks to it.
_WITHOUT_PLUGINS = {*_GROUPS, *_COMMANDS["processes"]}
#: Checks that plugins add to `payintent doctor`, by subject. Each returns the line to print.
EXTRA_CHECKS: dict[str, Callable[[], str]] = {}
#: Entry point group of functions that add commands to a Typer app.
_ENTRY_POINTS = "payintent.commands"
#: Environment variable that is set by the script from `--show-completion`.
_COMPLETION_ENV = "_PAYINTENT_COMPLETE"
#: The base class of errors for invalid arguments. Typer does not export it.
USAGE_ERROR: type[BaseException] = typer.BadParameter.__bases__[0]
ABORT: type[BaseException] = typer.Abort


def build(command: str | None = None, *, is_completing: bool = False) -> typer.Typer:
    """Build the command line, including the commands of plugins such as the sandbox.

    If `command` is given, only that command or group is complete. The other commands have only
    names and help text, because importing their modules takes far longer than printing help.
    `is_completing` means that a shell is completing a command line.
    """
    app = typer.Typer(
        no_args_is_help=True,
        add_completion=is_completing or command not in _GROUPS,
        pretty_exceptions_enable=False,
        help=__doc__,
    )
    app.callback()(_handle_root_options)
    for module, commands in _COMMANDS.items():
        if command is None or command in commands:
            import_module(f"payintent.cli.{module}").add_to(app)
        else:
            for name, help_text in commands.items():
                app.command(name, help=help_text)(_do_nothing)
    for name, help_text in _GROUPS.items():
        group = typer.Typer(no_args_is_help=True, help=help_text)
        if command not in {None, name}:
            pass
        elif name == "config":  # reads and writes local files
            import_module("payintent.cli.config").add_to(group)
        else:
            import_module("payintent.cli.operation_commands").add_to(group, name)
        app.add_typer(group, name=name)
    if command not in _WITHOUT_PLUGINS:
        _add_external_commands(app)
    return app


def _do_nothing() -> None:
    """Stand in for a command that this run does not use."""


def _add_external_commands(app: typer.Typer) -> None:
    from importlib.metadata import entry_points  # imported late because it is slow

    for entry_point in entry_points(group=_ENTRY_POINTS):
        entry_point.load()(app)


def _print_version(is_requested: bool) -> None:
    if is_requested:
        print(describe_version())
        raise typer.Exit


def _handle_root_options(
    version: bool = typer.Option(
        False,
        "--version",
        is_eager=True,
        callback=_print_version,
        help="Print the version and exit.",
    ),
) -> None:
    del version


def find_completion_words(environ: Mapping[str, str]) -> list[str] | None:
    """Return the words of the command line that a shell is completing, or None."""
    if _COMPLETION_ENV not in environ:
        return None
    command_line = environ.get("COMP_WORDS") or environ.get("_TYPER_COMPLETE_ARGS") or ""
    return command_line.split()[1:]


def find_group(words: list[str]) -> str:
    """Return the first word that is not an option, or an empty string."""
    return next((word for word in words if not word.startswith("-")), "")


def print_usage_error(error: Any) -> int:
    """Print a usage error, or the help if there were no arguments; return the exit status."""
    message = str(error.format_message())
    if "\n" in message:
        print(message, file=sys.stderr)
    elif message:
        command = error.ctx.command_path if error.ctx else "payintent"
        problem = message.replace("Value error, ", "").rstrip(".")
        print(f"payintent: {problem}; see {command} --help", file=sys.stderr)
    return error.exit_code
