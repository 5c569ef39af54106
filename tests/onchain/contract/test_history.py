"""Random histories of a gateway: its events and all balances agree after every step.

`HYPOTHESIS_PROFILE=long` generates more and longer histories.
"""

import os
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack

import pytest
from eth_abi import decode
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

from tests.onchain.contract.contract_setup import (
    BILL,
    COIN_MINIMUM,
    FAR,
    NATIVE,
    OTHER_BILL,
    OTHER_REFUND,
    REFUND,
    Ground,
)
from tests.support.chain import Deployed, Log, Reverted

pytestmark = pytest.mark.full

LONG = os.environ.get("HYPOTHESIS_PROFILE") == "long"
PROFILE = settings(
    max_examples=500 if LONG else 20,
    stateful_step_count=50 if LONG else 20,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)
KINDS = st.sampled_from(["coin", "usdt", "plain"])
AMOUNTS = st.sampled_from([COIN_MINIMUM - 1, COIN_MINIMUM, COIN_MINIMUM + 1])
BILLS = st.sampled_from([BILL, OTHER_BILL])
REFUNDS = st.sampled_from([REFUND, OTHER_REFUND])
ACCOUNTS = st.sampled_from(["buyer", "stranger", "receiver"])
Key = tuple[object, ...]


class History(RuleBasedStateMachine):
    """Accounts that pay, refund, sweep and misdirect tokens. The test sets `ground`."""

    ground: Ground

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.stack.enter_context(self.ground.evm.revert_afterwards())
        self.first_block = int(self.ground.evm.ask("eth_blockNumber"), 16)
        self.initial = {
            kind: self._gross_receiver_balance(kind) for kind in ("coin", "usdt", "plain")
        }
        self.paid: set[Key] = set()
        self.refunded: set[Key] = set()
        self.stray: Counter[str] = Counter()  # sent to the gateway by mistake
        self.received: Counter[str] = Counter()  # by the receiver, by any means
        self.fee = False

    def teardown(self) -> None:
        self.stack.close()

    @rule(bill=BILLS, kind=KINDS, amount=AMOUNTS, payer=ACCOUNTS, in_time=st.booleans())
    def pay(self, bill: bytes, kind: str, amount: int, payer: str, in_time: bool) -> None:
        key = (bill, kind, amount)
        deadline = FAR if in_time else self.ground.evm.now() - 1
        rejections = {
            "amount": kind == "coin" and amount < COIN_MINIMUM,
            "already paid": key in self.paid,
            "expired": not in_time,
            "payer": payer == "receiver",
            "inexact": kind == "usdt" and self.fee,
        }
        account = getattr(self.ground, payer)
        error = self._error_of(
            lambda: self.ground.pay(
                self._token(kind), amount, payer=account, bill=bill, deadline=deadline
            )
        )

        assert error == next((reason for reason, applies in rejections.items() if applies), None)
        if error is None:
            self.paid.add(key)
            self.received[kind] += amount

    @rule(refund=REFUNDS, kind=KINDS, amount=AMOUNTS, sender=ACCOUNTS, to=ACCOUNTS)
    def refund(self, refund: bytes, kind: str, amount: int, sender: str, to: str) -> None:
        key = (sender, refund)
        rejections = {
            "to": sender == to,
            "already refunded": key in self.refunded,
            "inexact": kind == "usdt" and self.fee,
        }
        sender_account, recipient = getattr(self.ground, sender), getattr(self.ground, to)
        error = self._error_of(
            lambda: self.ground.refund(
                self._token(kind), amount, sender=sender_account, to=recipient, refund=refund
            )
        )

        assert error == next((reason for reason, applies in rejections.items() if applies), None)
        if error is None:
            self.refunded.add(key)
            self.received[kind] += amount * ((to == "receiver") - (sender == "receiver"))

    @rule(kind=st.sampled_from(["usdt", "plain"]), amount=AMOUNTS)
    def lose(self, kind: str, amount: int) -> None:
        token = self._token(kind)
        assert token is not None
        token.send(self.ground.buyer, "mint", self.ground.gateway.address, amount)
        self.stray[kind] += amount

    @rule(kind=KINDS)
    def sweep(self, kind: str) -> None:
        token_address = self._token_address(kind)
        fee = self.stray[kind] // 10_000 if kind == "usdt" and self.fee else 0
        error = self._error_of(
            lambda: self.ground.gateway.send(self.ground.stranger, "sweep", token_address)
        )

        assert error == (None if self.stray[kind] else "nothing")
        self.received[kind] += self.stray.pop(kind, 0) - fee

    @rule(on=st.booleans())
    def switch_fee(self, on: bool) -> None:
        self.ground.usdt.send(self.ground.stranger, "set_fee", int(on))
        self.fee = on

    @invariant()
    def the_gateway_holds_only_stray_money(self) -> None:
        assert self.ground.held()[:3] == [self.stray[kind] for kind in ("coin", "usdt", "plain")]

    @invariant()
    def the_receiver_balance_matches_the_transfers(self) -> None:
        for kind, before in self.initial.items():
            assert self._gross_receiver_balance(kind) == before + self.received[kind]

    @invariant()
    def the_events_match_the_payments_and_have_unique_keys(self) -> None:
        logs = self._logs("Paid")
        keys = [(log.topics[1], log.topics[3], log.data[:66]) for log in logs]

        assert len(keys) == len(set(keys)) == len(self.paid)
        kinds = {self._token_address(kind)[2:]: kind for kind in self.initial}
        assert {
            (
                bytes.fromhex(log.topics[1][2:34]),
                kinds[log.topics[3][26:]],
                decode(["uint256", "address"], bytes.fromhex(log.data[2:]))[0],
            )
            for log in logs
        } == self.paid
        assert len(self._logs("Refunded")) == len(self.refunded)

    def _error_of(self, act: Callable[[], object]) -> str | None:
        try:
            act()
        except Reverted as error:
            return str(error.args[0])
        return None

    def _token(self, kind: str) -> Deployed | None:
        return None if kind == "coin" else getattr(self.ground, kind)

    def _token_address(self, kind: str) -> str:
        token = self._token(kind)
        return token.address if token else NATIVE

    def _gross_receiver_balance(self, kind: str) -> int:
        """Return the receiver's balance plus its gas costs."""
        receiver = self.ground.receiver
        fees = self.ground.evm.fees[receiver] if kind == "coin" else 0
        return self.ground.balance(receiver, self._token(kind)) + fees

    def _logs(self, event: str) -> list[Log]:
        search = {
            "address": self.ground.gateway.address,
            "topics": [self.ground.gateway.contract.topics[event]],
            "fromBlock": hex(self.first_block),
            "toBlock": "latest",
        }
        logs = self.ground.evm.ask("eth_getLogs", search)
        return [Log(log["address"], log["topics"], log["data"]) for log in logs]


@pytest.fixture
def stage(ground: Ground) -> type[History]:
    """Accounts with large balances and allowances."""
    for token in ground.tokens():
        token.send(ground.receiver, "mint", ground.receiver, 10**30)
        ground.allow(ground.receiver, token, 10**30)
    return type("Staged", (History,), {"ground": ground})


@pytest.mark.timeout(0)
def test_the_events_and_the_balances_agree_after_every_step(stage: type[History]) -> None:
    run_state_machine_as_test(stage, settings=PROFILE)
