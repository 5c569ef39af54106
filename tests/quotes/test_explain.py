"""The methods that operators see as offered are the methods that buyers are offered."""

import asyncio
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from payintent.core import ids
from payintent.core.countries import COUNTRIES
from payintent.core.errors import ErrorCode, RefusedError
from payintent.fraud.policy_cache import PolicyCache
from payintent.merchants import methods_store as method_store
from payintent.merchants.methods_store import NewPaymentMethod
from payintent.merchants.model import TaxManager
from payintent.merchants.payable import RestrictionType
from payintent.merchants.restrictions import AddRestriction
from payintent.merchants.taxes import SetTaxRate
from payintent.payments.model import Payment
from payintent.quotes.list_quotes import QuoteQuery, list_quotes
from payintent.quotes.operations import ExplainQuotes, QuoteExplanation, describe_countries
from tests.support.sample_values import a_method
from tests.support.world import World

_SOME = ("US", "TH", "JP", "GL")
_TERMS = (("USD", "7.00"), ("USD", "0.30"), ("THB", "15.00"), ("JPY", "900"))
_places = st.none() | st.none() | st.lists(st.sampled_from(_SOME), min_size=1, unique=True)
#: The columns of a configuration, and a payment.
_CONFIGURATIONS = st.fixed_dictionaries(
    {
        "activation": st.sampled_from(["ACTIVE", "ACTIVE", "APPLIED", "SUSPENDED"]),
        "market": _places,
        "account": st.tuples(st.sampled_from([True, True, True, False]), _places),
        "pegged": st.sampled_from([True, True, False]),
        "provider": st.sampled_from([True, True, True, False]),
        "restricted": st.lists(st.sampled_from(_SOME), max_size=3, unique=True),
        "methods": st.lists(
            st.tuples(
                st.sampled_from([True, True, True, False]),
                _places,
                st.lists(
                    st.sampled_from(["USD", "THB", "JPY", "USDT"]),
                    min_size=1,
                    max_size=4,
                    unique=True,
                ),
                st.sampled_from([[], ["USD:5:50"], ["THB::20", "JPY:1000:"]]),
            ),
            min_size=2,
            max_size=2,
        ),
        "payment": st.sampled_from(_TERMS),
        "country": st.sampled_from(_SOME),
    }
)


async def explain(
    world: World, payment: Payment, country: str | None = None
) -> list[QuoteExplanation]:
    name = ids.format_id(ids.PAYMENT, payment.id)
    return await world.perform(ExplainQuotes(payment_id=name, country=country))


async def offers(world: World, payment: Payment, country: str) -> list[tuple[int, str, str]]:
    """List the method, currency and total of the current offers to a buyer in a country."""
    service = world.service
    restrictions = await PolicyCache(service.database, max_age_s=0).get_restrictions()
    query = QuoteQuery(restrictions=restrictions, country=country)
    snapshot = await service.payment_lookup.find_checkout_payment(payment.checkout_id)
    quote_list = await list_quotes(
        service.database, service.merchants, service.accounts, snapshot, query
    )
    return [
        (quote.payment_method_id, quote.price.currency, quote.price.total_amount)
        for quote in quote_list.quotes
    ]


async def configure(world: World, configuration: dict[str, Any]) -> None:
    await world.rows(
        "UPDATE merchant SET activation = $2, countries = $3 WHERE id = $1",
        world.merchant_id,
        configuration["activation"],
        configuration["market"],
    )
    enabled, countries = configuration["account"]
    await world.rows(
        "UPDATE provider_account SET enabled = $2, countries = $3 WHERE id = $1",
        world.account_id,
        enabled,
        countries,
    )
    await world.rows("UPDATE provider SET enabled = $1", configuration["provider"])
    await world.rows("DELETE FROM restriction")
    for country in configuration["restricted"]:
        await world.perform(AddRestriction(type=RestrictionType.CRYPTO, country=country))
    for method_id, columns in zip(
        (world.card, world.transfer), configuration["methods"], strict=True
    ):
        await world.rows(
            "UPDATE payment_method SET enabled = $2, countries = $3, currencies = $4, limits = $5 "
            "WHERE id = $1",
            method_id,
            *columns,
        )


