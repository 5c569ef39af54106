"""`payintent merchant …`: who is paid, and how far its activation is."""

from typing import Any

import typer

from payintent.cli.common import (
    Json,
    MerchantId,
    Why,
    fail,
    print_record,
    print_table,
    run_as_operator,
)
from payintent.domain.merchant import Merchant
from payintent.domain.price import TaxCountry, TaxManager
from payintent.operations.activation import (
    ActivateMerchant,
    ApplyActivation,
    RequestActivation,
    ResumeMerchant,
    ShowActivation,
    SuspendMerchant,
    ValidateActivation,
)
from payintent.operations.json_values import to_json_value
from payintent.operations.merchants import (
    OVERLAP_DEFAULT_S,
    CreateMerchant,
    ListMerchants,
    RotateCallbackSecret,
    SetCallbackUrl,
    SetMerchantProfile,
    ShowMerchant,
)

app = typer.Typer(no_args_is_help=True, help="Who is paid, and how far its activation is.")
_AutoRefund = typer.Option(
    None,
    "--auto-refund/--no-auto-refund",
    help="Give back at once money that no payment may own; new merchants have it.",
)

_AllowHttp = typer.Option(
    None,
    "--allow-http/--no-allow-http",
    help="Whether its callback URL may be http; outside the sandbox it must be https without this.",
)


@app.command()
def create(
    name: str = typer.Option(..., help="What buyers read: Pay NAME."),
    callback_url: str | None = typer.Option(None, help="Where webhooks go."),
    methods: str = typer.Option(
        "none", help="`all`: offer whatever the platform's accounts can do; else `none`."
    ),
    auto_refund: bool | None = _AutoRefund,
    allow_http: bool | None = _AllowHttp,
    why: str = Why,
    as_json: bool = Json,
) -> None:
    """Register a merchant; prints its API key and callback secret, this once."""
    if methods not in {"none", "all"}:
        fail("--methods must be none or all")
    chosen: Any = methods
    operation = CreateMerchant(
        name=name,
        callback_url=callback_url,
        methods=chosen,
        auto_refund=auto_refund is not False,
        allow_http=allow_http is True,
    )
    new = run_as_operator(operation, why)
    fields = {
        "id": new.merchant.id,
        "api_key": new.api_key,
        "callback_secret": new.callback_secret,
    }
    print_record(fields, as_json=as_json)


@app.command("list")
def list_(as_json: bool = Json) -> None:
    """List merchants."""
    columns = ("id", "name", "activation", "callback_url", "tax_manager")
    print_table(run_as_operator(ListMerchants()), columns, as_json=as_json)


@app.command("show")
def show_merchant(merchant_id: int = MerchantId, as_json: bool = Json) -> None:
    """Show one merchant."""
    _show(run_as_operator(ShowMerchant(merchant_id=merchant_id)), as_json=as_json)


@app.command()
def profile(
    merchant_id: int = MerchantId,
    name: str | None = typer.Option(None, help="What buyers read."),
    logo_url: str | None = typer.Option(None, help="Shown on the checkout."),
    support_url: str | None = typer.Option(None, help="Where buyers find help."),
    return_url: str | None = typer.Option(None, help="Where buyers go back to."),
    allowed_origin: list[str] = typer.Option(
        [], help="Where selections may return to and widgets may stand; repeat it."
    ),
    default_country: str | None = typer.Option(
        None, help="Where quotes are for, if the buyer names no country; one of the 53."
    ),
    locale: str | None = typer.Option(None, help="The checkout's language, such as ja."),
    tax_manager: TaxManager | None = typer.Option(
        None, help="SERVICE: quotes have tax by the operator's rates; NONE: they have none."
    ),
    tax_country: TaxCountry | None = typer.Option(
        None, help="Whose rate applies: of the buyer's selection, or of the default country."
    ),
    auto_refund: bool | None = _AutoRefund,
    why: str = Why,
    as_json: bool = Json,
) -> None:
    """Describe a merchant; what is not given stays, an empty address clears it."""
    operation = SetMerchantProfile(
        merchant_id=merchant_id,
        name=name,
        logo_url=logo_url,
        support_url=support_url,
        return_url=return_url,
        allowed_origins=[one for one in allowed_origin if one] if allowed_origin else None,
        default_country=default_country,
        locale=locale,
        tax_manager=tax_manager,
        tax_country=tax_country,
        auto_refund=auto_refund,
    )
    _show(run_as_operator(operation, why), as_json=as_json)


