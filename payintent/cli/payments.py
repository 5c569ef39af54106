"""`payintent payment show`: one payment and everything that happened to it."""

from typing import Any

import msgspec
import typer

from payintent.cli.common import Json, print_json, print_record, print_table, read_as_operator
from payintent.json_format import encode_json
from payintent.operations.payment_details import payment_details
from payintent.service import Service

_Id = typer.Argument(help="Such as pay_0351NDickobV3yYH8omp8v.")
_PARTS = {
    "sessions": ("id", "provider", "chain", "token", "amount_smallest_unit", "life", "outcome"),
    "receipts": ("disposition", "chain", "block", "tx_hash", "amount_smallest_unit", "final_at"),
    "cases": ("id", "kind", "status", "opened_at"),
}


def add_to(group: typer.Typer) -> None:
    """Add `show` to the group `payment`."""
    group.command("show")(show_payment)


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
