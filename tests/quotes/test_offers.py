"""Each rule that excludes a method reports itself, in the order of the rules."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pytest

from payintent.core.countries import COUNTRIES
from payintent.gateways.amount_limits import fiat_limits
from payintent.merchants.model import (
    ActivationStatus,
    FeeMode,
    Market,
    Quote,
    UnavailablePart,
    accepts_payments,
)
from payintent.merchants.payable import find_usable_market, make_unavailable
from payintent.quotes.offers import (
    MethodOffer,
    QuoteCountry,
    QuoteRefusal,
    RefusalKind,
    judge_methods,
    make_terms,
)
from tests.support.sample_values import a_merchant, a_method, a_payment

TETHER = {"currencies": ("USDT",), "chain": "ethereum", "token": "USDT", "token_decimals": 6}


@dataclass(frozen=True)
class Example:
    """The differences from a method offered for 49.90 USD in the US, and the explanation."""

    reason: str
    method: Mapping[str, Any] = field(default_factory=dict[str, Any])
    merchant: Mapping[str, Any] = field(default_factory=dict[str, Any])
    payment: Mapping[str, Any] = field(default_factory=dict[str, Any])
    crypto: bool = True

    def judge(self, country: str = "US") -> list[MethodOffer]:
        payment = {"currency": "USD", "amount": Decimal("49.90"), **self.payment}
        terms = make_terms(a_payment(**payment), a_merchant(**self.merchant), {})
        place = QuoteCountry(country, "query", crypto=self.crypto)
        return list(judge_methods(terms, [a_method(**self.method)], place))


def unavailable(part: UnavailablePart) -> dict[str, Any]:
    return {"account_enabled": False, "unavailable_part": part}


REFUSED: Mapping[RefusalKind, Example] = {
    RefusalKind.MERCHANT_STATUS: Example(
        "the merchant is SUSPENDED", merchant={"activation": ActivationStatus.SUSPENDED}
    ),
    RefusalKind.METHOD_DISABLED: Example("the method is disabled", {"enabled": False}),
    RefusalKind.ACCOUNT_DISABLED: Example(
        "the account is disabled", unavailable(UnavailablePart.ACCOUNT)
    ),
    RefusalKind.PROVIDER_DISABLED: Example(
        "the provider is disabled", unavailable(UnavailablePart.PROVIDER)
    ),
    RefusalKind.CHAIN_UNWATCHED: Example(
        "the chain is not watched; see `chain list`", unavailable(UnavailablePart.CHAIN)
    ),
    RefusalKind.ADAPTER_MISSING: Example(
        "the gateway's adapter is not installed", unavailable(UnavailablePart.ADAPTER)
    ),
    RefusalKind.GATEWAY_OUTAGE: Example(
        "the gateway is unavailable; see `provider health`", unavailable(UnavailablePart.OUTAGE)
    ),
    RefusalKind.PEGGED_EXCLUDED: Example(
        "the payment excludes USDT (`include_pegged_assets` is false)",
        TETHER,
        payment={"include_pegged_assets": False},
    ),
    RefusalKind.OTHER_CURRENCY: Example(
        "the method does not accept USD; it accepts JPY, THB", {"currencies": ("JPY", "THB")}
    ),
    RefusalKind.GATEWAY_CURRENCY: Example(
        "the gateway does not support USD", {"decimals": {"THB": 2}}
    ),
    RefusalKind.TOKEN_UNAVAILABLE: Example(
        "USDT is not available on ethereum", TETHER | {"token_decimals": None}
    ),
    RefusalKind.PRECISION: Example(
        "this method supports at most 6 decimals in USDT",
        TETHER,
        payment={"currency": "USDT", "amount": Decimal("0.0000001")},
    ),
    RefusalKind.COUNTRY_CURRENCY: Example(
        "JPY is not used in US", payment={"currency": "JPY", "amount": Decimal(100)}
    ),
    RefusalKind.CRYPTO_RESTRICTED: Example("crypto is restricted in US", TETHER, crypto=False),
    RefusalKind.MERCHANT_MARKET: Example(
        "the merchant is not activated for USD in US", merchant={"market": Market(("TH",), None)}
    ),
    RefusalKind.METHOD_COUNTRY: Example(
        "the method or its gateway is not available in US", {"countries": ("FR",)}
    ),
    RefusalKind.ACCOUNT_COUNTRY: Example(
        "the account is not available in US", {"account_countries": ("FR",)}
    ),
    RefusalKind.INEXACT_TOTAL: Example(
        "the gateway cannot collect 51.35 USD exactly",
        {"decimals": {"USD": 0}, "fee_mode": FeeMode.EXCLUSIVE},
    ),
    RefusalKind.TOKEN_MINIMUM: Example(
        "49.9 USDT is below the contract's minimum",
        TETHER | {"token_minimum": 60_000_000},
    ),
    RefusalKind.AMOUNT_LIMIT: Example(
        "49.90 USD is less than the minimum of 60.00 USD",
        {"amount_limits": fiat_limits(USD=("60.00", "70.00"))},
    ),
}


def test_every_rule_has_an_example() -> None:
    assert list(REFUSED) == list(RefusalKind)


@pytest.mark.parametrize("kind", RefusalKind)
def test_an_excluded_method_reports_the_rule_that_excludes_it(kind: RefusalKind) -> None:
    example = REFUSED[kind]
    [offer] = example.judge()
    assert offer.result == QuoteRefusal(kind, example.reason)


@pytest.mark.parametrize("method", [{}, TETHER])
def test_a_method_that_no_rule_excludes_is_quoted(method: dict[str, Any]) -> None:
    [offer] = Example("", method).judge()
    assert isinstance(offer.result, Quote)


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        (RefusalKind.MERCHANT_STATUS, RefusalKind.METHOD_DISABLED),
        (RefusalKind.METHOD_DISABLED, RefusalKind.GATEWAY_OUTAGE),
        (RefusalKind.GATEWAY_OUTAGE, RefusalKind.OTHER_CURRENCY),
        (RefusalKind.GATEWAY_CURRENCY, RefusalKind.MERCHANT_MARKET),
        (RefusalKind.MERCHANT_MARKET, RefusalKind.METHOD_COUNTRY),
        (RefusalKind.METHOD_COUNTRY, RefusalKind.ACCOUNT_COUNTRY),
        (RefusalKind.ACCOUNT_COUNTRY, RefusalKind.AMOUNT_LIMIT),
    ],
)
def test_the_first_of_two_reasons_is_reported(earlier: RefusalKind, later: RefusalKind) -> None:
    first, second = REFUSED[earlier], REFUSED[later]
    both = Example(
        "",
        {**second.method, **first.method},
        {**second.merchant, **first.merchant},
        {**second.payment, **first.payment},
    )
    [offer] = both.judge()
    assert isinstance(offer.result, QuoteRefusal)
    assert offer.result.kind is earlier


def test_an_unavailable_method_keeps_its_reason() -> None:
    disabled = a_method(**unavailable(UnavailablePart.ACCOUNT))
    assert make_unavailable(disabled, UnavailablePart.OUTAGE) is disabled
    stopped = make_unavailable(a_method(), UnavailablePart.OUTAGE)
    assert (stopped.account_enabled, stopped.unavailable_part) == (False, UnavailablePart.OUTAGE)


@pytest.mark.parametrize("kind", RefusalKind)
def test_quotes_are_within_the_market_of_the_catalog(kind: RefusalKind) -> None:
    example = REFUSED[kind]
    market = find_usable_market(a_method(**example.method))
    for country in COUNTRIES:
        for offer in example.judge(country):
            is_usable = market is not None and market.includes(offer.currency or "", country)
            if isinstance(offer.result, Quote):
                assert is_usable, country
            elif offer.result.kind in {RefusalKind.METHOD_COUNTRY, RefusalKind.ACCOUNT_COUNTRY}:
                assert not is_usable, country


@pytest.mark.parametrize("activation", ActivationStatus)
def test_only_merchants_that_accept_payments_are_quoted(activation: ActivationStatus) -> None:
    [offer] = Example("", merchant={"activation": activation}).judge()
    assert isinstance(offer.result, Quote) is accepts_payments(activation)