@app.command()
def set_callback_url(
    merchant_id: int = MerchantId,
    callback_url: str | None = typer.Argument(None, help="Left out: keep events, send none."),
    allow_http: bool | None = _AllowHttp,
    why: str = Why,
    as_json: bool = Json,
) -> None:
    """Send a merchant's webhooks elsewhere; `webhooks replay-missed` sends what was skipped."""
    operation = SetCallbackUrl(
        merchant_id=merchant_id, callback_url=callback_url, allow_http=allow_http
    )
    _show(run_as_operator(operation, why), as_json=as_json)


@app.command()
def rotate_secret(
    merchant_id: int = MerchantId,
    overlap_s: int = typer.Option(
        OVERLAP_DEFAULT_S, help="For how many seconds the old one signs along."
    ),
    why: str = Why,
    as_json: bool = Json,
) -> None:
    """Make a new callback secret; prints it, this once."""
    operation = RotateCallbackSecret(merchant_id=merchant_id, overlap_s=overlap_s)
    print_record(run_as_operator(operation, why), as_json=as_json)


@app.command()
def activation(merchant_id: int = MerchantId, as_json: bool = Json) -> None:
    """Show how far a merchant's activation is, and what is filed for it."""
    print_record(run_as_operator(ShowActivation(merchant_id=merchant_id)), as_json=as_json)


@app.command()
def request(
    merchant_id: int = MerchantId,
    countries: str = typer.Option(..., help="With commas: TH,JP."),
    currencies: str = typer.Option(..., help="With commas: THB,USDT."),
    contract: str = typer.Option(..., help="Where the contract is filed."),
    kyc: str = typer.Option(..., help="Where the check of the merchant is filed."),
    why: str = Why,
    as_json: bool = Json,
) -> None:
    """Note contract, KYC, and what the merchant asks to be activated for."""
    operation = RequestActivation(
        merchant_id=merchant_id,
        countries=countries.split(","),
        currencies=currencies.split(","),
        contract=contract,
        kyc=kyc,
    )
    print_record(run_as_operator(operation, why), as_json=as_json)


@app.command()
def apply(merchant_id: int = MerchantId, why: str = Why, as_json: bool = Json) -> None:
    """Let a merchant take what it asked for; payments can be made to validate the flow."""
    print_record(run_as_operator(ApplyActivation(merchant_id=merchant_id), why), as_json=as_json)


@app.command()
def validate(merchant_id: int = MerchantId, why: str = Why, as_json: bool = Json) -> None:
    """Note that the flow was validated."""
    print_record(run_as_operator(ValidateActivation(merchant_id=merchant_id), why), as_json=as_json)


@app.command()
def activate(merchant_id: int = MerchantId, why: str = Why, as_json: bool = Json) -> None:
    """Put a validated merchant into service."""
    print_record(run_as_operator(ActivateMerchant(merchant_id=merchant_id), why), as_json=as_json)


@app.command()
def suspend(merchant_id: int = MerchantId, why: str = Why, as_json: bool = Json) -> None:
    """Take a merchant out of service; what runs, ends."""
    print_record(run_as_operator(SuspendMerchant(merchant_id=merchant_id), why), as_json=as_json)


@app.command()
def resume(merchant_id: int = MerchantId, why: str = Why, as_json: bool = Json) -> None:
    """Bring a suspended merchant back to where it was."""
    print_record(run_as_operator(ResumeMerchant(merchant_id=merchant_id), why), as_json=as_json)


def _show(merchant: Merchant, *, as_json: bool) -> None:
    """Print a merchant; for people, where it takes payments as two lines of words."""
    if as_json:
        print_record(merchant, as_json=True)
        return
    fields: dict[str, Any] = to_json_value(merchant)
    market = fields.pop("market")
    print_record(fields | {name: market[name] or "all" for name in market}, as_json=False)
