"""The metadata of every adapter is valid, and every adapter is tested."""

from dataclasses import fields
from importlib import import_module

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from payintent.core.money import TENDER
from payintent.gateways.port import FailureReason, Gateway, RefundSupport
from payintent.runtime.settings import Settings
from payintent.service import open_service
from tests.conformance.adapters import HARNESSES, TESTED_ELSEWHERE
from tests.conformance.harness import Harness
from tests.docs.parse_pages import ROOT

COUNTRY_CHARS = 2
DECIMALS_MAX = 18


async def test_every_provider_of_the_service_has_conformance_tests(settings: Settings) -> None:
    service = await open_service(settings)
    try:
        assert {*HARNESSES, *TESTED_ELSEWHERE} == service.accounts.providers
        assert all((ROOT / path).is_file() for path in TESTED_ELSEWHERE.values())
    finally:
        await service.close()


@pytest.mark.parametrize("provider", sorted(HARNESSES))
def test_every_provider_has_a_harness(provider: str) -> None:
    assert import_module(f"tests.conformance.{HARNESSES[provider]}").open_harness


def test_an_adapter_has_every_operation_of_the_port(harness: Harness) -> None:
    for name in [var for var in vars(Gateway) if not var.startswith("_")]:
        assert callable(getattr(harness.gateway, name)), name


def test_the_accounts_have_the_credentials_in_the_capabilities(harness: Harness) -> None:
    names = harness.gateway.capabilities.credentials
    assert names <= set(harness.account.credentials)
    assert names <= set(harness.other_account.credentials)
    assert all(name and name == name.lower() for name in names)


def test_capabilities_list_known_currencies_with_valid_decimals(
    harness: Harness,
) -> None:
    decimals = harness.gateway.capabilities.decimals
    if decimals is None:
        return
    assert harness.currency in decimals
    assert set(decimals) <= set(TENDER)
    assert all(0 <= count <= DECIMALS_MAX for count in decimals.values())


def test_capabilities_list_country_codes_and_refund_support(harness: Harness) -> None:
    capabilities = harness.gateway.capabilities
    assert isinstance(capabilities.refunds, RefundSupport)
    countries = capabilities.countries
    if countries is None:
        return
    assert harness.country in countries
    assert all(len(country) == COUNTRY_CHARS and country.isupper() for country in countries)


def test_the_traits_of_an_adapter_match_its_capabilities(harness: Harness) -> None:
    capabilities = harness.gateway.capabilities
    assert capabilities.refunds is not RefundSupport.NONE, (
        "write the tests of such an adapter first"
    )
    assert harness.refunds_parts == (capabilities.refunds is RefundSupport.PARTIAL)
    assert harness.refunds_again == capabilities.refund_is_idempotent
    assert harness.uses_http == (harness.faults is not None)


def test_every_documented_failure_code_has_its_reason(harness: Harness) -> None:
    reasons = {code: harness.gateway.classify_failure(code) for code in harness.failures}
    assert reasons == dict(harness.failures)
    assert all(isinstance(reason, FailureReason) for reason in reasons.values())


@examples(deadline=None, derandomize=True)
@given(code=st.text(max_size=60))
def test_an_undocumented_failure_code_is_unknown(harness: Harness, code: str) -> None:
    reason = harness.gateway.classify_failure(code)
    assert isinstance(reason, FailureReason)
    assert reason is FailureReason.UNKNOWN or code in harness.failures


def test_the_repr_of_an_account_contains_no_secret(harness: Harness) -> None:
    assert harness.secrets or not harness.gateway.capabilities.credentials - harness.public
    for account in (harness.account, harness.other_account):
        text = f"{account!r} {account}"
        assert not [secret for secret in harness.secrets if secret in text]
    assert not [
        field.name
        for field in fields(harness.account)
        if field.name == "credentials" and field.repr
    ]
