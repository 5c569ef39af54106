"""`payintent payment …`: one payment and everything that happened to it."""

from typing import Any

import msgspec
import typer

from payintent.cli.run import Json, print_json, show, show_one, with_service
from payintent.domain import ids
from payintent.domain.errors import Code, Refused
from payintent.lifecycle.wire import encode, payment_fields
from payintent.service import Service
from payintent.storage import captures, payments
from payintent.storage.captures import Case

app = typer.Typer(no_args_is_help=True, help="One payment, and everything that happened to it.")


@app.callback()
def _group() -> None:
    """Keep `payment show` a command of its own while it is the only one."""


@app.command("show")
def show_payment(payment_id: str, as_json: bool = Json) -> None:
    """Show a payment as its merchant sees it, and the cases that it has."""

    async def work(service: Service) -> tuple[dict[str, Any], list[Case]]:
        parsed = ids.parse(ids.PAYMENT, payment_id)
        seen = await payments.by_id(service.database, parsed) if parsed else None
        if seen is None:
            raise Refused(Code.NOT_FOUND, f"no payment {payment_id}")
        fields = payment_fields(seen.payment, seen.session)
        fields["checkout_id"] = ids.masked(seen.payment.checkout_id)
        return fields, await captures.cases_of(service.database, seen.payment.id)

    fields, cases = with_service(work)
    kinds = [{"id": ids.text(ids.CASE, one.id), "kind": one.kind} for one in cases]
    if as_json:
        print_json(msgspec.Raw(encode(fields | {"cases": kinds})))
        return
    show_one(fields | {"metadata": bytes(fields["metadata"]).decode()}, as_json=False)
    if cases:
        show(cases, ("kind", "status", "opened_at"), as_json=False)
