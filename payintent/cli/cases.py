"""`payintent case …`: money that no payment may own, until a person has decided."""

from enum import StrEnum
from typing import Any

import typer

from payintent.cli.common import Json, Limit, Why, print_record, print_table, run_as_operator
from payintent.domain.case import CaseKind
from payintent.operations.cases import ListCases, ResolveCase, ShowCase

app = typer.Typer(
    no_args_is_help=True, help="Money that no payment may own, and what else a person must look at."
)
_Id = typer.Argument(help="Such as case_0351NDickobV3yYH8omp8v.")
_COLUMNS = (
    "id",
    "kind",
    "status",
    "merchant_id",
    "payment_id",
    "chain",
    "amount_minor",
    "currency",
    "opened_at",
)


class CaseStatus(StrEnum):
    """How far a case is; `ALL` is any."""

    OPEN = "OPEN"
    ACCEPTED = "ACCEPTED"
    DISMISSED = "DISMISSED"
    REFUNDED = "REFUNDED"
    ALL = "ALL"


class Resolution(StrEnum):
    """What becomes of a case's money: it is ours, nothing is to be done, or it goes back."""

    ACCEPT = "accept"
    DISMISS = "dismiss"
    REFUND = "refund"


@app.command("list")
def list_(
    merchant: int | None = typer.Option(None, help="Of one merchant."),
    status: CaseStatus = typer.Option(
        CaseStatus.OPEN, help="Only cases of this status; ALL: every one."
    ),
    kind: CaseKind | None = typer.Option(None, help="Of one kind."),
    limit: int = Limit,
    as_json: bool = Json,
) -> None:
    """List cases, newest first."""
    chosen: Any = status.value
    operation = ListCases(merchant_id=merchant, status=chosen, kind=kind, limit=limit)
    print_table(run_as_operator(operation), _COLUMNS, as_json=as_json)


@app.command("show")
def show_case(case_id: str = _Id, as_json: bool = Json) -> None:
    """Show one case, and the money it is about."""
    print_record(run_as_operator(ShowCase(case_id=case_id)), as_json=as_json)


@app.command()
def resolve(
    case_id: str = _Id,
    resolution: Resolution = typer.Argument(
        help="`accept`: the money is kept; `dismiss`: there is none; `refund`: it goes back."
    ),
    note: str = typer.Option("", help="Kept with the case; left out: the reason."),
    destination: str | None = typer.Option(
        None, help="Of money on a chain: where it goes, if not back to its payer."
    ),
    why: str = Why,
    as_json: bool = Json,
) -> None:
    """Close a case, or refund it, which closes it when the money has gone back."""
    chosen: Any = resolution.value
    operation = ResolveCase(
        case_id=case_id, resolution=chosen, note=note or why, destination=destination
    )
    print_record(run_as_operator(operation, why), as_json=as_json)
