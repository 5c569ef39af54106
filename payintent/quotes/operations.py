"""Explain to operators which payment methods are offered to buyers, and why."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from payintent.fraud.policy_cache import PolicyCache
from payintent.gateway_accounts.accounts import GatewayAccounts
from payintent.merchants.model import PaymentMethod, Quote, accepts_payments
from payintent.operators.fields import option
from payintent.operators.operation import OperationContext, ReadOperation
from payintent.payments.model import Payment
from payintent.payments.operations import PaymentId
from payintent.payments.store import require_payment
from payintent.quotes.merchant_cache import MerchantCache, MerchantSetup
from payintent.quotes.model import QuoteCountry, explain_method, resolve_quote_country


@dataclass(frozen=True, slots=True, kw_only=True)
class QuoteExplanation:
    """Whether a method is offered in a currency, and the reason if it is not."""

    method_id: int
    label: str
    provider: str
    currency: str  # empty if the method is not offered in any currency
    offered: bool
    total: str | None  # the total that the buyer would pay
    reason: str  # empty if the method is offered


class ExplainQuotes(ReadOperation[list[QuoteExplanation]], frozen=True, kw_only=True):
    """Explain which of a merchant's payment methods are offered for a payment, and why.

    The payment may have any status. The result depends on the current configuration and on which
    gateways are available now.
    """

    action: ClassVar[str] = "quotes.explain"
    columns = ("method_id", "label", "currency", "offered", "total", "reason")
    payment_id: PaymentId
    country: Annotated[str, option("The buyer's country as a two-letter code, such as TH.")]

    async def read(self, context: OperationContext) -> list[QuoteExplanation]:
        payment = (await require_payment(context.database, self.payment_id)).payment
        accounts = GatewayAccounts(context.database, context.encryption, context.gateways)
        setup = await MerchantCache(context.database, accounts).get(payment.merchant_id)
        quote_country = resolve_quote_country(
            payment,
            setup.merchant,
            setup.payable_methods,
            self.country,
            None,
            await PolicyCache(context.database, max_age_s=0).get_restrictions(),
        )
        unavailable_ids = await accounts.get_unavailable_ids()
        return [
            explanation
            for method in setup.methods
            for explanation in _explain(
                payment,
                setup,
                method,
                quote_country,
                is_available=method.account_id not in unavailable_ids,
            )
        ]


def _explain(
    payment: Payment,
    setup: MerchantSetup,
    method: PaymentMethod,
    quote_country: QuoteCountry,
    *,
    is_available: bool,
) -> list[QuoteExplanation]:
    if reason := _describe_unavailability(setup, method, is_available=is_available):
        return [_make_explanation(method, "", reason)]
    quotes = explain_method(payment, setup.merchant, method, quote_country, setup.tax_rates)
    if not quotes:
        currencies = ", ".join(method.currencies)
        reason = f"the method accepts {currencies}, not {payment.currency}"
        return [_make_explanation(method, "", reason)]
    return [
        _make_explanation(method, currency, "", quote.price.total_amount)
        if isinstance(quote, Quote)
        else _make_explanation(method, currency, quote.reason)
        for currency, quote in quotes
    ]


def _describe_unavailability(
    setup: MerchantSetup, method: PaymentMethod, *, is_available: bool
) -> str:
    """Return why a method cannot be used, or "" if it can."""
    if not accepts_payments(setup.merchant.activation):
        return f"the merchant is {setup.merchant.activation}"
    if not method.enabled:
        return "the method is disabled"
    if not method.account_enabled:
        return "the account or provider is disabled, or the chain is not watched"
    if not is_available:
        return "the gateway is unavailable; see `provider health`"
    return ""


def _make_explanation(
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
