"""`payintent payment …`: one payment and everything that happened to it."""

from typing import Any

import msgspec
import typer

from payintent.cli.common import (
    Json,
    Why,
    print_json,
    print_record,
    print_table,
    read_as_operator,
    run_as_operator,
)
from payintent.json_format import encode_json
from payintent.operations.payment_details import payment_details
from payintent.operations.payments import EndPayment
from payintent.service import Service

app = typer.Typer(no_args_is_help=True, help="One payment, and everything that happened to it.")
_Id = typer.Argument(help="Such as pay_0351NDickobV3yYH8omp8v.")
_PARTS = {
    "sessions": ("id", "provider", "chain", "token", "amount_smallest_unit", "life", "outcome"),
    "receipts": ("disposition", "chain", "block", "tx_hash", "amount_smallest_unit", "final_at"),
    "cases": ("id", "kind", "status", "opened_at"),
}


@app.command("show")
def show_payment(payment_id: str = _Id, as_json: bool = Json) -> None:
    """Show a payment as its merchant sees it, its sessions, the chain's receipts and its cases."""

    async def work(service: Service) -> dict[str, Any]:
        return await payment_details(service.database, payment_id)

    fields = read_as_operator(work)
    if as_json:
        print_json(msgspec.Raw(encode_json(fields)))
        return
    parts = {name: fields.pop(name) for name in _PARTS}
    print_record(fields | {"metadata": bytes(fields["metadata"]).decode()}, as_json=False)
    for name, columns in _PARTS.items():
        if parts[name]:
            print()
            print_table(parts[name], columns, as_json=False)


@app.command()
def end(payment_id: str = _Id, why: str = Why, as_json: bool = Json) -> None:
    """Expire a payment whose time is over and whose chain nobody watches; needs two people."""
    print_record(run_as_operator(EndPayment(payment_id=payment_id), why), as_json=as_json)
