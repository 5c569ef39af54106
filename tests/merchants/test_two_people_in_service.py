"""If a merchant is active, redirecting its buyers, events or money needs two people."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest

from payintent.approvals.operations import Approve, make_proposal_view
from payintent.chains.operations import ListChains
from payintent.core.errors import ErrorCode, RefusedError
from payintent.merchants import store as merchant_store
from payintent.merchants.methods_operations import (
    AddPaymentMethod,
    ChangePaymentMethod,
    EnablePaymentMethod,
    ListPaymentMethods,
)
from payintent.merchants.model import FeeMode, TaxCountry, TaxManager
from payintent.merchants.operations import (
    SetCallbackUrl,
    SetDepositTolerance,
    SetMerchantProfile,
    ShowMerchant,
)
from payintent.merchants.taxes import ListTaxRates, RemoveTaxRate, SetTaxRate
from payintent.onchain.operations import SetChain
from payintent.operators.operation import ChangeOperation, ReadOperation
from payintent.operators.proposals_store import Proposal
from payintent.service import Service
from tests.support.operation_examples import (
    ADA,
    ALAN,
    HOOKS,
    open_outside_sandbox,
    perform_approved,
)
from tests.support.world import World

EVIL = "https://evil.example"


@pytest.fixture
async def operators(world: World) -> AsyncIterator[Service]:
    """An installation outside the sandbox, with an active merchant."""
    await world.operator_token("Ada")
    await world.operator_token("Alan")
    async with open_outside_sandbox(world) as service:
        yield service


def profile(world: World, **fields: Any) -> SetMerchantProfile:
    return SetMerchantProfile(merchant_id=world.merchant_id, **fields)


def method(world: World, **fields: Any) -> ChangePaymentMethod:
    return ChangePaymentMethod(method_id=world.card, **fields)


def another_method(world: World) -> AddPaymentMethod:
    return AddPaymentMethod(
        merchant_id=world.merchant_id,
        account_id=world.account_id,
        kind="card",
        label="Card",
        currencies=["THB"],
        fee_rate=Decimal("0.5"),
    )


def redirections(world: World) -> list[ChangeOperation[Any]]:
    """List changes that redirect buyers, events or money, or count money too early."""
    return [
        profile(world, return_url=f"{EVIL}/thanks"),
        profile(world, allowed_origins=[EVIL]),
        profile(world, support_url=f"{EVIL}/help"),
        profile(world, terms_url=f"{EVIL}/terms"),
        profile(world, tax_manager=TaxManager.SERVICE),
        profile(world, tax_country=TaxCountry.MERCHANT),
        profile(world, default_country="JP"),
        profile(world, name="Nimbus Books", return_url=f"{EVIL}/beside/a/harmless/field"),
        SetCallbackUrl(merchant_id=world.merchant_id, callback_url=HOOKS),
        SetCallbackUrl(merchant_id=world.merchant_id, allow_http=True),
        SetDepositTolerance(merchant_id=world.merchant_id, percent=Decimal("0.001")),
        method(world, fee_rate=Decimal("0.5")),
        method(world, fee_mode=FeeMode.EXCLUSIVE),
        another_method(world),
        SetTaxRate(country="TH", rate=Decimal("0.5")),
        SetChain(chain="native", public_rpc_urls=[EVIL]),
        SetChain(chain="native", explorer_urls=[EVIL]),
        SetChain(chain="bsc", finality="confirmations", confirmations=1),
        SetChain(chain="native", instant_finality=True),
    ]


def harmless_changes(world: World) -> list[ChangeOperation[Any]]:
    """List changes by the same operations that do not redirect anything."""
    return [
        profile(world, name="Nimbus Books Ltd"),
        profile(world, locale="ja", accent_colour="#0b5bd3"),
        profile(world, logo_url="https://shop.example.com/logo.png"),
        profile(world, return_url="", support_url="", terms_url="", allowed_origins=[]),
        profile(world, tax_manager=TaxManager.NONE, auto_refund=True, time_zone="Asia/Bangkok"),
        SetCallbackUrl(merchant_id=world.merchant_id),
        SetCallbackUrl(merchant_id=world.merchant_id, allow_http=False),
        SetDepositTolerance(merchant_id=world.merchant_id, percent=Decimal(0)),
        method(world, label="Card, Apple Pay", position=3, countries=[]),
        EnablePaymentMethod(method_id=world.card),
        SetChain(chain="native", confirmations=10_000),
        SetChain(chain="native", public_rpc_urls=[], explorer_urls=[]),
    ]


async def read_state(world: World, service: Service) -> list[Any]:
    """Read everything that these operations change."""
    return [await service.run_operation(read, ADA) for read in _reads(world)]


def _reads(world: World) -> list[ReadOperation[Any]]:
    return [
        ShowMerchant(merchant_id=world.merchant_id),
        ListPaymentMethods(merchant_id=world.merchant_id),
        ListTaxRates(),
        ListChains(),
    ]


async def test_a_redirection_changes_nothing_before_its_approval(
    world: World, operators: Service
) -> None:
    before = await read_state(world, operators)
    for change in redirections(world):
        proposal = await operators.submit(change, replace(ADA, uses_http=False))
        assert isinstance(proposal, Proposal), change
        assert await read_state(world, operators) == before, change


async def test_a_redirection_takes_effect_when_another_admin_approves_it(
    world: World, operators: Service
) -> None:
    for change in redirections(world):
        before = await read_state(world, operators)
        assert isinstance(await perform_approved(operators, change), SimpleNamespace), change
        assert await read_state(world, operators) != before, change
    result = await perform_approved(operators, RemoveTaxRate(country="TH"))
    assert isinstance(result, SimpleNamespace)


async def test_a_harmless_change_needs_no_approval(world: World, operators: Service) -> None:
    for change in harmless_changes(world):
        assert not isinstance(await operators.submit(change, ADA), Proposal), change


def _settings(world: World) -> list[ChangeOperation[Any]]:
    return [
        profile(world, return_url="https://shop.example.com/", allowed_origins=[EVIL]),
        SetCallbackUrl(merchant_id=world.merchant_id, callback_url=HOOKS),
        method(world, fee_rate=Decimal("0.05")),
    ]


async def test_repeating_an_approved_change_needs_no_second_approval(
    world: World, operators: Service
) -> None:
    for change in _settings(world):
        await perform_approved(operators, change)
        assert not isinstance(await operators.submit(change, ADA), Proposal), change
    removal = profile(world, allowed_origins=[])
    assert not isinstance(await operators.submit(removal, ADA), Proposal)


async def test_redirections_during_activation_need_no_approval(
    world: World, operators: Service
) -> None:
    await world.rows("UPDATE merchant SET activated_at = NULL, activation = 'VALIDATED'")
    for change in redirections(world):
        assert not isinstance(await operators.submit(change, ADA), Proposal), change


@pytest.mark.parametrize("status", ["SUSPENDED", "APPLIED"])
async def test_a_merchant_that_was_ever_active_still_needs_approvals(
    world: World, operators: Service, status: str
) -> None:
    """Otherwise, a single admin could suspend it, redirect its events, and resume it."""
    await world.rows("UPDATE merchant SET activation = $1", status)
    for change in redirections(world):
        assert isinstance(await operators.submit(change, ADA), Proposal), change


async def test_a_change_checked_before_the_activation_is_refused_after_it(
    world: World, operators: Service
) -> None:
    """A change is checked again when it is applied."""
    await world.rows("UPDATE merchant SET activated_at = NULL, activation = 'VALIDATED'")
    context = replace(operators.operation_context, actor=ADA)
    for change in redirections(world):
        await change.check(context)
        assert not await change.needs_approval(context)
    await world.rows("UPDATE merchant SET activated_at = clock()")
    assert await merchant_store.has_gone_live(world.database, world.merchant_id)
    for change in redirections(world):
        async with world.database.transaction() as tx:
            with pytest.raises(RefusedError, match="concurrent change") as error:
                await change.apply(context, tx)
        assert error.value.code is ErrorCode.CONFLICT, change


async def test_changes_during_the_activation_transaction_wait_for_it_and_are_refused(
    world: World, operators: Service
) -> None:
    await world.rows("UPDATE merchant SET activated_at = NULL, activation = 'VALIDATED'")
    context = replace(operators.operation_context, actor=ADA)

    async def apply(change: ChangeOperation[Any]) -> None:
        async with world.database.transaction() as tx:
            await change.apply(context, tx)

    changes = [another_method(world), method(world, fee_rate=Decimal("0.5")), *_settings(world)]
    async with world.database.transaction() as activation:
        await merchant_store.lock(activation, world.merchant_id)
        await activation.fetch("UPDATE merchant SET activated_at = clock()")
        applying = [asyncio.create_task(apply(change)) for change in changes]
        await asyncio.sleep(0.3)
    results = await asyncio.gather(*applying, return_exceptions=True)
    for change, result in zip(changes, results, strict=True):
        assert isinstance(result, RefusedError), change
        assert result.code is ErrorCode.CONFLICT


async def test_a_proposal_describes_the_old_and_new_values(
    world: World, operators: Service
) -> None:
    merchant = f"merchant {world.merchant_id} ('Nimbus Books')"
    expected: list[tuple[ChangeOperation[Any], str]] = [
        (
            profile(world, return_url=f"{EVIL}/thanks"),
            f"return_url of {merchant} changes from empty to {EVIL}/thanks",
        ),
        (
            SetCallbackUrl(merchant_id=world.merchant_id, callback_url=HOOKS),
            f"the callback URL of {merchant} changes from none to {HOOKS}",
        ),
        (
            SetTaxRate(country="TH", rate=Decimal("0.07")),
            "the tax rate of TH changes from 0 to 0.07",
        ),
    ]
    for change, description in expected:
        proposal = await operators.submit(change, ADA)
        assert isinstance(proposal, Proposal)
        view = make_proposal_view(proposal)
        assert view.changes == [description]
        await operators.run_operation(Approve(approval_id=view.id), ALAN)
