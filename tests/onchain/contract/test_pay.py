"""Payments: exactly once, with the exact amount, before the deadline, and in listed tokens."""

import pytest
from eth_abi import encode

from payintent_sandbox.chains.contracts import PLAIN_TOKEN
from tests.onchain.contract.contract_setup import (
    BILL,
    COIN_MINIMUM,
    FAR,
    MINIMUM,
    NATIVE,
    OTHER_BILL,
    RICH,
    Ground,
    gateway_for,
)
from tests.support.chain import Deployed, expect_revert

KINDS = ["coin", "usdt", "plain", "hostile"]
AMOUNT = 25_500_000
COINS = 3 * 10**18
PAID = "0x8c18c424a20459dcea750ef99a2945edb1bf58be222e325bf2db3cf92f2dbb9c"


def word(address: str) -> str:
    return "0x" + 24 * "0" + address[2:]


def token_and_amount(ground: Ground, kind: str) -> tuple[Deployed | None, int]:
    """Return a token of this kind and a valid amount."""
    return (None, COINS) if kind == "coin" else (getattr(ground, kind), AMOUNT)


@pytest.mark.parametrize("kind", KINDS)
def test_the_receiver_gets_the_exact_amount_and_the_gateway_holds_no_balance(
    ground: Ground, kind: str
) -> None:
    token, amount = token_and_amount(ground, kind)
    before = ground.balance(ground.receiver, token)

    ground.pay(token, amount)

    assert ground.balance(ground.receiver, token) == before + amount
    assert ground.held() == [0, 0, 0, 0]


@pytest.mark.parametrize("kind", KINDS)
def test_the_paid_event_has_the_expected_topics_and_data(ground: Ground, kind: str) -> None:
    token, amount = token_and_amount(ground, kind)

    logs = ground.pay(token, amount).logs

    [event] = [log for log in logs if log.address == ground.gateway.address]
    token_address = token.address if token else NATIVE
    uuid = "0x" + BILL.hex() + 32 * "0"  # bytes16 is left-aligned in its word
    assert event.topics == [PAID, uuid, word(ground.buyer), word(token_address)]
    assert event.data == "0x" + encode(["uint256", "address"], [amount, ground.receiver]).hex()


@pytest.mark.parametrize("kind", KINDS)
def test_a_bill_can_be_paid_only_once(ground: Ground, kind: str) -> None:
    token, amount = token_and_amount(ground, kind)
    assert not ground.is_paid(token, amount)

    ground.pay(token, amount)

    assert ground.is_paid(token, amount)
    with expect_revert("already paid"):
        ground.pay(token, amount)
    with expect_revert("already paid"):
        ground.pay(token, amount, payer=ground.stranger)


def test_a_different_amount_token_or_bill_is_a_separate_payment(ground: Ground) -> None:
    ground.pay(ground.usdt, AMOUNT)
    payments = [(ground.usdt, AMOUNT + 1, BILL), (ground.plain, AMOUNT, BILL)]
    payments.append((ground.usdt, AMOUNT, OTHER_BILL))

    for token, amount, bill in payments:
        assert not ground.is_paid(token, amount, bill)
        ground.pay(token, amount, bill=bill)
        assert ground.is_paid(token, amount, bill)


def test_dust_with_a_copied_uuid_does_not_block_the_real_payment(ground: Ground) -> None:
    ground.pay(ground.usdt, MINIMUM, payer=ground.stranger)

    assert ground.pay(ground.usdt, AMOUNT).ok


def test_a_repeat_after_the_deadline_is_rejected_as_already_paid(ground: Ground) -> None:
    ground.pay(ground.usdt, AMOUNT)
    past = ground.evm.now() - 1

    with expect_revert("already paid"):
        ground.pay(ground.usdt, AMOUNT, deadline=past)
    with expect_revert("expired"):
        ground.pay(ground.usdt, AMOUNT + 1, deadline=past)


def test_a_payment_is_accepted_up_to_and_including_its_deadline(ground: Ground) -> None:
    deadline = ground.evm.now() + 1_000
    usdt, gateway = ground.usdt.address, ground.gateway
    for amount, mined_at, is_accepted in (
        (AMOUNT, deadline, True),
        (AMOUNT + 1, deadline + 1, False),
    ):
        data = gateway.data("pay", BILL, usdt, amount, deadline)
        ground.evm.ask("evm_setNextBlockTimestamp", mined_at)

        receipt = ground.evm.mine(ground.buyer, gateway.address, data)

        assert receipt.ok == is_accepted
        assert ground.is_paid(ground.usdt, amount) == is_accepted


def test_a_payment_mined_after_its_deadline_reverts_and_moves_no_money(ground: Ground) -> None:
    before = ground.balance(ground.buyer, ground.usdt)
    deadline = ground.evm.now() - 1
    data = ground.gateway.data("pay", BILL, ground.usdt.address, AMOUNT, deadline)

    receipt = ground.evm.mine(ground.buyer, ground.gateway.address, data)

    assert not receipt.ok
    assert receipt.logs == []
    assert ground.balance(ground.buyer, ground.usdt) == before
    assert not ground.is_paid(ground.usdt, AMOUNT)
    call = {"from": ground.buyer, "to": ground.gateway.address, "data": data}
    with expect_revert("expired"):
        ground.evm.ask("eth_call", call, hex(receipt.block - 1))