@pytest.mark.slow
async def test_exactly_the_methods_that_buyers_see_are_explained_as_offered(world: World) -> None:
    await world.perform(SetTaxRate(country="TH", rate=Decimal("0.07")))
    payments = {
        (terms, pegged): await world.create(
            currency=terms[0],
            amount=Decimal(terms[1]),
            amount_text=terms[1],
            include_pegged_assets=pegged,
            tax_manager=TaxManager.SERVICE,
        )
        for terms in _TERMS
        for pegged in (True, False)
    }
    loop = asyncio.get_running_loop()

    async def compare(configuration: dict[str, Any]) -> None:
        await configure(world, configuration)
        payment = payments[configuration["payment"], configuration["pegged"]]
        country = configuration["country"]
        explained = await explain(world, payment, country)
        assert [
            (row.method_id, row.currency, row.total) for row in explained if row.offered
        ] == await offers(world, payment, country)
        assert {row.method_id for row in explained} == {world.card, world.transfer}
        assert all(row.offered != bool(row.reason and row.code) for row in explained)
        for row in await explain(world, payment):
            offered = [offer[:2] for offer in await offers(world, payment, country)]
            assert ((row.method_id, row.currency) in offered) is (country in row.countries)
            assert row.offered is bool(row.countries)

    @examples(
        max_examples=150,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(configuration=_CONFIGURATIONS)
    def run_comparison(configuration: dict[str, Any]) -> None:
        asyncio.run_coroutine_threadsafe(compare(configuration), loop).result(60)

    await asyncio.to_thread(run_comparison)


async def test_a_payment_without_a_country_is_explained_for_every_country(world: World) -> None:
    payment = await world.create(currency="USD", amount=Decimal("7.00"), amount_text="7.00")
    [card, transfer] = await explain(world, payment)
    assert (card.country, card.offered, card.total, card.reason) == (None, True, "7.00", "")
    assert "US" in card.countries
    assert "JP" not in card.countries
    await world.rows(
        "UPDATE payment_method SET countries = ARRAY['JP'] WHERE id = $1", transfer.method_id
    )
    [_, transfer] = await explain(world, payment)
    assert (transfer.offered, transfer.code) == (False, "method_country")
    assert transfer.reason.startswith(
        "not offered in any country; for example, the method or its gateway is not available in "
    )
    await world.rows(
        "UPDATE payment_method SET countries = NULL, limits = '{USD:8:9}' WHERE id = $1",
        transfer.method_id,
    )
    [_, transfer] = await explain(world, payment)
    assert (transfer.code, transfer.countries) == ("amount_limit", ())
    assert "7.00 USD is less than the minimum of 8.00 USD" in transfer.reason


async def test_a_total_that_depends_on_the_country_is_omitted(world: World) -> None:
    await world.perform(SetTaxRate(country="SG", rate=Decimal("0.09")))
    payment = await world.create(
        currency="USD", amount=Decimal(100), amount_text="100", tax_manager=TaxManager.SERVICE
    )
    [card, _] = await explain(world, payment)
    assert (card.offered, card.total) == (True, None)
    [card, _] = await explain(world, payment, "SG")
    assert (card.total, card.countries) == ("109.00", ("SG",))


async def test_the_country_of_the_last_selection_is_the_default(world: World) -> None:
    payment = await world.create(currency="USD", amount=Decimal(7), amount_text="7.00")
    await world.select(payment, country="SG")
    assert {row.country for row in await explain(world, payment)} == {"SG"}
    assert {row.country for row in await explain(world, payment, "US")} == {"US"}


async def test_each_unavailable_part_is_reported(world: World) -> None:
    payment = await world.create()
    await world.rows("UPDATE provider SET enabled = false")
    assert {row.code for row in await explain(world, payment, "TH")} == {"provider_disabled"}
    await world.rows("UPDATE provider_account SET enabled = false")
    assert {row.code for row in await explain(world, payment, "TH")} == {"account_disabled"}
    await world.rows("UPDATE provider SET enabled = true")
    await world.rows("UPDATE provider_account SET enabled = true")
    assert {row.code for row in await explain(world, payment, "TH")} == {""}
    async with world.database.transaction() as tx:
        token = NewPaymentMethod(
            kind="onchain", label="USDT", currencies=["USDT"], chain="ethereum", token="USDT"
        )
        await method_store.add(tx, world.merchant_id, world.account_id, token, 9)
    dollars = await world.create(currency="USD", amount=Decimal(7), amount_text="7.00")
    [*_, row] = await explain(world, dollars, "US")
    assert (row.code, row.currency) == ("chain_unwatched", "")


async def test_an_unsupported_country_is_rejected(world: World) -> None:
    payment = await world.create()
    with pytest.raises(RefusedError) as refused:
        await explain(world, payment, "ZZ")
    assert refused.value.code is ErrorCode.UNSUPPORTED_COUNTRY


@pytest.mark.parametrize(
    ("countries", "text"),
    [
        ((), ""),
        (("US",), "US"),
        (tuple(COUNTRIES)[:5], ", ".join(tuple(COUNTRIES)[:5])),
        (tuple(COUNTRIES)[:7], f"{', '.join(tuple(COUNTRIES)[:5])} and 2 more"),
        (tuple(COUNTRIES), "all countries"),
    ],
)
def test_long_country_lists_are_abbreviated(countries: tuple[str, ...], text: str) -> None:
    method = a_method()
    row = QuoteExplanation(
        method_id=method.id,
        label=method.label,
        provider=method.provider,
        currency="USD",
        country=None,
        offered=bool(countries),
        countries=countries,
        total=None,
        code="",
        reason="",
    )
    assert describe_countries(row) == text
