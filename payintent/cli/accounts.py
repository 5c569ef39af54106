"""`payintent account …`: accounts at providers, the platform's and merchants' own."""

import sys
from pathlib import Path

import msgspec
import typer

from payintent.cli.common import Json, Why, fail, print_record, print_table, run_as_operator
from payintent.operations.accounts import (
    AddAccount,
    ChangeAccount,
    DisableAccount,
    EnableAccount,
    ListAccounts,
    ShowAccount,
)

app = typer.Typer(no_args_is_help=True, help="Accounts at providers: ours and merchants' own.")
_Id = typer.Argument(help="The account's number.")
_COLUMNS = ("id", "provider", "merchant_id", "name", "base_url", "countries", "enabled")
_HELP = "A file with a JSON object of texts, or - for standard input: never on the command line."


@app.command()
def add(
    provider: str = typer.Option(..., help="Such as simulator."),
    base_url: str = typer.Option(..., help="Where the provider's API is."),
    credentials: str = typer.Option(..., help=_HELP),
    merchant: int | None = typer.Option(None, help="Whose it is; left out: the platform's."),
    name: str = typer.Option("", help="What it is for."),
    countries: str | None = typer.Option(None, help="With commas; left out: all of its gateway."),
    why: str = Why,
    as_json: bool = Json,
) -> None:
    """Add an account; its credentials are sealed and never shown again."""
    operation = AddAccount(
        provider=provider,
        base_url=base_url,
        credentials=_read(credentials),
        merchant_id=merchant,
        name=name,
        countries=None if countries is None else countries.split(","),
    )
    print_record(run_as_operator(operation, why), as_json=as_json)


@app.command("list")
def list_(as_json: bool = Json) -> None:
    """List accounts."""
    print_table(run_as_operator(ListAccounts()), _COLUMNS, as_json=as_json)


@app.command("show")
def show_account(account_id: int = _Id, as_json: bool = Json) -> None:
    """Show one account."""
    print_record(run_as_operator(ShowAccount(account_id=account_id)), as_json=as_json)


@app.command()
def change(
    account_id: int = _Id,
    name: str | None = typer.Option(None, help="What it is for."),
    base_url: str | None = typer.Option(None, help="Where the provider's API is."),
    credentials: str | None = typer.Option(None, help=_HELP),
    countries: str | None = typer.Option(None, help='With commas; "" is all of its gateway.'),
    why: str = Why,
    as_json: bool = Json,
) -> None:
    """Give an account another name, address, countries or credentials; what is not given stays."""
    operation = ChangeAccount(
        account_id=account_id,
        name=name,
        base_url=base_url,
        credentials=None if credentials is None else _read(credentials),
        countries=None if countries is None else [code for code in countries.split(",") if code],
    )
    print_record(run_as_operator(operation, why), as_json=as_json)


@app.command()
def enable(account_id: int = _Id, why: str = Why, as_json: bool = Json) -> None:
    """Turn an account on."""
    print_record(run_as_operator(EnableAccount(account_id=account_id), why), as_json=as_json)


@app.command()
def disable(account_id: int = _Id, why: str = Why, as_json: bool = Json) -> None:
    """Turn an account off: nothing new is offered through it, what runs there ends."""
    print_record(run_as_operator(DisableAccount(account_id=account_id), why), as_json=as_json)


def _read(place: str) -> dict[str, str]:
    try:
        raw = sys.stdin.buffer.read() if place == "-" else Path(place).read_bytes()
        return msgspec.json.decode(raw, type=dict[str, str])
    except OSError as error:
        fail(f"cannot read {place}: {error.strerror}")
    except (msgspec.DecodeError, UnicodeDecodeError):
        fail(f"{place} must hold a JSON object of texts")
