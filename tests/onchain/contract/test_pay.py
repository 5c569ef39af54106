"""Payments: exactly once, with the exact amount, before the deadline, and in listed tokens."""

import pytest
from eth_abi import encode

from payintent_sandbox.chains.contracts import PLAIN_TOKEN
from tests.onchain.contract.ground import (
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


def chosen(ground: Ground, kind: str) -> tuple[Deployed | None, int]:
    """A token of this kind, and a valid amount."""
    return (None, COINS) if kind == "coin" else (getattr(ground, kind), AMOUNT)


@pytest.mark.parametrize("kind", KINDS)
def test_the_receiver_gets_exactly_the_amount_and_the_gateway_keeps_nothing(
    ground: Ground, kind: str
) -> None:
    token, amount = chosen(ground, kind)
    before = ground.balance(ground.receiver, token)

    ground.pay(token, amount)

    assert ground.balance(ground.receiver, token) == before + amount
    assert ground.held() == [0, 0, 0, 0]


@pytest.mark.parametrize("kind", KINDS)
def test_the_event_has_these_topics_and_this_data_to_the_byte(ground: Ground, kind: str) -> None:
    token, amount = chosen(ground, kind)

    logs = ground.pay(token, amount).logs

    [paid] = [log for log in logs if log.address == ground.gateway.address]
    place = token.address if token else NATIVE
    uuid = "0x" + BILL.hex() + 32 * "0"  # sixteen bytes stand on the left of their word
    assert paid.topics == [PAID, uuid, word(ground.buyer), word(place)]
    assert paid.data == "0x" + encode(["uint256", "address"], [amount, ground.receiver]).hex()


@pytest.mark.parametrize("kind", KINDS)
def test_a_bill_is_paid_once(ground: Ground, kind: str) -> None:
    token, amount = chosen(ground, kind)
    assert not ground.is_paid(token, amount)

    ground.pay(token, amount)

    assert ground.is_paid(token, amount)
    with expect_revert("already paid"):
        ground.pay(token, amount)
    with expect_revert("already paid"):
        ground.pay(token, amount, payer=ground.stranger)


def test_another_amount_token_or_bill_is_another_payment(ground: Ground) -> None:
    ground.pay(ground.usdt, AMOUNT)
    others = [(ground.usdt, AMOUNT + 1, BILL), (ground.plain, AMOUNT, BILL)]
    others.append((ground.usdt, AMOUNT, OTHER_BILL))

    for token, amount, bill in others:
        assert not ground.is_paid(token, amount, bill)
        ground.pay(token, amount, bill=bill)
        assert ground.is_paid(token, amount, bill)


def test_dust_with_a_copied_uuid_does_not_block_the_real_payment(ground: Ground) -> None:
    ground.pay(ground.usdt, MINIMUM, payer=ground.stranger)

    assert ground.pay(ground.usdt, AMOUNT).ok


def test_a_second_click_after_the_deadline_is_told_that_it_is_paid(ground: Ground) -> None:
    ground.pay(ground.usdt, AMOUNT)
    past = ground.evm.now() - 1

    with expect_revert("already paid"):
        ground.pay(ground.usdt, AMOUNT, deadline=past)
    with expect_revert("expired"):
        ground.pay(ground.usdt, AMOUNT + 1, deadline=past)


def test_the_deadline_is_the_last_second_at_which_a_payment_is_mined(ground: Ground) -> None:
    deadline = ground.evm.now() + 1_000
    usdt, gateway = ground.usdt.address, ground.gateway
    for amount, mined_at, fine in ((AMOUNT, deadline, True), (AMOUNT + 1, deadline + 1, False)):
        data = gateway.data("pay", BILL, usdt, amount, deadline)
        ground.evm.ask("evm_setNextBlockTimestamp", mined_at)

        mined = ground.evm.mine(ground.buyer, gateway.address, data)

        assert mined.ok == fine
        assert ground.is_paid(ground.usdt, amount) == fine


def test_a_payment_that_is_mined_too_late_leaves_nothing_but_its_reason(ground: Ground) -> None:
    before = ground.balance(ground.buyer, ground.usdt)
    deadline = ground.evm.now() - 1
    data = ground.gateway.data("pay", BILL, ground.usdt.address, AMOUNT, deadline)

    late = ground.evm.mine(ground.buyer, ground.gateway.address, data)

    assert not late.ok
    assert late.logs == []
    assert ground.balance(ground.buyer, ground.usdt) == before
    assert not ground.is_paid(ground.usdt, AMOUNT)
    replayed = {"from": ground.buyer, "to": ground.gateway.address, "data": data}
    with expect_revert("expired"):
        ground.evm.ask("eth_call", replayed, hex(late.block - 1))


def test_a_token_that_is_not_listed_is_refused(ground: Ground) -> None:
    unlisted = ground.evm.deploy(PLAIN_TOKEN, "Worthless", "WLS", 6)
    unlisted.send(ground.buyer, "mint", ground.buyer, RICH)
    ground.allow(ground.buyer, unlisted, RICH)

    with expect_revert("token"):
        ground.pay(unlisted, AMOUNT)


def test_the_native_coin_is_refused_where_it_is_not_listed(ground: Ground) -> None:
    tokens_only = ground.evm.deploy(
        "PaymentGateway", ground.receiver, [ground.usdt.address], [MINIMUM]
    )

    with expect_revert("token"):
        tokens_only.send(ground.buyer, "pay", BILL, NATIVE, COINS, FAR, value=COINS)


@pytest.mark.parametrize(("kind", "least"), [("usdt", MINIMUM), ("coin", COIN_MINIMUM)])
def test_the_minimum_is_enough_and_one_less_is_not(ground: Ground, kind: str, least: int) -> None:
    token, _ = chosen(ground, kind)

    assert ground.pay(token, least).ok
    with expect_revert("amount"):
        ground.pay(token, least - 1)
    with expect_revert("amount"):
        ground.pay(token, 0)


def test_coins_that_come_with_a_token_are_refused(ground: Ground) -> None:
    with expect_revert("value"):
        ground.pay(ground.usdt, AMOUNT, value=1)


@pytest.mark.parametrize("off", [-1, 1, -COINS])
def test_coins_other_than_the_amount_are_refused(ground: Ground, off: int) -> None:
    with expect_revert("value"):
        ground.pay(None, COINS, value=COINS + off)


@pytest.mark.parametrize("kind", KINDS)
def test_the_receiver_cannot_pay_himself(ground: Ground, kind: str) -> None:
    token, amount = chosen(ground, kind)
    if token:
        token.send(ground.receiver, "mint", ground.receiver, RICH)
        ground.allow(ground.receiver, token, RICH)

    with expect_revert("payer"):
        ground.pay(token, amount, payer=ground.receiver)


def test_an_allowance_of_less_than_the_amount_is_refused(ground: Ground) -> None:
    for allowed in (0, AMOUNT - 1):
        ground.allow(ground.buyer, ground.plain, allowed)
        with expect_revert(""):
            ground.pay(ground.plain, AMOUNT)
    ground.allow(ground.buyer, ground.plain, AMOUNT)
    assert ground.pay(ground.plain, AMOUNT).ok


def test_a_balance_of_less_than_the_amount_is_refused(ground: Ground) -> None:
    poor = ground.evm.accounts[5]
    ground.allow(poor, ground.usdt, RICH)
    ground.usdt.send(poor, "mint", poor, AMOUNT - 1)
    with expect_revert(""):
        ground.pay(ground.usdt, AMOUNT, payer=poor)
    ground.usdt.send(poor, "mint", poor, 1)
    assert ground.pay(ground.usdt, AMOUNT, payer=poor).ok


def test_a_blocked_payer_is_refused_and_can_pay_once_he_is_free(ground: Ground) -> None:
    ground.usdt.send(ground.stranger, "set_blocked", ground.buyer, True)
    with expect_revert(""):
        ground.pay(ground.usdt, AMOUNT)
    ground.usdt.send(ground.stranger, "set_blocked", ground.buyer, False)
    assert ground.pay(ground.usdt, AMOUNT).ok


def test_the_usdt_like_allowance_goes_to_another_by_way_of_zero_only(ground: Ground) -> None:
    with expect_revert(""):
        ground.allow(ground.buyer, ground.usdt, AMOUNT)

    ground.allow(ground.buyer, ground.usdt, 0)
    ground.allow(ground.buyer, ground.usdt, AMOUNT)

    assert ground.pay(ground.usdt, AMOUNT).ok
    assert ground.usdt.call("allowance", ground.buyer, ground.gateway.address) == 0


def test_plain_coins_unknown_functions_and_coins_to_a_question_are_refused(ground: Ground) -> None:
    gateway = ground.gateway
    question = gateway.data("is_paid", BILL, NATIVE, COINS)
    for data, value in (("0x", 1), ("0x", 0), ("0x12345678", 0), (question, 1)):
        with expect_revert(""):
            ground.evm.send(ground.buyer, gateway.address, data, value=value)
    with expect_revert(""):
        gateway.send(ground.buyer, "sweep", NATIVE, value=1)


def test_a_receiver_that_refuses_coins_lets_the_payment_fail_whole(ground: Ground) -> None:
    gateway = gateway_for(ground.evm, ground.account.address, ground.usdt)
    ground.account.send(ground.stranger, "refuse", True)
    with expect_revert(""):
        gateway.send(ground.buyer, "pay", BILL, NATIVE, COINS, FAR, value=COINS)
    assert not gateway.call("is_paid", BILL, NATIVE, COINS)

    ground.account.send(ground.stranger, "refuse", False)
    assert gateway.send(ground.buyer, "pay", BILL, NATIVE, COINS, FAR, value=COINS).ok
    assert ground.evm.coins(ground.account.address) == COINS
