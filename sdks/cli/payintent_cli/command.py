"""The `payintent-cli` command for a merchant's engineers."""

from __future__ import annotations

import argparse
import getpass
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from payintent_cli.usage import UsageError, stop_at_signals, write_any_text

if TYPE_CHECKING:
    import typer

    from payintent_cli.keys import Access

_HELP = {
    "listen": "Forward every event to a local server as a signed webhook.",
    "logs": "Show events and the state of their webhooks (logs tail).",
    "open": "Print the checkout URL of a payment and open it in the browser.",
    "trigger": "Create a test payment that ends with an event such as payment.completed.",
    "verify-deposit": "Check a deposit address against a saved copy of the chain's details.",
    "grade": "Check how a shop's webhook receiver handles faults.",
    "login": "Store an API key in the keyring, or in a file that only you can read.",
    "logout": "Delete a stored API key.",
}


_INSECURE = "accept any certificate from your server, such as a self-signed certificate"


def run(words: Sequence[str] | None = None) -> None:
    """Run a command. Errors are printed to standard error as a single line."""
    write_any_text()
    arguments = _arguments().parse_args(words)
    stop_at_signals()
    try:
        arguments.do(arguments)
    except KeyboardInterrupt:
        print("stopped", flush=True)
    except UsageError as error:
        print(f"payintent-cli: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except Exception as error:
        from payintent_sdk.errors import PayintentError  # imported late, because the import is slow

        if not isinstance(error, PayintentError):
            raise
        print(f"payintent-cli: {error}", file=sys.stderr)
        raise SystemExit(1) from None


def add_to(app: typer.Typer) -> None:
    """Add the commands to the service's `payintent` command."""
    for name, help_text in _HELP.items():
        _add(app, name, help_text)


def _add(app: typer.Typer, name: str, help_text: str) -> None:
    import typer

    def command(context: typer.Context) -> None:
        run([name, *context.args])

    command.__annotations__["context"] = typer.Context
    settings = {"allow_extra_args": True, "ignore_unknown_options": True}
    app.command(name, help=help_text, context_settings=settings, add_help_option=False)(command)


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="payintent-cli", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, do: Callable[[Any], None]) -> argparse.ArgumentParser:
        one = commands.add_parser(name, help=_HELP[name], description=_HELP[name])
        one.add_argument("--live", action="store_true", help="use the live key (real money)")
        one.add_argument("--base-url", help="URL of the service, without /v1")
        one.set_defaults(do=do)
        return one

    listen = command("listen", _listen)
    listen.add_argument("--forward-to", required=True, metavar="URL", help="URL of your server")
    listen.add_argument("--insecure", action="store_true", help=_INSECURE)
    listen.add_argument("--events", metavar="TYPES", help="only these types, separated by commas")
    listen.add_argument(
        "--resume", action="store_true", help="continue where the last listener stopped"
    )
    listen.add_argument("--tries", type=int, default=5, help="attempts for each delivery (5)")
    logs = command("logs", _tail)
    logs.add_argument("what", choices=["tail"])
    logs.add_argument("--from-start", action="store_true", help="start 30 days ago")
    logs.add_argument("--no-follow", action="store_true", help="exit after the existing events")
    opened = command("open", _open)
    opened.add_argument("payment_id", metavar="PAYMENT")
    opened.add_argument(
        "--print", action="store_true", dest="only_print", help="do not open the browser"
    )
    triggered = command("trigger", _trigger)
    triggered.add_argument(
        "kind",
        choices=["payment.completed", "payment.failed", "payment.cancelled", "payment.expired"],
    )
    triggered.add_argument(
        "--amount", default="1590.00", help="amount in the main currency unit (1590.00)"
    )
    triggered.add_argument("--currency", default="THB", help="a currency that you accept (THB)")
    verified = command("verify-deposit", _verify_deposit)
    verified.add_argument("id", metavar="PAYMENT|SESSION")
    verified.add_argument(
        "--chain",
        action="append",
        required=True,
        metavar="FILE",
        help="a stored response from GET /v1/chains/{slug}; repeat it for old factories",
    )
    verified.add_argument(
        "--address", metavar="0x…", help="also compare this address, which was shown to a buyer"
    )
    graded = command("grade", _grade)
    graded.add_argument("--webhook-url", required=True, metavar="URL", help="your webhook receiver")
    graded.add_argument("--orders-url", required=True, metavar="URL", help="your order endpoint")
    graded.add_argument("--insecure", action="store_true", help=_INSECURE)
    graded.add_argument(
        "--key",
        nargs="?",
        const="",
        metavar="sk_test_…",
        help="also run checks with real test payments; without a value, use the stored key",
    )
    graded.add_argument("--only", metavar="CHECKS", help="only these checks, separated by commas")
    graded.add_argument(
        "--settle", type=float, default=0.5, help="seconds to wait for background work (0.5)"
    )
    graded.add_argument("--json", action="store_true", dest="as_json", help="print JSON")
    command("login", _login)
    command("logout", _logout)
    return parser


