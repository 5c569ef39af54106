"""A quote is omitted if its total is outside the limits, and operators see the reason."""

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from payintent.core import ids
from payintent.core.errors import ErrorCode, RefusedError
from payintent.gateway_accounts.health import FAILURES_MAX, GatewayChannel
from payintent.gateways.amount_limits import fiat_limits
from payintent.gateways.port import OutcomeUnknown
from payintent.gateways.stripe.adapter import StripeGateway
from payintent.gateways.stripe.api import DECIMALS
from payintent.merchants import methods_store as method_store
from payintent.merchants.methods_operations import (
    ChangePaymentMethod,
    DisablePaymentMethod,
    ListPaymentMethods,
)
from payintent.merchants.methods_store import NewPaymentMethod
from payintent.merchants.model import FeeMode
from payintent.payments.model import Payment
from payintent.quotes.list_quotes import QuoteQuery, list_quotes
from payintent.quotes.operations import ExplainQuotes, QuoteExplanation
from tests.support.fakes import FakeGateway
from tests.support.world import World

COUNTRIES = {"USD": "US", "THB": "TH", "JPY": "JP", "TWD": "TW", "IDR": "ID", "PHP": "PH"}


class LimitedGateway(FakeGateway):
    """A gateway with Stripe's published limits."""

    capabilities = replace(FakeGateway.capabilities, limits=StripeGateway.capabilities.limits)


@pytest.fixture
def gateway() -> FakeGateway:
    return LimitedGateway()


async def explain(
    world: World, payment: Payment, country: str | None = None
) -> list[QuoteExplanation]:
    name = ids.format_id(ids.PAYMENT, payment.id)
    return await world.perform(ExplainQuotes(payment_id=name, country=country))


async def offers(world: World, payment: Payment, country: str | None) -> list[tuple[int, str]]:
    """List the methods and currencies that are offered to a buyer in a country."""
    service = world.service
    query = QuoteQuery(restrictions=await service.policies.get_restrictions(), country=country)
    snapshot = await service.payment_lookup.find_checkout_payment(payment.checkout_id)
    quote_list = await list_quotes(
        service.database, service.merchants, service.accounts, snapshot, query
    )
    return [(quote.payment_method_id, quote.price.currency) for quote in quote_list.quotes]


def limit_cases() -> list[tuple[str, str, bool]]:
    """List amounts on both sides of Stripe's published limits."""
    smallest = {currency: Decimal(1).scaleb(-places) for currency, places in DECIMALS.items()}
    cases: list[tuple[str, str, bool]] = []
    for currency, limits in StripeGateway.capabilities.limits.items():
        assert limits.minimum is not None
        assert limits.maximum is not None
        unit = smallest[currency]
        cases += [
            (currency, str(limits.minimum - unit), False),
            (currency, str(limits.minimum), True),
        ]
        if limits.maximum + unit <= 10**9:  # the largest allowed payment
            cases += [
                (currency, str(limits.maximum), True),
                (currency, str(limits.maximum + unit), False),
            ]
    return cases


@pytest.mark.parametrize(("currency", "amount", "offered"), limit_cases())
async def test_a_quote_outside_the_gateways_published_limits_is_omitted(
    world: World, currency: str, amount: str, offered: bool
) -> None:
    payment = await world.create(currency=currency, amount=amount)
    country = COUNTRIES[currency]
    expected = [(world.card, currency), (world.transfer, currency)] if offered else []
    assert await offers(world, payment, country) == expected
    assert [row.offered for row in await explain(world, payment, country)] == [offered] * 2
    if not offered:
        with pytest.raises(RefusedError, match=r"(less|more) than the m") as refused:
            await world.select(payment, country=country)
        assert refused.value.code is ErrorCode.INVALID_AMOUNT
        assert world.gateway.created == []


def test_stripes_limits_match_the_published_limits() -> None:
    limits = StripeGateway.capabilities.limits
    assert set(limits) == set(DECIMALS)
    for currency, minimum in (("USD", "0.50"), ("THB", "10.00"), ("JPY", "50")):
        assert limits[currency].minimum == Decimal(minimum)
    for currency, limit in limits.items():
        digits = 12 if currency == "IDR" else 8
        assert limit.maximum == Decimal(10**digits - 1).scaleb(-DECIMALS[currency])


