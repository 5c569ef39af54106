"""The operator's command line: processes, and every operation as a command."""

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import typer

from payintent.version import API_VERSION

#: The commands outside of groups, by the module here that adds them, with what `--help` says.
_COMMANDS = {
    "processes": {
        "api": "Serve the API and the hosted checkout, and operators on a port of their own.",
        "worker": (
            "Run in the background: expire, inquire, refund, deliver webhooks, watch chains, prune."
        ),
        "migrate": "Bring the database's schema up to date.",
    },
    "doctor": {
        "doctor": "Check settings, secrets, database, migrations, setup and chains; say what is "
        "wrong.",
    },
    "reconcile": {
        "reconcile": "Compare a provider's file with ours; exit status 1 where they differ.",
    },
}

#: What the commands of a group are about: `merchant` is the group of `payintent merchant list`.
_GROUPS = {
    "merchant": "Who is paid, and how far its activation is.",
    "key": "Merchants' API keys.",
    "account": "Accounts at providers: ours and merchants' own.",
    "method": "The ways to pay that merchants offer.",
    "provider": "Providers, on or off for everybody.",
    "tax": "Tax rates, where this service manages tax.",
    "restriction": "Countries where crypto or on-ramp orders are restricted.",
    "fraud": "Rules of fraud screening, and what they denied.",
    "limit": "Merchants' own rate limits.",
    "chain": "Chains: contracts, tokens, finality, and how far each was read.",
    "payment": "Payments: found, shown with all that happened, cancelled, refunded, ended.",
    "quotes": "Why a buyer is offered a way to pay, or is not.",
    "case": "Money that no payment may own, and what else a person must look at.",
    "refund": "Money that goes back, and who agrees to it.",
    "payer": "What is stored of one payer, and its erasure.",
    "config": "The configuration as one file: exported, compared, applied.",
    "retention": "What is taken away when it is old.",
    "ledger": "The books in double entry: balances, their check, what is from before.",
    "payout": "What the operator paid to merchants.",
    "gateway-payout": "What gateways paid out of their accounts.",
    "reconciliation": "Comparisons of gateways' lists with ours that the worker made.",
    "statement": "What moved what a merchant is owed, day by day.",
    "dispute": "What buyers object to at their banks, and until when to answer.",
    "webhooks": "Events, their delivery, and sending them again.",
    "approval": "What waits for another person.",
    "operator": "Operators: their names, roles and tokens.",
    "keyring": "The keys that secrets are sealed with.",
    "audit": "Who changed what, and why.",
}
#: What is opened without a look at other distributions, which takes longer than a small command;
#: `doctor` is not: it has checks of theirs.
_OURS = {*_GROUPS, *_COMMANDS["processes"]}
#: The group under which a distribution names a function that adds commands to a Typer app.
_ENTRY_POINTS = "payintent.commands"
#: Set by the script that `--show-completion` prints, to the shell's name.
_COMPLETING = "_PAYINTENT_COMPLETE"
#: Raised for wrong arguments; Typer has no public name for it.
MISUSED: type[BaseException] = typer.BadParameter.__bases__[0]
ABORTED: type[BaseException] = typer.Abort


def build(opened: str | None = None, *, completing: bool = False) -> typer.Typer:
    """Build the command; other installed distributions, such as the sandbox, add theirs.

    With `opened` only the command or group of that name is whole, and the others have a name and a
    help text: to import what they need takes far longer than to print that. Others' commands are
    added unless what is opened needs none of them. Completion is added where no group is opened,
    or where a shell is `completing` a command line.
    """
    app = typer.Typer(
        no_args_is_help=True,
        add_completion=completing or opened not in _GROUPS,
        pretty_exceptions_enable=False,
        help=__doc__,
    )
    app.callback()(_root)
    for module, commands in _COMMANDS.items():
        if opened is None or opened in commands:
            import_module(f"payintent.cli.{module}").add_to(app)
        else:
            for name, help_text in commands.items():
                app.command(name, help=help_text)(_unopened)
    for name, help_text in _GROUPS.items():
        group = typer.Typer(no_args_is_help=True, help=help_text)
        if opened not in {None, name}:
            pass
        elif name == "config":  # its file is on the machine where the command is typed
            import_module("payintent.cli.config").add_to(group)
        else:
            import_module("payintent.cli.operation_commands").add_to(group, name)
        app.add_typer(group, name=name)
    if opened not in _OURS:
        _add_commands_of_others(app)
    return app


def _unopened() -> None:
    """Stand for a command that this command line does not name."""


def _add_commands_of_others(app: typer.Typer) -> None:
    from importlib.metadata import entry_points  # slower to import than all the rest of `--help`

    for entry_point in entry_points(group=_ENTRY_POINTS):
        entry_point.load()(app)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"payintent {API_VERSION}")
        raise typer.Exit


def _root(
    version: bool = typer.Option(
        False,
        "--version",
        is_eager=True,
        callback=_print_version,
        help="Print the version and end.",
    ),
) -> None:
    del version


def completed_words(environ: Mapping[str, str]) -> list[str] | None:
    """Return the words of a command line that a shell wants completed, or None."""
    if _COMPLETING not in environ:
        return None
    typed = environ.get("COMP_WORDS") or environ.get("_TYPER_COMPLETE_ARGS") or ""
    return typed.split()[1:]


def find_group(words: list[str]) -> str:
    """Give the first word of a command line that is no option; empty if there is none."""
    return next((word for word in words if not word.startswith("-")), "")


def print_misuse(error: Any) -> int:
    """Print what is wrong with the arguments, or the help where there were none."""
    message = str(error.format_message())
    if "\n" in message:
        print(message, file=sys.stderr)
    elif message:
        command = error.ctx.command_path if error.ctx else "payintent"
        problem = message.replace("Value error, ", "").rstrip(".")
        print(f"payintent: {problem}; see {command} --help", file=sys.stderr)
    return error.exit_code
