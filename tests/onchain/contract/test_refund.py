"""Refunds: only with the caller's money, once per sender and id, and with the exact amount."""

import pytest
from eth_abi import encode

from payintent_sandbox.chains.contracts import PLAIN_TOKEN
from tests.onchain.contract.contract_setup import (
    BILL,
    NATIVE,
    OTHER_BILL,
    OTHER_REFUND,
    REFUND,
    RICH,
    Ground,
)
from tests.onchain.contract.test_pay import AMOUNT, KINDS, token_and_amount, word
from tests.support.chain import expect_revert

REFUNDED = "0xbcdae6ba37c6f27eab1a048e46be430f61855c18f5c0a6fd260a831c6f873bc4"


@pytest.mark.parametrize("kind", KINDS)
def test_a_refund_pays_the_recipient_and_leaves_the_receiver_unchanged(
    ground: Ground, kind: str
) -> None:
    token, amount = token_and_amount(ground, kind)
    before = ground.balance(ground.buyer, token)
    receiver_balance = ground.balance(ground.receiver, token)

    ground.refund(token, amount)

    assert ground.balance(ground.buyer, token) == before + amount
    assert ground.balance(ground.receiver, token) == receiver_balance
    assert ground.held() == [0, 0, 0, 0]


def test_the_caller_pays_the_refund(ground: Ground) -> None:
    before = ground.balance(ground.stranger, ground.usdt)

    ground.refund(ground.usdt, AMOUNT)

    assert ground.balance(ground.stranger, ground.usdt) == before - AMOUNT


@pytest.mark.parametrize("kind", KINDS)
def test_the_refunded_event_has_the_expected_topics_and_data(ground: Ground, kind: str) -> None:
    token, amount = token_and_amount(ground, kind)

    logs = ground.refund(token, amount).logs

    [event] = [log for log in logs if log.address == ground.gateway.address]
    uuid, refund_id = ("0x" + value.hex() + 32 * "0" for value in (BILL, REFUND))
    assert event.topics == [REFUNDED, uuid, refund_id, word(token.address if token else NATIVE)]
    types = ["uint256", "address", "address"]
    assert event.data == "0x" + encode(types, [amount, ground.buyer, ground.stranger]).hex()


def test_a_sender_can_use_a_refund_id_only_once(ground: Ground) -> None:
    ground.refund(ground.usdt, AMOUNT)

    for changes in ({}, {"bill": OTHER_BILL}, {"to": ground.receiver}):
        with expect_revert("already refunded"):
            ground.refund(ground.usdt, AMOUNT, **changes)
    with expect_revert("already refunded"):
        ground.refund(ground.usdt, AMOUNT + 1)
    with expect_revert("already refunded"):
        ground.refund(None, AMOUNT)


def test_two_senders_can_use_the_same_refund_id(ground: Ground) -> None:
    to = ground.evm.accounts[5]
    ground.refund(ground.usdt, AMOUNT, to=to)

    assert ground.refund(ground.usdt, AMOUNT, to=to, sender=ground.buyer).ok


def test_a_bill_can_have_many_refunds(ground: Ground) -> None:
    ground.refund(ground.usdt, AMOUNT)

    assert ground.refund(ground.usdt, AMOUNT, refund=OTHER_REFUND).ok


def test_a_refund_of_a_single_unit_is_accepted_and_zero_is_rejected(ground: Ground) -> None:
    assert ground.refund(ground.usdt, 1).ok
    with expect_revert("amount"):
        ground.refund(ground.usdt, 0, refund=OTHER_REFUND)


def test_an_unlisted_token_is_rejected(ground: Ground) -> None:
    unlisted = ground.evm.deploy(PLAIN_TOKEN, "Worthless", "WLS", 6)
    unlisted.send(ground.stranger, "mint", ground.stranger, RICH)
    ground.allow(ground.stranger, unlisted, RICH)

    with expect_revert("token"):
        ground.refund(unlisted, AMOUNT)


@pytest.mark.parametrize("kind", ["coin", "usdt"])
def test_refunds_to_the_zero_address_the_gateway_or_the_sender_are_rejected(
    ground: Ground, kind: str
) -> None:
    token, amount = token_and_amount(ground, kind)
    for to in (NATIVE, ground.gateway.address, ground.stranger):
        with expect_revert("to"):
            ground.refund(token, amount, to=to)
    assert ground.held() == [0, 0, 0, 0]


def test_a_coin_value_that_does_not_match_the_refund_is_rejected(ground: Ground) -> None:
    for token, value in ((ground.usdt, 1), (None, AMOUNT - 1), (None, AMOUNT + 1), (None, 0)):
        with expect_revert("value"):
            ground.refund(token, AMOUNT, value=value)


def test_a_failed_refund_can_be_retried_with_the_same_id(ground: Ground) -> None:
    ground.allow(ground.stranger, ground.usdt, 0)
    with expect_revert(""):
        ground.refund(ground.usdt, AMOUNT)
    ground.allow(ground.stranger, ground.usdt, AMOUNT)

    assert ground.refund(ground.usdt, AMOUNT).ok


def test_a_refund_reverts_completely_if_the_recipient_rejects_coins(ground: Ground) -> None:
    ground.account.send(ground.buyer, "refuse", True)
    with expect_revert(""):
        ground.refund(None, AMOUNT, to=ground.account.address)

    ground.account.send(ground.buyer, "refuse", False)
    assert ground.refund(None, AMOUNT, to=ground.account.address).ok