def test_an_unlisted_token_is_rejected(ground: Ground) -> None:
    unlisted = ground.evm.deploy(PLAIN_TOKEN, "Worthless", "WLS", 6)
    unlisted.send(ground.buyer, "mint", ground.buyer, RICH)
    ground.allow(ground.buyer, unlisted, RICH)

    with expect_revert("token"):
        ground.pay(unlisted, AMOUNT)


def test_the_native_coin_is_rejected_if_it_is_not_listed(ground: Ground) -> None:
    tokens_only = ground.evm.deploy(
        "PaymentGateway", ground.receiver, [ground.usdt.address], [MINIMUM]
    )

    with expect_revert("token"):
        tokens_only.send(ground.buyer, "pay", BILL, NATIVE, COINS, FAR, value=COINS)


@pytest.mark.parametrize(("kind", "least"), [("usdt", MINIMUM), ("coin", COIN_MINIMUM)])
def test_the_minimum_amount_is_accepted_and_less_is_rejected(
    ground: Ground, kind: str, least: int
) -> None:
    token, _ = token_and_amount(ground, kind)

    assert ground.pay(token, least).ok
    with expect_revert("amount"):
        ground.pay(token, least - 1)
    with expect_revert("amount"):
        ground.pay(token, 0)


def test_coins_sent_with_a_token_payment_are_rejected(ground: Ground) -> None:
    with expect_revert("value"):
        ground.pay(ground.usdt, AMOUNT, value=1)


@pytest.mark.parametrize("difference", [-1, 1, -COINS])
def test_a_coin_value_that_differs_from_the_amount_is_rejected(
    ground: Ground, difference: int
) -> None:
    with expect_revert("value"):
        ground.pay(None, COINS, value=COINS + difference)


@pytest.mark.parametrize("kind", KINDS)
def test_the_receiver_cannot_be_the_payer(ground: Ground, kind: str) -> None:
    token, amount = token_and_amount(ground, kind)
    if token:
        token.send(ground.receiver, "mint", ground.receiver, RICH)
        ground.allow(ground.receiver, token, RICH)

    with expect_revert("payer"):
        ground.pay(token, amount, payer=ground.receiver)


def test_an_allowance_below_the_amount_is_rejected(ground: Ground) -> None:
    for allowance in (0, AMOUNT - 1):
        ground.allow(ground.buyer, ground.plain, allowance)
        with expect_revert(""):
            ground.pay(ground.plain, AMOUNT)
    ground.allow(ground.buyer, ground.plain, AMOUNT)
    assert ground.pay(ground.plain, AMOUNT).ok


def test_a_balance_below_the_amount_is_rejected(ground: Ground) -> None:
    poor = ground.evm.accounts[5]
    ground.allow(poor, ground.usdt, RICH)
    ground.usdt.send(poor, "mint", poor, AMOUNT - 1)
    with expect_revert(""):
        ground.pay(ground.usdt, AMOUNT, payer=poor)
    ground.usdt.send(poor, "mint", poor, 1)
    assert ground.pay(ground.usdt, AMOUNT, payer=poor).ok


def test_a_blocked_payer_is_rejected_until_unblocked(ground: Ground) -> None:
    ground.usdt.send(ground.stranger, "set_blocked", ground.buyer, True)
    with expect_revert(""):
        ground.pay(ground.usdt, AMOUNT)
    ground.usdt.send(ground.stranger, "set_blocked", ground.buyer, False)
    assert ground.pay(ground.usdt, AMOUNT).ok


def test_a_usdt_like_allowance_must_be_reset_to_zero_before_it_changes(ground: Ground) -> None:
    with expect_revert(""):
        ground.allow(ground.buyer, ground.usdt, AMOUNT)

    ground.allow(ground.buyer, ground.usdt, 0)
    ground.allow(ground.buyer, ground.usdt, AMOUNT)

    assert ground.pay(ground.usdt, AMOUNT).ok
    assert ground.usdt.call("allowance", ground.buyer, ground.gateway.address) == 0


def test_calls_with_unexpected_coins_or_unknown_functions_are_rejected(ground: Ground) -> None:
    gateway = ground.gateway
    view_call = gateway.data("is_paid", BILL, NATIVE, COINS)
    for data, value in (("0x", 1), ("0x", 0), ("0x12345678", 0), (view_call, 1)):
        with expect_revert(""):
            ground.evm.send(ground.buyer, gateway.address, data, value=value)
    with expect_revert(""):
        gateway.send(ground.buyer, "sweep", NATIVE, value=1)


def test_a_payment_reverts_completely_if_the_receiver_rejects_coins(ground: Ground) -> None:
    gateway = gateway_for(ground.evm, ground.account.address, ground.usdt)
    ground.account.send(ground.stranger, "refuse", True)
    with expect_revert(""):
        gateway.send(ground.buyer, "pay", BILL, NATIVE, COINS, FAR, value=COINS)
    assert not gateway.call("is_paid", BILL, NATIVE, COINS)

    ground.account.send(ground.stranger, "refuse", False)
    assert gateway.send(ground.buyer, "pay", BILL, NATIVE, COINS, FAR, value=COINS).ok
    assert ground.evm.coins(ground.account.address) == COINS
