"""Commands for what keeps buyers out or narrows what they are offered."""

from dataclasses import asdict

import typer

from payintent.cli.common import (
    Json,
    Limit,
    MerchantId,
    Why,
    print_record,
    print_table,
    run_as_operator,
)
from payintent.cli.methods import rate
from payintent.domain.fraud import FraudRule, FraudRuleKind, RiskLevel
from payintent.domain.rate_limit import RateLimitClass
from payintent.domain.restriction import RestrictionType
from payintent.operations.fraud import (
    AddFraudRule,
    ListFraudDecisions,
    ListFraudRules,
    RemoveFraudRule,
)
from payintent.operations.providers import (
    DisableProvider,
    EnableProvider,
    ListGatewayOutages,
    ListProviders,
    RenameProvider,
)
from payintent.operations.rate_limits import ClearRateLimit, ListRateLimits, SetRateLimit
from payintent.operations.restrictions import AddRestriction, LiftRestriction, ListRestrictions
from payintent.operations.tax_rates import ListTaxRates, RemoveTaxRate, SetTaxRate

restriction = typer.Typer(
    no_args_is_help=True, help="Countries where crypto or on-ramp orders are restricted."
)
fraud = typer.Typer(no_args_is_help=True, help="Rules of fraud screening, and what they denied.")
tax = typer.Typer(no_args_is_help=True, help="Tax rates, where this service manages tax.")
provider = typer.Typer(no_args_is_help=True, help="Providers, on or off for everybody.")
limit = typer.Typer(no_args_is_help=True, help="Merchants' own rate limits.")
_Country = typer.Argument(help="Two capital letters.")
_Type = typer.Argument(metavar="TYPE", help="What is restricted: tokens, or on-ramp orders.")
_Provider = typer.Argument(help="As `provider list` shows it, such as stripe.")
_Limited = typer.Argument(help="`create`: new payments; `read`: all other calls.")
_RULE = ("id", "kind", "merchant_id", "denies", "code", "level", "score")
_DECISION = ("decided_at", "merchant_id", "payment_id", "rule_id", "code", "level", "score")


@restriction.command("add")
def restrict(
    type_: RestrictionType = _Type,
    country: str = _Country,
    why: str = Why,
    as_json: bool = Json,
) -> None:
    """Restrict a country; every process knows within seconds."""
    print_record(run_as_operator(AddRestriction(type=type_, country=country), why), as_json=as_json)


@restriction.command("list")
def list_restrictions(as_json: bool = Json) -> None:
    """List restrictions, lifted ones too."""
    print_table(
        run_as_operator(ListRestrictions()),
        ("type", "country", "active", "changed_at"),
        as_json=as_json,
    )


@restriction.command()
def lift(
    type_: RestrictionType = _Type,
    country: str = _Country,
    why: str = Why,
    as_json: bool = Json,
) -> None:
    """Lift a country's restriction."""
    print_record(
        run_as_operator(LiftRestriction(type=type_, country=country), why), as_json=as_json
    )


@fraud.command("add")
def add_rule(
    kind: FraudRuleKind = typer.Argument(
        help="What is compared; a velocity counts how often a payer or an address comes."
    ),
    value: str | None = typer.Argument(
        None, help="What a list matches: JP, buyer-1, @spam.test, 192.0.2.0/24."
    ),
    count: int | None = typer.Option(None, help="Of a velocity: how many are let through."),
    window_s: int | None = typer.Option(None, help="Of a velocity: within how many seconds."),
    merchant: int | None = typer.Option(None, help="For one merchant; left out: for all."),
    code: str | None = typer.Option(
        None, help="The code that callers get; left out: one that fits the kind."
    ),
    level: RiskLevel = typer.Option(RiskLevel.HIGH, help="The risk level that callers get."),
    score: int = typer.Option(
        100,
        min=0,
        max=100,
        help="The risk score; of several rules that match, the highest one decides.",
    ),
    why: str = Why,
    as_json: bool = Json,
) -> None:
    """Deny what a list matches, or what comes too often."""
    operation = AddFraudRule(
        kind=kind,
        value=value,
        count_max=count,
        window_s=window_s,
        merchant_id=merchant,
        code=code,
        level=level,
        score=score,
    )
    print_record(run_as_operator(operation, why), as_json=as_json)


@fraud.command("list")
def list_rules(as_json: bool = Json) -> None:
    """List the rules in force."""
    rules = run_as_operator(ListFraudRules())
    shown = [asdict(rule) | {"denies": _denied(rule)} for rule in rules]
    print_table(rules if as_json else shown, _RULE, as_json=as_json)


