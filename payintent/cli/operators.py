"""`payintent operator …`: named tokens for the operator's routes."""

import typer

from payintent.cli.run import Json, Why, perform, show, show_one
from payintent.operation.keys import IssueToken, ListTokens, RevokeToken

app = typer.Typer(no_args_is_help=True, help="Named tokens for the operator's routes.")


@app.command()
def issue(name: str, why: str = Why, as_json: bool = Json) -> None:
    """Issue a token to a person; prints it, this once."""
    show_one(perform(IssueToken(name=name), why), as_json=as_json)


@app.command("list")
def list_(as_json: bool = Json) -> None:
    """List tokens by their public part."""
    columns = ("public_id", "name", "created_at", "revoked_at")
    show(perform(ListTokens()), columns, as_json=as_json)


@app.command()
def revoke(public_id: str, why: str = Why, as_json: bool = Json) -> None:
    """Revoke a token for good, at once."""
    show_one(perform(RevokeToken(public_id=public_id), why), as_json=as_json)
