"""`payintent key …`: merchants' API keys."""

import typer

from payintent.cli.run import Json, MerchantId, show, show_one, with_service
from payintent.service import Service
from payintent.storage import merchants
from payintent.storage.merchants import ApiKey

app = typer.Typer(no_args_is_help=True, help=__doc__)
_LISTED_MAX = 1_000


@app.command()
def issue(
    merchant_id: int = MerchantId,
    name: str = typer.Option("", help="What it is for."),
    as_json: bool = Json,
) -> None:
    """Issue another API key; prints it, this once."""

    async def work(service: Service) -> str:
        return await service.provisioner.issue_key(merchant_id, name)

    show_one({"merchant_id": merchant_id, "api_key": with_service(work)}, as_json=as_json)


@app.command("list")
def list_(merchant_id: int = MerchantId, as_json: bool = Json) -> None:
    """List a merchant's keys by their public part."""

    async def work(service: Service) -> list[ApiKey]:
        return await merchants.keys_of(service.database, merchant_id, _LISTED_MAX)

    columns = ("public_id", "name", "created_at", "revoked_at")
    show(with_service(work), columns, as_json=as_json)


@app.command()
def revoke(public_id: str, as_json: bool = Json) -> None:
    """Revoke a key for good; every process knows within a second."""

    async def work(service: Service) -> ApiKey:
        return await service.provisioner.revoke_key(public_id)

    show_one(with_service(work), as_json=as_json)