def _denied(rule: FraudRule) -> str:
    return rule.value or f"more than {rule.count_max} in {rule.window_s} s"


@fraud.command("remove")
def remove_rule(
    rule_id: int = typer.Argument(help="The rule's number."), why: str = Why, as_json: bool = Json
) -> None:
    """Put a rule out of force."""
    print_record(run_as_operator(RemoveFraudRule(rule_id=rule_id), why), as_json=as_json)


@fraud.command()
def decisions(
    merchant: int | None = typer.Option(None, help="Of one merchant."),
    limit: int = Limit,
    as_json: bool = Json,
) -> None:
    """List what was denied, newest first."""
    print_table(
        run_as_operator(ListFraudDecisions(merchant_id=merchant, limit=limit)),
        _DECISION,
        as_json=as_json,
    )


@tax.command("set")
def set_tax(
    country: str = _Country,
    rate_: str = typer.Argument(metavar="RATE", help="0.07 is 7 %."),
    why: str = Why,
    as_json: bool = Json,
) -> None:
    """Set a country's tax rate; quotes that were selected keep theirs."""
    operation = SetTaxRate(country=country, rate=rate("RATE", rate_))
    print_record(run_as_operator(operation, why), as_json=as_json)


@tax.command("list")
def list_taxes(as_json: bool = Json) -> None:
    """List tax rates."""
    print_table(run_as_operator(ListTaxRates()), ("country", "rate"), as_json=as_json)


@tax.command("remove")
def remove_tax(country: str = _Country, why: str = Why, as_json: bool = Json) -> None:
    """Forget a country's tax rate, which is zero then."""
    print_record(run_as_operator(RemoveTaxRate(country=country), why), as_json=as_json)


@provider.command()
def health(as_json: bool = Json) -> None:
    """List accounts whose gateway does not answer, and until when nobody tries."""
    columns = ("account_id", "provider", "name", "channel", "since", "until", "trips")
    print_table(run_as_operator(ListGatewayOutages()), columns, as_json=as_json)


@provider.command("list")
def list_providers(as_json: bool = Json) -> None:
    """List providers, and whether they are on."""
    print_table(
        run_as_operator(ListProviders()),
        ("name", "wire_name", "enabled", "changed_at"),
        as_json=as_json,
    )


@provider.command()
def enable(name: str = _Provider, why: str = Why, as_json: bool = Json) -> None:
    """Turn a provider on."""
    print_record(run_as_operator(EnableProvider(provider=name), why), as_json=as_json)


@provider.command()
def disable(name: str = _Provider, why: str = Why, as_json: bool = Json) -> None:
    """Turn a provider off: no method of it is offered, what runs there ends."""
    print_record(run_as_operator(DisableProvider(provider=name), why), as_json=as_json)


@provider.command()
def rename(
    name: str = _Provider,
    wire_name: str = typer.Argument(help="What merchants and buyers are shown from now on."),
    why: str = Why,
    as_json: bool = Json,
) -> None:
    """Give a provider another name outside; selections that were made keep the old one."""
    print_record(
        run_as_operator(RenameProvider(provider=name, wire_name=wire_name), why), as_json=as_json
    )


@limit.command("set")
def set_limit(
    merchant_id: int = MerchantId,
    kind: RateLimitClass = _Limited,
    per_s: int = typer.Option(..., help="Requests a second."),
    burst: int | None = typer.Option(None, help="At once after a pause; left out: twice that."),
    why: str = Why,
    as_json: bool = Json,
) -> None:
    """Limit a merchant; every process knows within a second."""
    operation = SetRateLimit(merchant_id=merchant_id, kind=kind, per_s=per_s, burst=burst)
    print_record(run_as_operator(operation, why), as_json=as_json)


@limit.command("list")
def list_limits(
    merchant: int | None = typer.Option(None, help="Of one merchant."), as_json: bool = Json
) -> None:
    """List the limits that were set; everybody else has the installation's."""
    columns = ("merchant_id", "kind", "per_s", "burst")
    print_table(run_as_operator(ListRateLimits(merchant_id=merchant)), columns, as_json=as_json)


@limit.command()
def clear(
    merchant_id: int = MerchantId,
    kind: RateLimitClass = _Limited,
    why: str = Why,
    as_json: bool = Json,
) -> None:
    """Go back to the installation's own limit."""
    run_as_operator(ClearRateLimit(merchant_id=merchant_id, kind=kind), why)
    print_record({"merchant_id": merchant_id, "kind": kind, "cleared": True}, as_json=as_json)