def _access(arguments: argparse.Namespace) -> Any:
    from payintent_cli.keys import find_access

    return find_access(live=arguments.live, base_url=arguments.base_url)


def _listen(arguments: argparse.Namespace) -> None:
    from payintent_cli.listen import Listening, listen
    from payintent_cli.targets import read_url

    how = Listening(
        forward_to=read_url(arguments.forward_to, "--forward-to"),
        insecure=arguments.insecure,
        types=arguments.events.split(",") if arguments.events else None,
        resume=arguments.resume,
        tries=max(1, arguments.tries),
    )
    listen(_access(arguments), how)


def _tail(arguments: argparse.Namespace) -> None:
    access = _access(arguments)
    from payintent_cli.logs import tail

    tail(access, from_start=arguments.from_start, follow=not arguments.no_follow)


def _open(arguments: argparse.Namespace) -> None:
    access = _access(arguments)
    from payintent_cli.opening import open_checkout

    open_checkout(access, arguments.payment_id, only_print=arguments.only_print)


def _verify_deposit(arguments: argparse.Namespace) -> None:
    access = _access(arguments)
    from payintent_cli.deposit_addresses import verify

    verify(access, arguments.id, arguments.chain, arguments.address)


def _trigger(arguments: argparse.Namespace) -> None:
    from payintent_cli.keys import TEST_KEY

    access = _access(arguments)
    if arguments.live or not access.key.startswith(TEST_KEY):
        raise UsageError("trigger accepts only a test key (sk_test_)")
    from payintent_cli.trigger import trigger

    trigger(access, arguments.kind, amount=arguments.amount, currency=arguments.currency)


def _grade(arguments: argparse.Namespace) -> None:
    secret = os.environ.get("PAYINTENT_WEBHOOK_SECRET", "").strip()
    if not secret:
        raise UsageError("set PAYINTENT_WEBHOOK_SECRET to the webhook secret of your test shop")
    access = None if arguments.key is None else _test_access(arguments)
    from payintent_cli.grading.checks import grade
    from payintent_cli.grading.report import as_json, as_text
    from payintent_cli.grading.service import Service
    from payintent_cli.grading.shop import Shop
    from payintent_cli.signing import read_secret
    from payintent_cli.targets import read_url

    key = read_secret(secret)
    webhook_url = read_url(arguments.webhook_url, "--webhook-url")
    orders_url = read_url(arguments.orders_url, "--orders-url")
    with ExitStack() as stack:
        shop = stack.enter_context(
            Shop(webhook_url, orders_url, key, arguments.settle, insecure=arguments.insecure)
        )
        service = stack.enter_context(Service(access)) if access else None
        grades = grade(shop, service, arguments.only.split(",") if arguments.only else None)
    if grades.outcomes or arguments.as_json:
        print((as_json if arguments.as_json else as_text)(grades), flush=True)
    if grades.stopped is not None:
        raise UsageError(grades.stopped)
    if not grades.passed:
        raise SystemExit(1)


def _test_access(arguments: argparse.Namespace) -> Access:
    """Return the test key of `--key`, or the stored key. Live keys are rejected."""
    from payintent_cli.keys import TEST_KEY, Access, check_key, find_base_url

    access = (
        Access(key=check_key(arguments.key, live=True), base_url=find_base_url(arguments.base_url))
        if arguments.key
        else _access(arguments)
    )
    if arguments.live or not access.key.startswith(TEST_KEY):
        raise UsageError("grade accepts only a test key (sk_test_)")
    return access


def _login(arguments: argparse.Namespace) -> None:
    from payintent_cli.keys import keep

    asked = sys.stdin.isatty()
    key = getpass.getpass("API key: ") if asked else sys.stdin.readline()
    print(f"stored in {keep(key, live=arguments.live, base_url=arguments.base_url)}")


def _logout(arguments: argparse.Namespace) -> None:
    from payintent_cli.keys import forget

    forget(live=arguments.live)