async def test_configured_limits_replace_the_gateways_limits_for_their_currency(
    world: World,
) -> None:
    payment = await world.create(currency="USD", amount="0.30")
    baht = await world.create(amount="5.00")
    await world.perform(ChangePaymentMethod(method_id=world.card, limits=["USD:0.10:0.30"]))
    assert await offers(world, payment, "US") == [(world.card, "USD")]
    assert await offers(world, baht, "TH") == []  # the gateway's limits apply
    await world.select(payment, country="US")
    dearer = await world.create(currency="USD", amount="0.31")
    assert await offers(world, dearer, "US") == []
    await world.perform(ChangePaymentMethod(method_id=world.card, label="Cards"))
    [card, _] = await world.perform(ListPaymentMethods(merchant_id=world.merchant_id))
    assert card.limits == ("USD:0.10:0.30",)
    await world.perform(ChangePaymentMethod(method_id=world.card, limits=["USD::"]))
    assert await offers(world, dearer, "US") == [(world.card, "USD")]
    await world.perform(ChangePaymentMethod(method_id=world.card, limits=[]))
    assert await offers(world, dearer, "US") == []


async def test_invalid_limits_are_rejected(world: World) -> None:
    with pytest.raises(
        RefusedError, match="limits: 'USD' must be CURRENCY:MINIMUM:MAXIMUM"
    ) as refused:
        await world.perform(ChangePaymentMethod(method_id=world.card, limits=["USD"]))
    assert refused.value.code is ErrorCode.BAD_REQUEST


async def test_limits_apply_to_the_total_including_the_fee(world: World) -> None:
    await world.perform(
        ChangePaymentMethod(
            method_id=world.card, fee_mode=FeeMode.EXCLUSIVE, fee_rate=Decimal("0.1")
        )
    )
    payment = await world.create(currency="USD", amount="0.46")
    assert await offers(world, payment, "US") == [(world.card, "USD")]  # 0.51 including the fee


async def test_limits_do_not_affect_the_catalog(world: World) -> None:
    before = await world.service.merchants.get(world.merchant_id)
    await world.perform(ChangePaymentMethod(method_id=world.card, limits=["THB:5000:5001"]))
    after = await world.service.merchants.get(world.merchant_id)
    assert after.payable_methods.by_country == before.payable_methods.by_country
    assert (await world.create()).amount_text == "1590.00"


async def explain_methods(
    world: World, payment: Payment, country: str
) -> dict[tuple[str, str], Any]:
    rows = await explain(world, payment, country)
    return {(row.label, row.currency): row.total or row.reason for row in rows}


async def test_operators_see_why_each_method_is_offered_or_excluded(world: World) -> None:
    payment = await world.create(currency="USD", amount="0.30")
    async with world.service.database.transaction() as tx:
        for label, currency, countries in (("Yen only", "JPY", None), ("Thai only", "USD", ["TH"])):
            new = NewPaymentMethod(
                kind="card", label=label, currencies=[currency], countries=countries
            )
            await method_store.add(tx, world.merchant_id, world.account_id, new, 9)
    await world.perform(DisablePaymentMethod(method_id=world.transfer))
    assert await explain_methods(world, payment, "US") == {
        ("Card", "USD"): "0.30 USD is less than the minimum of 0.50 USD",
        ("Transfer", ""): "the method is disabled",
        ("Yen only", ""): "the method does not accept USD; it accepts JPY",
        ("Thai only", "USD"): "the method or its gateway is not available in US",
    }
    assert (await explain_methods(world, payment, "JP"))["Card", "USD"] == "USD is not used in JP"
    dearer = await world.create(currency="USD", amount="3.00")
    assert (await explain_methods(world, dearer, "US"))["Card", "USD"] == "3.00"


async def test_a_gateway_outage_is_reported_as_the_reason(world: World) -> None:
    payment = await world.create()
    health = world.service.accounts.health
    for _ in range(FAILURES_MAX):
        silence = OutcomeUnknown(detail="no answer")
        await health.record_result(world.account_id, GatewayChannel.SESSIONS, silence)
    assert await offers(world, payment, "TH") == []
    for row in await explain(world, payment, "TH"):
        assert row.reason == "the gateway is unavailable; see `provider health`"


async def test_an_unknown_payment_is_not_found(world: World) -> None:
    with pytest.raises(RefusedError) as refused:
        await world.perform(ExplainQuotes(payment_id="pay_0", country="TH"))
    assert refused.value.code is ErrorCode.NOT_FOUND


def test_fiat_limits_are_defined_per_currency() -> None:
    [(currency, limits)] = fiat_limits(USD=("0.50", "2.00")).items()
    assert (currency, limits.minimum, limits.maximum) == ("USD", Decimal("0.50"), Decimal(2))
