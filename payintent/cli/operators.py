"""`payintent operator …`: named tokens for the operator's routes."""

import typer

from payintent.cli.common import Json, Why, perform, show, show_one
from payintent.domain.operator import TOKEN_DAYS, Role
from payintent.operations.operators import (
    ExtendToken,
    IssueToken,
    ListTokens,
    ReplaceToken,
    RevokeToken,
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
    operation = IssueToken(name=name, role=role, days=days)
    show_one(perform(operation, why), as_json=as_json)


@app.command()
def set_role(
    public_id: str = _Id,
    role: Role = typer.Argument(help="What its holder may do."),
    why: str = Why,
    as_json: bool = Json,
) -> None:
    """Give an operator another role."""
    show_one(perform(SetRole(public_id=public_id, role=role), why), as_json=as_json)


@app.command()
def extend(public_id: str = _Id, days: int = _Days, why: str = Why, as_json: bool = Json) -> None:
    """Let a token work for so many days from now."""
    show_one(perform(ExtendToken(public_id=public_id, days=days), why), as_json=as_json)


@app.command()
def replace(why: str = Why, as_json: bool = Json) -> None:
    """Replace the token that you act with by another, which is printed this once."""
    show_one(perform(ReplaceToken(), why), as_json=as_json)


@app.command("list")
def list_(as_json: bool = Json) -> None:
    """List tokens by their public part."""
    show(perform(ListTokens()), _COLUMNS, as_json=as_json)


@app.command()
def revoke(public_id: str = _Id, why: str = Why, as_json: bool = Json) -> None:
    """Revoke a token for good, at once."""
    show_one(perform(RevokeToken(public_id=public_id), why), as_json=as_json)
