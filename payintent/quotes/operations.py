"""Explain to operators which payment methods are offered to buyers, and why."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar

from payintent.core.countries import COUNTRIES, require_supported_country
from payintent.fraud.policy_cache import PolicyCache
from payintent.gateway_accounts.accounts import GatewayAccounts
from payintent.merchants.model import PaymentMethod, Quote
from payintent.merchants.payable import Restrictions
from payintent.operators.fields import option
from payintent.operators.operation import OperationContext, ReadOperation
from payintent.payments.operations import PaymentId
from payintent.payments.store import require_payment
from payintent.quotes.merchant_cache import MerchantCache
from payintent.quotes.offers import (
    MethodOffer,
    QuoteCountry,
    QuoteRefusal,
    QuoteTerms,
    RefusalKind,
    find_currency_refusal,
    find_method_refusal,
    judge_methods,
    make_terms,
    quote_in_country,
)

_KIND_ORDER = tuple(RefusalKind)
_COUNTRIES_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class QuoteExplanation:
    """Whether a method is offered in a currency, and the reason if it is not."""

    method_id: int
    label: str
    provider: str
    currency: str  # empty if the method is not offered in any currency
    country: str | None  # the country considered; None: every country
    offered: bool
    countries: tuple[str, ...]  # considered countries in which the method is offered
    total: str | None  # the total that the buyer would pay; None if it depends on the country
    code: str  # the rule that refuses the method; empty if the method is offered
    reason: str  # a description of the reason


class ExplainQuotes(ReadOperation[list[QuoteExplanation]], frozen=True, kw_only=True):
    """Explain which of a merchant's payment methods are offered for a payment, and why.

    The payment may have any status. The result depends on the current configuration and on which
    gateways are available now. Without a country, methods are explained for the country of the
    buyer's last selection, or for every country if the buyer has not selected a method.
    """

    action: ClassVar[str] = "quotes.explain"
    columns = ("method_id", "label", "currency", "offered", "countries", "total", "reason")
    payment_id: PaymentId
    country: Annotated[
        str | None,
        option("The buyer's country as a two-letter code, such as TH (default: as selected)."),
    ] = None

    async def read(self, context: OperationContext) -> list[QuoteExplanation]:
        snapshot = await require_payment(context.database, self.payment_id)
        country = self.country
        if country is not None:
            require_supported_country(country)
        elif snapshot.session is not None:
            country = snapshot.session.quote.country
        accounts = GatewayAccounts(context.database, context.encryption, context.gateways)
        setup = await MerchantCache(context.database, accounts).get(snapshot.payment.merchant_id)
        methods = setup.get_methods_during_outage(await accounts.get_unavailable_ids())
        restrictions = await PolicyCache(context.database, max_age_s=0).get_restrictions()
        terms = make_terms(snapshot.payment, setup.merchant, setup.tax_rates)
        if country is None:
            explanations = (_explain_everywhere(terms, method, restrictions) for method in methods)
            return [explanation for rows in explanations for explanation in rows]
        offers = judge_methods(terms, methods, _make_country(country, restrictions))
        return [_explain_offer(offer, country) for offer in offers]


def _make_country(country: str, restrictions: Restrictions) -> QuoteCountry:
    return QuoteCountry(country, "query", crypto=restrictions.allows_crypto(country, None))


def _explain_offer(offer: MethodOffer, country: str | None) -> QuoteExplanation:
    if isinstance(offer.result, QuoteRefusal):
        return _explain_refusal(offer.method, offer.currency, offer.result, country)
    quote = offer.result
    countries, total = (quote.country,), quote.price.total_amount
    return _explain_quote(offer.method, quote.price.currency, countries, total, country)


def _explain_everywhere(
    terms: QuoteTerms, method: PaymentMethod, restrictions: Restrictions
) -> Iterator[QuoteExplanation]:
    """Explain a method for buyers in every country.

    If it is not offered in any country, the reason is taken from the country in which it comes
    closest to being offered.
    """
    refusal = find_method_refusal(terms, method)
    if refusal is not None:
        yield _explain_refusal(method, None, refusal, None)
        return
    for code in terms.currencies:
        if code not in method.currencies:
            continue
        refusal = find_currency_refusal(terms, method, code)
        if refusal is not None:
            yield _explain_refusal(method, code, refusal, None)
            continue
        results = [
            quote_in_country(terms, method, code, _make_country(country, restrictions))
            for country in COUNTRIES
        ]
        quotes = [result for result in results if isinstance(result, Quote)]
        if quotes:
            totals = {quote.price.total_amount for quote in quotes}
            total = totals.pop() if len(totals) == 1 else None
            countries = tuple(quote.country for quote in quotes)
            yield _explain_quote(method, code, countries, total, None)
        else:
            refusals = [result for result in results if isinstance(result, QuoteRefusal)]
            closest = max(refusals, key=lambda refusal: _KIND_ORDER.index(refusal.kind))
            reason = f"not offered in any country; for example, {closest.reason}"
            yield _explain_refusal(method, code, QuoteRefusal(closest.kind, reason), None)


def _explain_quote(
    method: PaymentMethod,
    currency: str,
    countries: tuple[str, ...],
    total: str | None,
    country: str | None,
) -> QuoteExplanation:
    return QuoteExplanation(
        method_id=method.id,
        label=method.label,
        provider=method.provider,
        currency=currency,
        country=country,
        offered=True,
        countries=countries,
        total=total,
        code="",
        reason="",
    )


def _explain_refusal(
    method: PaymentMethod, currency: str | None, refusal: QuoteRefusal, country: str | None
) -> QuoteExplanation:
    return QuoteExplanation(
        method_id=method.id,
        label=method.label,
        provider=method.provider,
        currency=currency or "",
        country=country,
        offered=False,
        countries=(),
        total=None,
        code=refusal.kind,
        reason=refusal.reason,
    )


def describe_countries(explanation: QuoteExplanation) -> str:
    """Return the countries of an offer in words, such as `US, GB and 12 more`."""
    countries = explanation.countries
    if len(countries) == len(COUNTRIES):
        return "all countries"
    shown = ", ".join(countries[:_COUNTRIES_SHOWN])
    more = len(countries) - _COUNTRIES_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown
