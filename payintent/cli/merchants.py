"""`payintent merchant …`: who is paid."""

import asyncio

import typer

from payintent.cli.run import (
    Json,
    MerchantId,
    fail,
    print_json,
    settings,
    show,
    show_one,
    with_service,
)
from payintent.domain.errors import Code, Refused
from payintent.domain.merchant import Merchant
from payintent.lifecycle.provision import OVERLAP_DEFAULT_S, NewMerchant
from payintent.service import Service
from payintent.storage import merchants
from payintent.webhooks.egress import EgressRefused, check_registration

app = typer.Typer(no_args_is_help=True, help=__doc__)
_LISTED_MAX = 1_000


@app.command()
def create(
    name: str = typer.Option(..., help="What buyers read: Pay NAME."),
    callback_url: str | None = typer.Option(None, help="Where webhooks go."),
    methods: str = typer.Option("none", help="`all` provisions every platform account."),
    as_json: bool = Json,
) -> None:
    """Register a merchant; prints its API key and callback secret, this once."""
    if methods not in {"none", "all"}:
        fail("--methods must be none or all")
    if callback_url is not None:
        _check(callback_url)

    async def work(service: Service) -> NewMerchant:
        return await service.provisioner.create_merchant(
            name, callback_url, all_methods=methods == "all"
        )

    new = with_service(work)
    fields = {
        "id": new.merchant.id,
        "api_key": new.api_key,
        "callback_secret": new.callback_secret,
    }
    if as_json:
        print_json(fields)
    else:
        show_one(fields, as_json=False)


@app.command("list")
def list_(as_json: bool = Json) -> None:
    """List merchants."""

    async def work(service: Service) -> list[Merchant]:
        return await merchants.all_of(service.database, _LISTED_MAX)

    show(with_service(work), ("id", "name", "callback_url", "tax_manager"), as_json=as_json)


@app.command("show")
def show_merchant(merchant_id: int = MerchantId, as_json: bool = Json) -> None:
    """Show one merchant."""

    async def work(service: Service) -> Merchant:
        return await _known(service, merchant_id)

    show_one(with_service(work), as_json=as_json)


@app.command()
def set_callback_url(
    merchant_id: int = MerchantId,
    callback_url: str | None = typer.Argument(None, help="Left out: keep events, send none."),
    as_json: bool = Json,
) -> None:
    """Send a merchant's webhooks elsewhere; what was skipped is sent by `webhooks replay`."""
    if callback_url is not None:
        _check(callback_url)

    async def work(service: Service) -> Merchant:
        await _known(service, merchant_id)
        await service.provisioner.set_callback_url(merchant_id, callback_url)
        return await _known(service, merchant_id)

    show_one(with_service(work), as_json=as_json)


@app.command()
def rotate_secret(
    merchant_id: int = MerchantId,
    overlap_s: int = typer.Option(OVERLAP_DEFAULT_S, help="How long the old one signs along."),
    as_json: bool = Json,
) -> None:
    """Make a new callback secret; prints it, this once."""

    async def work(service: Service) -> str:
        return await service.provisioner.rotate_secret(merchant_id, overlap_s)

    show_one({"id": merchant_id, "callback_secret": with_service(work)}, as_json=as_json)


async def _known(service: Service, merchant_id: int) -> Merchant:
    found = await merchants.by_id(service.database, merchant_id)
    if found is None:
        raise Refused(Code.NOT_FOUND, f"no merchant {merchant_id}")
    return found


def _check(callback_url: str) -> None:
    try:
        asyncio.run(check_registration(callback_url, settings().sandbox))
    except EgressRefused as error:
        fail(f"--callback-url is refused: {error.reason}")
