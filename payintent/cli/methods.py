"""`payintent method …`: the ways to pay that merchants offer."""

from dataclasses import asdict
from decimal import Decimal, InvalidOperation
from typing import Any

import typer

from payintent.cli.common import (
    Json,
    MerchantId,
    Why,
    fail,
    print_record,
    print_table,
    run_as_operator,
)
from payintent.domain.price import FeeMode, format_rate
from payintent.operations.payment_methods import (
    AddPaymentMethod,
    ChangePaymentMethod,
    DisablePaymentMethod,
    EnablePaymentMethod,
    ListPaymentMethods,
)

app = typer.Typer(no_args_is_help=True, help="The ways to pay that merchants offer.")
KINDS = ("card", "redirect", "qr", "onchain")
_Id = typer.Argument(help="The method's number.")
_COLUMNS = (
    "id",
    "kind",
    "label",
    "provider",
    "currencies",
    "countries",
    "fee",
    "enabled",
)


@app.command()
def add(
    merchant_id: int = MerchantId,
    account: int = typer.Option(..., help="The provider account it goes through."),
    kind: str = typer.Option(..., help=f"One of {', '.join(KINDS)}."),
    label: str = typer.Option(..., help="What buyers read."),
    currencies: str = typer.Option(..., help="With commas: USD,THB; of an on-chain one its token."),
    countries: str | None = typer.Option(None, help="With commas; left out: all."),
    token: str | None = typer.Option(None, help="Of an on-chain one, such as USDT."),
    fee_mode: FeeMode = typer.Option(FeeMode.INCLUSIVE, help="Who bears the fee."),
    fee_rate: str = typer.Option("0", help="0.029 is 2.9 %."),
    position: int = typer.Option(0, help="Lower ones are offered first."),
    why: str = Why,
    as_json: bool = Json,
) -> None:
    """Offer another way to pay."""
    if kind not in KINDS:
        fail(f"--kind must be one of {', '.join(KINDS)}")
    chosen: Any = kind
    operation = AddPaymentMethod(
        merchant_id=merchant_id,
        account_id=account,
        kind=chosen,
        label=label,
        currencies=currencies.split(","),
        token=token,
        countries=None if countries is None else countries.split(","),
        fee_mode=fee_mode,
        fee_rate=rate("--fee-rate", fee_rate),
        position=position,
    )
    print_record(run_as_operator(operation, why), as_json=as_json)


@app.command("list")
def list_(merchant_id: int = MerchantId, as_json: bool = Json) -> None:
    """List a merchant's methods in the order they are offered in."""
    methods = run_as_operator(ListPaymentMethods(merchant_id=merchant_id))
    shown = [
        asdict(one)
        | {
            "fee": f"{format_rate(one.fee_rate)} {one.fee_mode}",
            "countries": one.countries or "all",
        }
        for one in methods
    ]
    print_table(methods if as_json else shown, _COLUMNS, as_json=as_json)


@app.command()
def change(
    method_id: int = _Id,
    label: str | None = typer.Option(None, help="What buyers read."),
    currencies: str | None = typer.Option(None, help="With commas: USD,THB."),
    countries: str | None = typer.Option(None, help='With commas; "" is all.'),
    fee_mode: FeeMode | None = typer.Option(None, help="Who bears the fee."),
    fee_rate: str | None = typer.Option(None, help="0.029 is 2.9 %."),
    position: int | None = typer.Option(None, help="Lower ones are offered first."),
    why: str = Why,
    as_json: bool = Json,
) -> None:
    """Change a method; what is not given stays, quotes that were selected keep theirs."""
    operation = ChangePaymentMethod(
        method_id=method_id,
        label=label,
        currencies=None if currencies is None else currencies.split(","),
        countries=None if countries is None else [one for one in countries.split(",") if one],
        fee_mode=fee_mode,
        fee_rate=None if fee_rate is None else rate("--fee-rate", fee_rate),
        position=position,
    )
    print_record(run_as_operator(operation, why), as_json=as_json)


@app.command()
def enable(method_id: int = _Id, why: str = Why, as_json: bool = Json) -> None:
    """Offer a method again."""
    print_record(run_as_operator(EnablePaymentMethod(method_id=method_id), why), as_json=as_json)


@app.command()
def disable(method_id: int = _Id, why: str = Why, as_json: bool = Json) -> None:
    """Offer a method no more; what runs through it ends."""
    print_record(run_as_operator(DisablePaymentMethod(method_id=method_id), why), as_json=as_json)


def rate(option: str, text: str) -> Decimal:
    """Read a rate such as 0.029; ends the command with what is wrong."""
    try:
        return Decimal(text)
    except InvalidOperation:
        fail(f"{option} must be a decimal such as 0.029")
