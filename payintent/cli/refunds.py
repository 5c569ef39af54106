"""`payintent refund …`: money that goes back, and what waits for a second person."""

import typer

from payintent.cli.common import Json, Limit, Why, print_record, print_table, run_as_operator
from payintent.domain.refund import RefundStatus, RefundStep
from payintent.operations.refunds import (
    ApproveRefund,
    ListRefunds,
    RejectRefund,
    ResendRefund,
    ShowRefund,
)

app = typer.Typer(no_args_is_help=True, help="Money that goes back, and who agrees to it.")
_Id = typer.Argument(help="Such as ref_0351NDickobV3yYH8omp8v.")
_COLUMNS = (
    "id",
    "status",
    "step",
    "merchant_id",
    "payment_id",
    "amount_minor",
    "currency",
    "requested_by",
    "created_at",
)


@app.command("list")
def list_(
    merchant: int | None = typer.Option(None, help="Of one merchant."),
    payment: str | None = typer.Option(None, help="Of one payment, its cases' too."),
    status: RefundStatus | None = typer.Option(None, help="What the merchant is told."),
    step: RefundStep | None = typer.Option(None, help="How far; `approval` waits for a person."),
    limit: int = Limit,
    as_json: bool = Json,
) -> None:
    """List refunds, newest first."""
    operation = ListRefunds(
        merchant_id=merchant, payment_id=payment, status=status, step=step, limit=limit
    )
    print_table(run_as_operator(operation), _COLUMNS, as_json=as_json)


@app.command("show")
def show_refund(refund_id: str = _Id, as_json: bool = Json) -> None:
    """Show one refund, and the money that it gives back."""
    print_record(run_as_operator(ShowRefund(refund_id=refund_id)), as_json=as_json)


@app.command()
def approve(
    refund_id: str = _Id,
    note: str = typer.Option("", help="Needed where the money goes to another than its payer."),
    why: str = Why,
    as_json: bool = Json,
) -> None:
    """Let a refund be sent that waits for a person; who asked for it cannot."""
    print_record(
        run_as_operator(ApproveRefund(refund_id=refund_id, note=note), why), as_json=as_json
    )


@app.command()
def reject(
    refund_id: str = _Id,
    note: str = typer.Option("", help="Kept with the refund; left out: the reason."),
    why: str = Why,
    as_json: bool = Json,
) -> None:
    """End a refund that waits for a person; what it reserved is free again."""
    print_record(
        run_as_operator(RejectRefund(refund_id=refund_id, note=note or why), why), as_json=as_json
    )


@app.command()
def resend(
    refund_id: str = _Id,
    note: str = typer.Option("", help="Kept with its case; left out: the reason."),
    why: str = Why,
    as_json: bool = Json,
) -> None:
    """Send a refund again that rests with a case and was surely not done; needs two people."""
    print_record(
        run_as_operator(ResendRefund(refund_id=refund_id, note=note or why), why), as_json=as_json
    )
