"""Sweeps: money sent to the gateway by mistake goes to the receiver, whoever calls."""

import pytest

from payintent_sandbox.chains.contracts import PLAIN_TOKEN
from tests.onchain.contract.ground import NATIVE, Ground, gateway_for
from tests.onchain.contract.test_pay import AMOUNT, COINS
from tests.support.chain import expect_revert


@pytest.mark.parametrize("kind", ["usdt", "plain", "hostile"])
def test_stray_tokens_go_to_the_receiver_whoever_asks(ground: Ground, kind: str) -> None:
    token = getattr(ground, kind)
    token.send(ground.buyer, "transfer", ground.gateway.address, AMOUNT)
    before = ground.balance(ground.receiver, token)

    swept = ground.gateway.send(ground.stranger, "sweep", token.address)

    assert ground.balance(ground.receiver, token) == before + AMOUNT
    assert ground.held() == [0, 0, 0, 0]
    assert [log for log in swept.logs if log.address == ground.gateway.address] == []


def test_a_token_that_is_not_listed_is_swept_too(ground: Ground) -> None:
    stray = ground.evm.deploy(PLAIN_TOKEN, "Stray", "STR", 6)
    stray.send(ground.buyer, "mint", ground.gateway.address, AMOUNT)

    ground.gateway.send(ground.stranger, "sweep", stray.address)

    assert ground.balance(ground.receiver, stray) == AMOUNT


def test_coins_that_were_forced_upon_it_are_swept(ground: Ground) -> None:
    ground.evm.ask("anvil_setBalance", ground.gateway.address, hex(COINS))
    before = ground.evm.coins(ground.receiver)

    ground.gateway.send(ground.stranger, "sweep", NATIVE)

    assert ground.evm.coins(ground.receiver) == before + COINS
    assert ground.held() == [0, 0, 0, 0]


def test_where_there_is_nothing_there_is_nothing_to_sweep(ground: Ground) -> None:
    for place in (NATIVE, ground.usdt.address):
        with expect_revert("nothing"):
            ground.gateway.send(ground.stranger, "sweep", place)


def test_a_transfer_that_answers_false_is_no_sweep(ground: Ground) -> None:
    ground.hostile.send(ground.buyer, "transfer", ground.gateway.address, AMOUNT)
    ground.hostile.send(ground.buyer, "answer_with", 0)

    with expect_revert("transfer"):
        ground.gateway.send(ground.stranger, "sweep", ground.hostile.address)


def test_an_address_without_code_is_no_token(ground: Ground) -> None:
    with expect_revert(""):
        ground.gateway.send(ground.stranger, "sweep", ground.buyer)


def test_a_receiver_that_refuses_coins_is_not_swept_to(ground: Ground) -> None:
    gateway = gateway_for(ground.evm, ground.account.address, ground.usdt)
    ground.evm.ask("anvil_setBalance", gateway.address, hex(COINS))
    ground.account.send(ground.stranger, "refuse", True)

    with expect_revert(""):
        gateway.send(ground.stranger, "sweep", NATIVE)


def test_a_stray_balance_does_not_help_anybody_to_pay(ground: Ground) -> None:
    ground.usdt.send(ground.buyer, "transfer", ground.gateway.address, AMOUNT)
    poor = ground.evm.accounts[5]
    ground.allow(poor, ground.usdt, AMOUNT)

    with expect_revert(""):
        ground.pay(ground.usdt, AMOUNT, payer=poor)
    with expect_revert(""):
        ground.refund(ground.usdt, AMOUNT, sender=poor)
