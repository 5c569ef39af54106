"""Refunds: only with the caller's money, once per sender and id, and with the exact amount."""

import pytest
from eth_abi import encode

from payintent_sandbox.chains.contracts import PLAIN_TOKEN
from tests.onchain.contract.ground import (
    BILL,
    NATIVE,
    OTHER_BILL,
    OTHER_REFUND,
    REFUND,
    RICH,
    Ground,
)
from tests.onchain.contract.test_pay import AMOUNT, KINDS, chosen, word
from tests.support.chain import expect_revert

REFUNDED = "0xbcdae6ba37c6f27eab1a048e46be430f61855c18f5c0a6fd260a831c6f873bc4"


@pytest.mark.parametrize("kind", KINDS)
def test_the_money_goes_from_the_caller_to_whom_he_names(ground: Ground, kind: str) -> None:
    token, amount = chosen(ground, kind)
    before = ground.balance(ground.buyer, token)
    receivers = ground.balance(ground.receiver, token)

    ground.refund(token, amount)

    assert ground.balance(ground.buyer, token) == before + amount
    assert ground.balance(ground.receiver, token) == receivers
    assert ground.held() == [0, 0, 0, 0]


def test_the_caller_is_the_one_who_pays(ground: Ground) -> None:
    before = ground.balance(ground.stranger, ground.usdt)

    ground.refund(ground.usdt, AMOUNT)

    assert ground.balance(ground.stranger, ground.usdt) == before - AMOUNT


@pytest.mark.parametrize("kind", KINDS)
def test_the_event_has_these_topics_and_this_data_to_the_byte(ground: Ground, kind: str) -> None:
    token, amount = chosen(ground, kind)

    logs = ground.refund(token, amount).logs

    [given] = [log for log in logs if log.address == ground.gateway.address]
    uuid, refund_id = ("0x" + one.hex() + 32 * "0" for one in (BILL, REFUND))
    assert given.topics == [REFUNDED, uuid, refund_id, word(token.address if token else NATIVE)]
    types = ["uint256", "address", "address"]
    assert given.data == "0x" + encode(types, [amount, ground.buyer, ground.stranger]).hex()


def test_a_sender_uses_a_refund_id_once_whatever_he_changes(ground: Ground) -> None:
    ground.refund(ground.usdt, AMOUNT)

    for changes in ({}, {"bill": OTHER_BILL}, {"to": ground.receiver}):
        with expect_revert("already refunded"):
            ground.refund(ground.usdt, AMOUNT, **changes)
    with expect_revert("already refunded"):
        ground.refund(ground.usdt, AMOUNT + 1)
    with expect_revert("already refunded"):
        ground.refund(None, AMOUNT)


def test_nobody_can_use_up_the_refund_id_of_another_sender(ground: Ground) -> None:
    to = ground.evm.accounts[5]
    ground.refund(ground.usdt, AMOUNT, to=to)

    assert ground.refund(ground.usdt, AMOUNT, to=to, sender=ground.buyer).ok


def test_a_bill_can_have_many_refunds(ground: Ground) -> None:
    ground.refund(ground.usdt, AMOUNT)

    assert ground.refund(ground.usdt, AMOUNT, refund=OTHER_REFUND).ok


def test_a_refund_may_be_smaller_than_any_payment_but_not_nothing(ground: Ground) -> None:
    assert ground.refund(ground.usdt, 1).ok
    with expect_revert("amount"):
        ground.refund(ground.usdt, 0, refund=OTHER_REFUND)


def test_a_token_that_is_not_listed_is_refused(ground: Ground) -> None:
    unlisted = ground.evm.deploy(PLAIN_TOKEN, "Worthless", "WLS", 6)
    unlisted.send(ground.stranger, "mint", ground.stranger, RICH)
    ground.allow(ground.stranger, unlisted, RICH)

    with expect_revert("token"):
        ground.refund(unlisted, AMOUNT)


@pytest.mark.parametrize("kind", ["coin", "usdt"])
def test_nothing_goes_to_nobody_to_the_gateway_or_back_to_the_sender(
    ground: Ground, kind: str
) -> None:
    token, amount = chosen(ground, kind)
    for to in (NATIVE, ground.gateway.address, ground.stranger):
        with expect_revert("to"):
            ground.refund(token, amount, to=to)
    assert ground.held() == [0, 0, 0, 0]


def test_coins_must_be_the_amount_and_must_not_come_with_a_token(ground: Ground) -> None:
    for token, value in ((ground.usdt, 1), (None, AMOUNT - 1), (None, AMOUNT + 1), (None, 0)):
        with expect_revert("value"):
            ground.refund(token, AMOUNT, value=value)


def test_a_refund_that_fails_can_be_sent_again_under_its_id(ground: Ground) -> None:
    ground.allow(ground.stranger, ground.usdt, 0)
    with expect_revert(""):
        ground.refund(ground.usdt, AMOUNT)
    ground.allow(ground.stranger, ground.usdt, AMOUNT)

    assert ground.refund(ground.usdt, AMOUNT).ok


def test_a_destination_that_refuses_coins_lets_the_refund_fail_whole(ground: Ground) -> None:
    ground.account.send(ground.buyer, "refuse", True)
    with expect_revert(""):
        ground.refund(None, AMOUNT, to=ground.account.address)

    ground.account.send(ground.buyer, "refuse", False)
    assert ground.refund(None, AMOUNT, to=ground.account.address).ok
