"""The payment methods that are offered in each country."""

from decimal import Decimal
from typing import Any

import pytest

from payintent.core.countries import require_supported_country
from payintent.core.errors import ErrorCode, RefusedError
from payintent.merchants.model import Market, TaxCountry, TaxManager
from payintent.merchants.payable import Restrictions
from payintent.quotes.model import make_quotes, resolve_quote_country
from payintent.quotes.offers import QuoteCountry, choose_tax_country, get_tax_rate
from tests.support.sample_values import a_merchant, a_method, a_payment, payable

ZERO = Decimal(0)


def _list_offers(
    payment: Any, methods: list[Any], country: str, currency: str | None = None
) -> Any:
    offers = make_quotes(
        payment, a_merchant(), methods, QuoteCountry(country, "query"), currency, {}
    )
    return [(offer.payment_method_id, offer.price.currency) for offer in offers]


def _dollars(**changes: Any) -> Any:
    return a_payment(currency="USD", amount=Decimal("49.90"), amount_text="49.90", **changes)


TOKENS = a_method(id=2, kind="onchain", currencies=("USDT", "NATIVED"), fee_rate=ZERO)


def test_a_total_below_the_contracts_minimum_is_not_offered() -> None:
    tether = {"currencies": ("USDT",), "chain": "ethereum", "token": "USDT", "token_decimals": 6}
    enough, short = 49_900_000, 49_900_001
    for minimum, offered in ((1, True), (enough, True), (short, False)):
        method = a_method(kind="onchain", fee_rate=ZERO, token_minimum=minimum, **tether)
        assert bool(_list_offers(_dollars(), [method], "US")) is offered, minimum


def _resolve_country(
    payment: Any,
    requested: str | None = None,
    viewer: str | None = None,
    methods: Any = None,
    crypto: frozenset[str] = frozenset(),
    **merchant: Any,
) -> tuple[str, str]:
    usable = [a_method()] if methods is None else methods
    restrictions = Restrictions(crypto=crypto)
    owner = a_merchant(**merchant)
    place = resolve_quote_country(
        payment, owner, payable(usable, owner), requested, viewer, restrictions
    )
    assert place.crypto is restrictions.allows_crypto(place.country, viewer)
    return place.country, place.source


def _yen() -> Any:
    return a_payment(currency="JPY", amount=Decimal(100))


def test_only_an_explicitly_selected_country_overrides_the_merchants_tax_country() -> None:
    merchant = a_merchant(default_country="US", tax_country=TaxCountry.SELECTION)
    taxed = {
        source: choose_tax_country(merchant, QuoteCountry("FR", source))
        for source in ("query", "geo", "default", "first")
    }
    assert taxed == {"query": "FR", "geo": "US", "default": "US", "first": "US"}


def test_the_requested_country_takes_precedence() -> None:
    assert _resolve_country(_dollars(), "JP", "FR", default_country="US") == ("JP", "query")
    assert _resolve_country(_dollars(), "JP", methods=[]) == ("JP", "query")


def test_the_viewers_country_is_used_if_it_is_supported() -> None:
    assert _resolve_country(_dollars(), viewer="FR") == ("FR", "geo")
    assert _resolve_country(_dollars(), viewer="ZZ") == ("US", "default")
    assert _resolve_country(_dollars()) == ("US", "default")


def test_the_viewers_country_is_used_only_if_the_payment_is_payable_there() -> None:
    thai = {"default_country": "TH"}
    assert _resolve_country(a_payment(), viewer="US", **thai) == ("TH", "default")
    assert _resolve_country(a_payment(), viewer="US") == ("TH", "first")
    # in Thailand, this method does not accept tokens
    assert _resolve_country(_dollars(), viewer="TH") == ("US", "default")
    assert _resolve_country(_dollars(), viewer="TH", methods=[TOKENS]) == ("TH", "geo")
    plain = _dollars(include_pegged_assets=False)
    assert _resolve_country(plain, viewer="TH", methods=[a_method(), TOKENS]) == ("US", "default")
    in_france = a_method(countries=("FR",))
    assert _resolve_country(_dollars(), viewer="DE", methods=[in_france]) == ("FR", "first")
    assert _resolve_country(_dollars(), viewer="FR", methods=[in_france]) == ("FR", "geo")
    market = Market(("SG",), None)
    assert _resolve_country(_dollars(), viewer="DE", market=market) == ("SG", "first")


def test_the_merchants_country_is_used_if_the_currency_is_payable_there() -> None:
    assert _resolve_country(_yen(), default_country="JP") == ("JP", "default")
    assert _resolve_country(_yen(), default_country="US") == ("JP", "first")
    assert _resolve_country(_dollars(), methods=[TOKENS], default_country="TH") == ("TH", "default")
    assert _resolve_country(_dollars(), default_country="TH") == ("US", "first")


