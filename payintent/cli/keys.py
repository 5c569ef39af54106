"""`payintent key …`: merchants' API keys."""

import typer

from payintent.cli.common import Json, MerchantId, Why, print_record, print_table, run_as_operator
from payintent.operations.keys import IssueApiKey, ListApiKeys, RevokeApiKey

app = typer.Typer(no_args_is_help=True, help="Merchants' API keys.")


@app.command()
def issue(
    merchant_id: int = MerchantId,
    name: str = typer.Option("", help="What it is for."),
    why: str = Why,
    as_json: bool = Json,
) -> None:
    """Issue another API key; prints it, this once."""
    print_record(
        run_as_operator(IssueApiKey(merchant_id=merchant_id, name=name), why), as_json=as_json
    )


@app.command("list")
def list_(merchant_id: int = MerchantId, as_json: bool = Json) -> None:
    """List a merchant's keys by their public part."""
    columns = ("public_id", "name", "created_at", "revoked_at")
    print_table(run_as_operator(ListApiKeys(merchant_id=merchant_id)), columns, as_json=as_json)


@app.command()
def revoke(
    public_id: str = typer.Argument(help="The public part: the eight characters after sk_live_."),
    why: str = Why,
    as_json: bool = Json,
) -> None:
    """Revoke a key for good; every process knows within a second."""
    print_record(run_as_operator(RevokeApiKey(public_id=public_id), why), as_json=as_json)
