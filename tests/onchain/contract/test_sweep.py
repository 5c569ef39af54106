"""Sweeps: any account can send stray money from the gateway to the receiver."""

import pytest

from payintent_sandbox.chains.contracts import PLAIN_TOKEN
from tests.onchain.contract.contract_setup import NATIVE, Ground, gateway_for
from tests.onchain.contract.test_pay import AMOUNT, COINS
from tests.support.chain import expect_revert


@pytest.mark.parametrize("kind", ["usdt", "plain", "hostile"])
def test_any_account_can_sweep_stray_tokens_to_the_receiver(ground: Ground, kind: str) -> None:
    token = getattr(ground, kind)
    token.send(ground.buyer, "transfer", ground.gateway.address, AMOUNT)
    before = ground.balance(ground.receiver, token)

    receipt = ground.gateway.send(ground.stranger, "sweep", token.address)

    assert ground.balance(ground.receiver, token) == before + AMOUNT
    assert ground.held() == [0, 0, 0, 0]
    assert [log for log in receipt.logs if log.address == ground.gateway.address] == []


def test_an_unlisted_token_can_be_swept(ground: Ground) -> None:
    stray = ground.evm.deploy(PLAIN_TOKEN, "Stray", "STR", 6)
    stray.send(ground.buyer, "mint", ground.gateway.address, AMOUNT)

    ground.gateway.send(ground.stranger, "sweep", stray.address)

    assert ground.balance(ground.receiver, stray) == AMOUNT


def test_coins_forced_into_the_gateway_are_swept(ground: Ground) -> None:
    ground.evm.ask("anvil_setBalance", ground.gateway.address, hex(COINS))
    before = ground.evm.coins(ground.receiver)

    ground.gateway.send(ground.stranger, "sweep", NATIVE)

    assert ground.evm.coins(ground.receiver) == before + COINS
    assert ground.held() == [0, 0, 0, 0]


def test_an_empty_balance_cannot_be_swept(ground: Ground) -> None:
    for token_address in (NATIVE, ground.usdt.address):
        with expect_revert("nothing"):
            ground.gateway.send(ground.stranger, "sweep", token_address)


def test_a_transfer_that_returns_false_fails_the_sweep(ground: Ground) -> None:
    ground.hostile.send(ground.buyer, "transfer", ground.gateway.address, AMOUNT)
    ground.hostile.send(ground.buyer, "answer_with", 0)

    with expect_revert("transfer"):
        ground.gateway.send(ground.stranger, "sweep", ground.hostile.address)


def test_an_address_without_code_is_rejected_as_a_token(ground: Ground) -> None:
    with expect_revert(""):
        ground.gateway.send(ground.stranger, "sweep", ground.buyer)


def test_a_sweep_to_a_receiver_that_rejects_coins_reverts(ground: Ground) -> None:
    gateway = gateway_for(ground.evm, ground.account.address, ground.usdt)
    ground.evm.ask("anvil_setBalance", gateway.address, hex(COINS))
    ground.account.send(ground.stranger, "refuse", True)

    with expect_revert(""):
        gateway.send(ground.stranger, "sweep", NATIVE)


def test_a_stray_balance_cannot_be_used_for_payments_or_refunds(ground: Ground) -> None:
    ground.usdt.send(ground.buyer, "transfer", ground.gateway.address, AMOUNT)
    poor = ground.evm.accounts[5]
    ground.allow(poor, ground.usdt, AMOUNT)

    with expect_revert(""):
        ground.pay(ground.usdt, AMOUNT, payer=poor)
    with expect_revert(""):
        ground.refund(ground.usdt, AMOUNT, sender=poor)