def test_an_unusable_method_does_not_make_a_country_payable() -> None:
    japanese = a_method(countries=("JP",))
    for broken in (
        a_method(enabled=False),
        a_method(account_enabled=False),
        a_method(decimals={"USD": 2}),
        a_method(currencies=("JPY",), token="USDT"),
    ):
        assert _resolve_country(_yen(), viewer="JP", methods=[broken, TOKENS]) == ("JP", "first"), (
            broken
        )
        assert _list_offers(_yen(), [broken], "JP") == []
    assert _resolve_country(_yen(), viewer="JP", methods=[japanese]) == ("JP", "geo")


def test_tokens_are_not_quoted_for_a_restricted_country_or_viewer() -> None:
    token = a_payment(currency="USDT", amount=Decimal("1.5"))
    german = frozenset({"DE"})
    assert _resolve_country(token, viewer="DE", methods=[TOKENS]) == ("DE", "geo")
    assert _resolve_country(token, viewer="FR", methods=[TOKENS], crypto=german) == ("FR", "geo")
    options = {"methods": [TOKENS], "crypto": german, "default_country": "DE"}
    assert _resolve_country(token, viewer="ZZ", **options) == ("GL", "first")
    # the payment is not payable anywhere
    assert _resolve_country(token, viewer="DE", **options) == ("DE", "default")


@pytest.mark.parametrize(
    ("code", "refusal"),
    [
        *(
            ("", ErrorCode.BAD_REQUEST),
            ("U", ErrorCode.BAD_REQUEST),
            ("USA", ErrorCode.BAD_REQUEST),
        ),
        *(("us", ErrorCode.UNSUPPORTED_COUNTRY), ("ZZ", ErrorCode.UNSUPPORTED_COUNTRY)),
        *(("KR", ErrorCode.UNSUPPORTED_COUNTRY), ("CN", ErrorCode.UNSUPPORTED_COUNTRY)),
    ],
)
def test_an_unsupported_country_is_rejected(code: str, refusal: ErrorCode) -> None:
    with pytest.raises(RefusedError) as refused:
        require_supported_country(code)
    assert refused.value.code is refusal


def test_tokens_can_settle_usd_payments_unless_the_merchant_excludes_them() -> None:
    methods = [a_method(), TOKENS]
    assert _list_offers(_dollars(), methods, "US") == [(1, "USD"), (2, "USDT"), (2, "NATIVED")]
    assert _list_offers(_dollars(include_pegged_assets=False), methods, "US") == [(1, "USD")]


def test_tokens_cannot_settle_thb_payments_but_can_settle_token_payments() -> None:
    methods = [a_method(), TOKENS]
    assert _list_offers(a_payment(), methods, "TH") == [(1, "THB")]
    token = a_payment(currency="USDT", amount=Decimal("1.5"), include_pegged_assets=False)
    assert _list_offers(token, methods, "TH") == [(2, "USDT")]


def test_only_currencies_and_methods_payable_in_the_country_are_quoted() -> None:
    methods = [a_method(), TOKENS]
    assert _list_offers(a_payment(), methods, "US") == []
    assert _list_offers(_dollars(), methods, "GL") == [(2, "USDT"), (2, "NATIVED")]
    assert _list_offers(_dollars(), [a_method(countries=("FR",))], "US") == []


def test_disabled_methods_and_accounts_are_not_quoted() -> None:
    assert _list_offers(_dollars(), [a_method(enabled=False)], "US") == []
    assert _list_offers(_dollars(), [a_method(account_enabled=False)], "US") == []


def test_a_currency_filters_quotes_and_an_unsupported_currency_is_rejected() -> None:
    methods = [a_method(), TOKENS]
    assert _list_offers(_dollars(), methods, "US", "USDT") == [(2, "USDT")]
    assert _list_offers(_dollars(), [a_method()], "US", "USDT") == []
    for currency, country, code in (
        ("THB", "US", ErrorCode.UNSUPPORTED_CURRENCY),
        ("USD", "TH", ErrorCode.UNSUPPORTED_CURRENCY),
        ("EUR", "US", ErrorCode.INVALID_CURRENCY),
        ("usd", "US", ErrorCode.INVALID_CURRENCY),
    ):
        with pytest.raises(RefusedError) as refused:
            _list_offers(_dollars(), methods, country, currency)
        assert refused.value.code is code


def test_an_offer_has_the_total_in_minor_units() -> None:
    place = QuoteCountry("TH", "query")
    [offer] = make_quotes(
        a_payment(tax_manager=TaxManager.SERVICE),
        a_merchant(default_country="TH"),
        [a_method()],
        place,
        None,
        {"TH": Decimal("0.07")},
    )
    assert offer.price.total_amount == "1701.30"
    assert offer.total_minor == 170_130


def test_the_countrys_tax_rate_applies_only_if_the_service_manages_tax() -> None:
    rates = {"TH": Decimal("0.07")}
    payment = a_payment(tax_manager=TaxManager.SERVICE)
    assert get_tax_rate(payment, "TH", rates) == Decimal("0.07")
    assert get_tax_rate(payment, "US", rates) == 0
    assert get_tax_rate(a_payment(), "TH", rates) == 0
