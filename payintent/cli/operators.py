"""`payintent operator …`: named tokens for the operator's routes."""

import typer

from payintent.cli.common import Json, Why, print_record, print_table, run_as_operator
from payintent.domain.operator import TOKEN_DAYS, Role
from payintent.operations.operators import (
    ExtendToken,
    IssueOperatorToken,
    ListOperatorTokens,
    ReplaceToken,
    RevokeOperatorToken,
    SetRole,
)

app = typer.Typer(no_args_is_help=True, help="Operators: their names, roles and tokens.")


_COLUMNS = ("public_id", "name", "role", "expires_at", "last_used_at", "revoked_at")
_Days = typer.Option(TOKEN_DAYS, help="How long it works, from now on.")
_Id = typer.Argument(help="The public part: the eight characters after op_.")


@app.command()
def issue(
    name: str = typer.Argument(help="The person's name; it can never be used again."),
    role: Role = typer.Option(Role.VIEWER, help="What its holder may do."),
    days: int = _Days,
    why: str = Why,
    as_json: bool = Json,
) -> None:
    """Issue a token to a person; whoever approves is shown it, this once."""
    operation = IssueOperatorToken(name=name, role=role, days=days)
    print_record(run_as_operator(operation, why), as_json=as_json)


@app.command()
def set_role(
    public_id: str = _Id,
    role: Role = typer.Argument(help="What its holder may do."),
    why: str = Why,
    as_json: bool = Json,
) -> None:
    """Give an operator another role."""
    print_record(run_as_operator(SetRole(public_id=public_id, role=role), why), as_json=as_json)


@app.command()
def extend(public_id: str = _Id, days: int = _Days, why: str = Why, as_json: bool = Json) -> None:
    """Let a token work for so many days from now."""
    print_record(run_as_operator(ExtendToken(public_id=public_id, days=days), why), as_json=as_json)


@app.command()
def replace(why: str = Why, as_json: bool = Json) -> None:
    """Replace the token that you act with by another, which is printed this once."""
    print_record(run_as_operator(ReplaceToken(), why), as_json=as_json)


@app.command("list")
def list_(as_json: bool = Json) -> None:
    """List tokens by their public part."""
    print_table(run_as_operator(ListOperatorTokens()), _COLUMNS, as_json=as_json)


@app.command()
def revoke(public_id: str = _Id, why: str = Why, as_json: bool = Json) -> None:
    """Revoke a token for good, at once."""
    print_record(run_as_operator(RevokeOperatorToken(public_id=public_id), why), as_json=as_json)
