"""`payintent approval …`: what waits for another person."""

from typing import Any, Literal

import typer

from payintent.cli.common import (
    Json,
    Limit,
    Why,
    print_json,
    print_record,
    print_table,
    run_as_operator,
)
from payintent.operations.approvals import Approve, ListApprovals, Reject, ShowApproval
from payintent.operations.json_values import to_json_value

app = typer.Typer(no_args_is_help=True, help="What waits for another person.")
_Id = typer.Argument(help="Such as appr_0351NDickobV3yYH8omp8v, or a refund that waits.")
_COLUMNS = ("id", "action", "status", "changes", "proposed_by", "proposed_at", "expires_at")
_Status = Literal["WAITING", "APPROVED", "REJECTED", "LAPSED", "ALL"]


@app.command("list")
def list_(
    status: _Status = typer.Option("WAITING", help="What became of it."),
    limit: int = Limit,
    as_json: bool = Json,
) -> None:
    """List what waits for another person, newest first."""
    print_table(
        run_as_operator(ListApprovals(status=status, limit=limit)), _COLUMNS, as_json=as_json
    )


@app.command("show")
def show_approval(approval_id: str = _Id, as_json: bool = Json) -> None:
    """Show one, with what it would change, in words."""
    print_record(run_as_operator(ShowApproval(approval_id=approval_id)), as_json=as_json)


@app.command()
def approve(
    approval_id: str = _Id,
    note: str = typer.Option("", help="Kept with it."),
    why: str = Why,
    as_json: bool = Json,
) -> None:
    """Approve it: it is done at once. A secret that it makes is printed, this once."""
    approved: Any = to_json_value(run_as_operator(Approve(approval_id=approval_id, note=note), why))
    if as_json:
        print_json(approved)
        return
    print_record(approved["approval"], as_json=False)
    if approved["result"]:
        print()
        print_record(approved["result"], as_json=False)


@app.command()
def reject(
    approval_id: str = _Id,
    note: str = typer.Option("", help="Kept with it; left out: the reason."),
    why: str = Why,
    as_json: bool = Json,
) -> None:
    """Reject it; what you have proposed yourself you take back this way."""
    print_record(
        run_as_operator(Reject(approval_id=approval_id, note=note or why), why), as_json=as_json
    )
