"""Misbehaving tokens and accounts: money is not lost, and the events stay correct."""

import pytest

from tests.onchain.contract.contract_setup import (
    BILL,
    FAR,
    NATIVE,
    OTHER_BILL,
    REFUND,
    Ground,
    gateway_for,
)
from tests.onchain.contract.test_pay import AMOUNT, COINS
from tests.support.chain import Deployed, expect_revert

pytestmark = pytest.mark.full

MOVES = ["pay", "refund"]


def move(ground: Ground, kind: str, token: Deployed | None, amount: int = AMOUNT) -> None:
    """Pay or refund: both move money by the same rules."""
    (ground.pay if kind == "pay" else ground.refund)(token, amount)


@pytest.mark.parametrize("kind", MOVES)
def test_a_transfer_that_returns_false_is_rejected(ground: Ground, kind: str) -> None:
    ground.hostile.send(ground.stranger, "answer_with", 0)
    with expect_revert("transfer"):
        move(ground, kind, ground.hostile)

    ground.hostile.send(ground.stranger, "answer_with", 1)
    move(ground, kind, ground.hostile)


@pytest.mark.parametrize("kind", MOVES)
def test_a_transfer_result_that_is_not_a_boolean_is_rejected(ground: Ground, kind: str) -> None:
    ground.hostile.send(ground.stranger, "answer_with", 2)

    with expect_revert(""):
        move(ground, kind, ground.hostile)


@pytest.mark.parametrize("arriving", [0, 9_999, 10_001], ids=["nothing", "less", "more"])
@pytest.mark.parametrize("kind", MOVES)
def test_a_transfer_that_delivers_a_different_amount_is_rejected(
    ground: Ground, kind: str, arriving: int
) -> None:
    ground.hostile.send(ground.stranger, "let_arrive", arriving)
    with expect_revert("inexact"):
        move(ground, kind, ground.hostile)

    ground.hostile.send(ground.stranger, "let_arrive", 10_000)
    move(ground, kind, ground.hostile)


@pytest.mark.parametrize("kind", MOVES)
def test_a_token_fee_enabled_later_fails_the_call_and_is_not_charged(
    ground: Ground, kind: str
) -> None:
    payer = ground.buyer if kind == "pay" else ground.stranger
    before = ground.balance(payer, ground.usdt)
    ground.usdt.send(ground.stranger, "set_fee", 1)

    with expect_revert("inexact"):
        move(ground, kind, ground.usdt)

    assert ground.balance(payer, ground.usdt) == before


@pytest.mark.parametrize("kind", MOVES)
def test_a_token_without_code_is_rejected(ground: Ground, kind: str) -> None:
    ground.evm.ask("anvil_setCode", ground.usdt.address, "0x")

    with expect_revert(""):
        move(ground, kind, ground.usdt)


def _inner_calls(ground: Ground, gateway: Deployed) -> list[tuple[str, int]]:
    """List all reentrant calls, with the coins that they need."""
    return [
        (gateway.data("pay", BILL, ground.hostile.address, AMOUNT, FAR), 0),
        (gateway.data("pay", OTHER_BILL, NATIVE, COINS, FAR), COINS),
        (gateway.data("refund", BILL, REFUND, NATIVE, ground.stranger, COINS), COINS),
        (gateway.data("sweep", ground.usdt.address), 0),
    ]


@pytest.mark.parametrize("inside", range(4), ids=["same", "other", "refund", "sweep"])
@pytest.mark.parametrize("kind", MOVES)
def test_reentrant_calls_from_a_token_fail(ground: Ground, kind: str, inside: int) -> None:
    ground.usdt.send(ground.buyer, "transfer", ground.gateway.address, AMOUNT)
    data, coins = _inner_calls(ground, ground.gateway)[inside]
    ground.plot(ground.hostile, ground.gateway, data, coins)

    move(ground, kind, ground.hostile)

    assert ground.hostile.call("inner_calls") == 0
    assert ground.balance(ground.gateway.address, ground.usdt) == AMOUNT


@pytest.mark.parametrize("inside", range(4), ids=["same", "other", "refund", "sweep"])
def test_reentrant_calls_from_the_receiver_fail(ground: Ground, inside: int) -> None:
    account = ground.account
    gateway = gateway_for(ground.evm, account.address, ground.usdt, ground.hostile)
    ground.usdt.send(ground.buyer, "transfer", gateway.address, AMOUNT)
    data, coins = _inner_calls(ground, gateway)[inside]
    ground.plot(account, gateway, data, coins)

    receipt = gateway.send(ground.buyer, "pay", BILL, NATIVE, COINS, FAR, value=COINS)

    assert account.call("inner_calls") == 0
    assert len([log for log in receipt.logs if log.address == gateway.address]) == 1


def test_a_reentrant_second_refund_from_the_recipient_fails(ground: Ground) -> None:
    account = ground.account
    data = ground.gateway.data("refund", BILL, REFUND, NATIVE, ground.stranger, COINS)
    ground.plot(account, ground.gateway, data, COINS)

    ground.refund(None, COINS, to=account.address)

    assert account.call("inner_calls") == 0


def test_a_reentrant_payment_during_a_sweep_fails(ground: Ground) -> None:
    hostile = ground.hostile
    hostile.send(ground.buyer, "transfer", ground.gateway.address, AMOUNT)
    data = ground.gateway.data("pay", OTHER_BILL, NATIVE, COINS, FAR)
    ground.plot(hostile, ground.gateway, data, COINS)

    ground.gateway.send(ground.stranger, "sweep", hostile.address)

    assert hostile.call("inner_calls") == 0
    assert not ground.is_paid(None, COINS, OTHER_BILL)


def test_a_token_can_call_a_second_gateway_during_a_transfer(ground: Ground) -> None:
    """A control: the hostile token can make calls if the gateway does not prevent them."""
    gateway = gateway_for(ground.evm, ground.receiver, ground.usdt)
    ground.plot(ground.hostile, gateway, gateway.data("pay", OTHER_BILL, NATIVE, COINS, FAR), COINS)

    ground.pay(ground.hostile, AMOUNT)

    assert ground.hostile.call("inner_calls") == 1
    assert gateway.call("is_paid", OTHER_BILL, NATIVE, COINS)
