"""`payintent operator …`: named tokens for the operator's routes."""

import typer

from payintent.cli.run import Json, show, show_one, with_service
from payintent.service import Service
from payintent.storage import operators
from payintent.storage.operators import Token

app = typer.Typer(no_args_is_help=True, help=__doc__)
_LISTED_MAX = 1_000


@app.command()
def issue(name: str, as_json: bool = Json) -> None:
    """Issue a token to a person; prints it, this once."""

    async def work(service: Service) -> str:
        return await service.provisioner.issue_token(name)

    show_one({"name": name, "token": with_service(work)}, as_json=as_json)


@app.command("list")
def list_(as_json: bool = Json) -> None:
    """List tokens by their public part."""

    async def work(service: Service) -> list[Token]:
        return await operators.listed(service.database, _LISTED_MAX)

    columns = ("public_id", "name", "created_at", "revoked_at")
    show(with_service(work), columns, as_json=as_json)


@app.command()
def revoke(public_id: str, as_json: bool = Json) -> None:
    """Revoke a token for good, at once."""

    async def work(service: Service) -> Token:
        return await service.provisioner.revoke_token(public_id)

    show_one(with_service(work), as_json=as_json)
