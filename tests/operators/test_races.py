"""Concurrent operations and payments: nothing is lost, and payments do not wait."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pytest

from payintent.chains.operations import AddContract, ChainView, RetireContract, SetToken
from payintent.chains.store import TokenRecord
from payintent.db.database import Tx
from payintent.gateway_accounts.operations import ChangeAccount, DisableAccount, ShowAccount
from payintent.gateway_accounts.store import AccountRecord
from payintent.merchants.methods_operations import (
    ChangePaymentMethod,
    DisablePaymentMethod,
    ListPaymentMethods,
)
from payintent.merchants.model import Merchant, PaymentMethod
from payintent.merchants.operations import SetCallbackUrl, SetMerchantProfile, ShowMerchant
from payintent.onchain.operations import SetChain
from payintent.operators.operation import ChangeOperation, OperationContext
from payintent.runtime.settings import Settings
from tests.support.contracts import CONTRACT, RECEIVER
from tests.support.fakes import captured
from tests.support.timeouts import PATIENCE_S
from tests.support.world import World


@dataclass
class _Gate:
    """The point before the commit at which a slow change pauses."""

    reached: asyncio.Event = field(default_factory=asyncio.Event)
    released: asyncio.Event = field(default_factory=asyncio.Event)


_gate: ContextVar[_Gate] = ContextVar("_gate")


async def _pause() -> None:
    gate = _gate.get()
    gate.reached.set()
    await gate.released.wait()


class _SlowAccount(ChangeAccount, frozen=True, kw_only=True):
    async def apply(self, context: OperationContext, tx: Tx) -> AccountRecord:
        changed = await super().apply(context, tx)
        await _pause()
        return changed


class _SlowMethod(ChangePaymentMethod, frozen=True, kw_only=True):
    async def apply(self, context: OperationContext, tx: Tx) -> PaymentMethod:
        changed = await super().apply(context, tx)
        await _pause()
        return changed


class _SlowProfile(SetMerchantProfile, frozen=True, kw_only=True):
    async def apply(self, context: OperationContext, tx: Tx) -> Merchant:
        changed = await super().apply(context, tx)
        await _pause()
        return changed


class _SlowChain(SetChain, frozen=True, kw_only=True):
    async def apply(self, context: OperationContext, tx: Tx) -> ChainView:
        changed = await super().apply(context, tx)
        await _pause()
        return changed


class _SlowToken(SetToken, frozen=True, kw_only=True):
    async def apply(self, context: OperationContext, tx: Tx) -> TokenRecord:
        changed = await super().apply(context, tx)
        await _pause()
        return changed


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"database_lock_timeout_ms": 60_000})


@asynccontextmanager
async def _uncommitted(world: World, change: ChangeOperation[Any]) -> AsyncIterator[None]:
    """Make a change, and commit it when the block ends."""
    gate = _Gate()
    _gate.set(gate)
    changing = asyncio.create_task(world.perform(change))
    try:
        await asyncio.wait_for(gate.reached.wait(), PATIENCE_S)
        yield
    finally:
        gate.released.set()
        await changing


async def _wait_until(check: Callable[[], Awaitable[Any]]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not await check():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


async def _run_concurrently(
    world: World, first: ChangeOperation[Any], second: ChangeOperation[Any]
) -> None:
    """Start a change and a second change that must wait; commit them in this order."""

    async def is_waiting() -> bool:
        [row] = await world.rows(
            "SELECT count(*) AS n FROM pg_locks l JOIN pg_stat_activity a USING (pid) "
            "WHERE NOT l.granted AND a.datname = current_database()"
        )
        return row["n"] > 0

    async with _uncommitted(world, first):
        waiting = asyncio.create_task(world.perform(second))
        await _wait_until(is_waiting)
    await waiting


async def test_an_account_that_is_disabled_while_being_renamed_stays_disabled(world: World) -> None:
    account_id = world.account_id
    renamed = _SlowAccount(account_id=account_id, name="main")
    await _run_concurrently(world, renamed, DisableAccount(account_id=account_id))
    account = await world.perform(ShowAccount(account_id=account_id))
    assert (account.name, account.enabled) == ("main", False)


async def test_a_method_that_is_disabled_while_its_fee_changes_stays_disabled(world: World) -> None:
    changed = _SlowMethod(method_id=world.card, fee_rate=Decimal("0.05"))
    await _run_concurrently(world, changed, DisablePaymentMethod(method_id=world.card))
    methods = await world.perform(ListPaymentMethods(merchant_id=world.merchant_id))
    assert (methods[0].fee_rate, methods[0].enabled) == (Decimal("0.05"), False)


async def test_concurrent_changes_to_a_merchant_are_both_applied(world: World) -> None:
    merchant_id = world.merchant_id
    profile = _SlowProfile(merchant_id=merchant_id, locale="ja")
    url = "http://127.0.0.1:9/"
    await _run_concurrently(
        world, profile, SetCallbackUrl(merchant_id=merchant_id, callback_url=url)
    )
    renamed = _SlowProfile(merchant_id=merchant_id, name="Two")
    await _run_concurrently(
        world, renamed, SetMerchantProfile(merchant_id=merchant_id, default_country="JP")
    )
    merchant = await world.perform(ShowMerchant(merchant_id=merchant_id))
    assert (merchant.locale, merchant.callback_url) == ("ja", url)
    assert (merchant.name, merchant.default_country) == ("Two", "JP")


async def test_concurrent_changes_to_a_chain_are_both_applied(
    world: World,
) -> None:
    above, refunder = "5", f"0x{40 * '7'}"
    approved = _SlowChain(chain="native", refund_approval_above=above, refunder=refunder)
    await _run_concurrently(world, approved, SetChain(chain="native", finality="finalized"))
    [row] = await world.rows("SELECT * FROM chain WHERE slug = 'native'")
    assert (row["refund_approval_above"], row["finality"]) == (Decimal(above), "finalized")
    assert [item.hex() for item in row["refunders"]] == [refunder[2:]]


async def test_enabling_a_token_does_not_undo_a_concurrent_address_change(world: World) -> None:
    address = f"0x{40 * '6'}"
    moved = _SlowToken(chain="native", symbol="USDT", address=address, decimals=6)
    await _run_concurrently(world, moved, SetToken(chain="native", symbol="USDT", enabled=True))
    [row] = await world.rows("SELECT * FROM chain_token WHERE chain = 'native' AND symbol = 'USDT'")
    assert (row["address"].hex(), row["decimals"], row["enabled"]) == (address[2:], 6, True)


async def test_retiring_a_contract_does_not_undo_a_concurrent_rename(
    world: World,
) -> None:
    contract = AddContract(chain="native", address=CONTRACT, receiver=RECEIVER, deployed_block=1)
    account_id = (await world.perform(contract)).account_id
    renamed = _SlowAccount(account_id=account_id, name="main")
    await _run_concurrently(world, renamed, RetireContract(account_id=account_id))
    account = await world.perform(ShowAccount(account_id=account_id))
    assert (account.name, account.enabled) == ("main", False)


async def test_payments_are_not_blocked_by_an_uncommitted_operator_change(world: World) -> None:
    """Sessions, captures and cases reference the changed row, whose keys do not change."""
    for change in (
        _SlowAccount(account_id=world.account_id, name="main"),
        _SlowMethod(method_id=world.card, label="Card!"),
        _SlowProfile(merchant_id=world.merchant_id, name="Other"),
    ):
        async with _uncommitted(world, change):
            payment = await asyncio.wait_for(world.create(), PATIENCE_S)
            selected = await asyncio.wait_for(world.select(payment), PATIENCE_S)
            for reference in ("cap-1", "cap-2"):
                report = captured(159000, reference=f"{payment.id}-{reference}")
                await asyncio.wait_for(
                    world.report(payment, selected.session.id, report), PATIENCE_S
                )
            assert await world.status(payment) == "PAID"
            assert await world.cases(payment) == ["DOUBLE_PAYMENT"]
