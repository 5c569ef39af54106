"""Why a payment can be paid by a method in a country, or cannot."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from payintent.domain.activation import is_in_service
from payintent.domain.merchant import PaymentMethod
from payintent.domain.payment import Payment
from payintent.domain.quote import Quote
from payintent.domain.quoting import QuoteCountry, resolve_quote_country
from payintent.operations.base import OperationContext, ReadOperation
from payintent.operations.fields import argument, option
from payintent.operations.validation import require_payment
from payintent.payments.gateway_accounts import GatewayAccounts
from payintent.payments.merchant_cache import MerchantCache, MerchantSetup
from payintent.payments.policy_cache import PolicyCache
from payintent.payments.quotes import explain_quotes


@dataclass(frozen=True, slots=True, kw_only=True)
class QuoteExplanation:
    """Whether a method is offered in a currency, and why not."""

    method_id: int
    label: str
    provider: str
    currency: str  # empty: in none
    offered: bool
    total: str | None  # what the buyer would pay
    reason: str  # empty: it is offered


class ExplainQuotes(ReadOperation[list[QuoteExplanation]], frozen=True, kw_only=True):
    """Explain for each method of a payment's merchant whether a buyer is offered it, or why not.

    It answers for a payment in any state, by what is set up and what gateways answer now.
    """

    action: ClassVar[str] = "quotes.explain"
    columns = ("method_id", "label", "currency", "offered", "total", "reason")
    payment_id: Annotated[str, argument("Such as pay_0351NDickobV3yYH8omp8v.")]
    country: Annotated[str, option("Of the buyer: two capital letters.")]

    async def read(self, context: OperationContext) -> list[QuoteExplanation]:
        payment = (await require_payment(context.database, self.payment_id)).payment
        accounts = GatewayAccounts(context.database, context.encryption, context.gateways)
        setup = await MerchantCache(context.database, accounts).get(payment.merchant_id)
        quote_country = resolve_quote_country(
            payment,
            setup.merchant,
            setup.payable,
            self.country,
            None,
            await PolicyCache(context.database, kept_s=0).restrictions(),
        )
        silent = await accounts.unavailable()
        return [
            explanation
            for method in setup.methods
            for explanation in _explain(
                payment, setup, method, quote_country, is_silent=method.account_id in silent
            )
        ]


def _explain(
    payment: Payment,
    setup: MerchantSetup,
    method: PaymentMethod,
    quote_country: QuoteCountry,
    *,
    is_silent: bool,
) -> list[QuoteExplanation]:
    if reason := _disuse(setup, method, is_silent=is_silent):
        return [_explanation(method, "", reason)]
    found = explain_quotes(payment, setup, method, quote_country)
    if not found:
        takes = ", ".join(method.currencies)
        return [_explanation(method, "", f"it takes {takes}, not {payment.currency}")]
    return [
        _explanation(method, currency, "", quote.price.total_amount)
        if isinstance(quote, Quote)
        else _explanation(method, currency, quote.reason)
        for currency, quote in found
    ]


def _disuse(setup: MerchantSetup, method: PaymentMethod, *, is_silent: bool) -> str:
    """Return why a method is not in use for anybody; empty if it is."""
    if not is_in_service(setup.merchant.activation):
        return f"the merchant is {setup.merchant.activation}"
    if not method.enabled:
        return "the method is disabled"
    if not method.account_enabled:
        return "its account or provider is disabled, or its chain is not watched"
    return "its gateway does not answer: `provider health` has the outage" if is_silent else ""


def _explanation(
    method: PaymentMethod, currency: str, reason: str, total: str | None = None
) -> QuoteExplanation:
    return QuoteExplanation(
        method_id=method.id,
        label=method.label,
        provider=method.provider,
        currency=currency,
        offered=not reason,
        total=total,
        reason=reason,
    )
