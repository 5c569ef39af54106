"""Random histories of a gateway: its books and all balances agree after every step.

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

from tests.onchain.contract.ground import (
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
PEOPLE = st.sampled_from(["buyer", "stranger", "receiver"])
Key = tuple[object, ...]


class History(RuleBasedStateMachine):
    """Accounts that pay, refund, lose money to the gateway and sweep. The test sets `ground`."""

    ground: Ground

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.stack.enter_context(self.ground.evm.revert_afterwards())
        self.first_block = int(self.ground.evm.ask("eth_blockNumber"), 16)
        self.before = {kind: self._receivers(kind) for kind in ("coin", "usdt", "plain")}
        self.paid: set[Key] = set()
        self.refunded: set[Key] = set()
        self.stray: Counter[str] = Counter()  # what lies in the gateway by mistake
        self.came: Counter[str] = Counter()  # to the receiver, by all ways
        self.fee = False

    def teardown(self) -> None:
        self.stack.close()

    @rule(bill=BILLS, kind=KINDS, amount=AMOUNTS, payer=PEOPLE, in_time=st.booleans())
    def pay(self, bill: bytes, kind: str, amount: int, payer: str, in_time: bool) -> None:
        key = (bill, kind, amount)
        deadline = FAR if in_time else self.ground.evm.now() - 1
        wrong = {
            "amount": kind == "coin" and amount < COIN_MINIMUM,
            "already paid": key in self.paid,
            "expired": not in_time,
            "payer": payer == "receiver",
            "inexact": kind == "usdt" and self.fee,
        }
        who = getattr(self.ground, payer)
        said = self._try(
            lambda: self.ground.pay(
                self._token(kind), amount, payer=who, bill=bill, deadline=deadline
            )
        )

        assert said == next((reason for reason, is_so in wrong.items() if is_so), None)
        if said is None:
            self.paid.add(key)
            self.came[kind] += amount

    @rule(refund=REFUNDS, kind=KINDS, amount=AMOUNTS, sender=PEOPLE, to=PEOPLE)
    def refund(self, refund: bytes, kind: str, amount: int, sender: str, to: str) -> None:
        key = (sender, refund)
        wrong = {
            "to": sender == to,
            "already refunded": key in self.refunded,
            "inexact": kind == "usdt" and self.fee,
        }
        who, whom = getattr(self.ground, sender), getattr(self.ground, to)
        said = self._try(
            lambda: self.ground.refund(
                self._token(kind), amount, sender=who, to=whom, refund=refund
            )
        )

        assert said == next((reason for reason, is_so in wrong.items() if is_so), None)
        if said is None:
            self.refunded.add(key)
            self.came[kind] += amount * ((to == "receiver") - (sender == "receiver"))

    @rule(kind=st.sampled_from(["usdt", "plain"]), amount=AMOUNTS)
    def lose(self, kind: str, amount: int) -> None:
        token = self._token(kind)
        assert token is not None
        token.send(self.ground.buyer, "mint", self.ground.gateway.address, amount)
        self.stray[kind] += amount

    @rule(kind=KINDS)
    def sweep(self, kind: str) -> None:
        place = self._place(kind)
        fee = self.stray[kind] // 10_000 if kind == "usdt" and self.fee else 0
        said = self._try(lambda: self.ground.gateway.send(self.ground.stranger, "sweep", place))

        assert said == (None if self.stray[kind] else "nothing")
        self.came[kind] += self.stray.pop(kind, 0) - fee

    @rule(on=st.booleans())
    def switch_fee(self, on: bool) -> None:
        self.ground.usdt.send(self.ground.stranger, "set_fee", int(on))
        self.fee = on

    @invariant()
    def the_gateway_holds_what_was_lost_to_it_and_nothing_else(self) -> None:
        assert self.ground.held()[:3] == [self.stray[one] for one in ("coin", "usdt", "plain")]

    @invariant()
    def the_receiver_has_what_came(self) -> None:
        for kind, before in self.before.items():
            assert self._receivers(kind) == before + self.came[kind]

    @invariant()
    def the_events_are_the_payments_and_no_two_have_the_same_key(self) -> None:
        logs = self._logs("Paid")
        keys = [(one.topics[1], one.topics[3], one.data[:66]) for one in logs]

        assert len(keys) == len(set(keys)) == len(self.paid)
        places = {self._place(kind)[2:]: kind for kind in self.before}
        assert {
            (
                bytes.fromhex(one.topics[1][2:34]),
                places[one.topics[3][26:]],
                decode(["uint256", "address"], bytes.fromhex(one.data[2:]))[0],
            )
            for one in logs
        } == self.paid
        assert len(self._logs("Refunded")) == len(self.refunded)

    def _try(self, act: Callable[[], object]) -> str | None:
        try:
            act()
        except Reverted as error:
            return str(error.args[0])
        return None

    def _token(self, kind: str) -> Deployed | None:
        return None if kind == "coin" else getattr(self.ground, kind)

    def _place(self, kind: str) -> str:
        token = self._token(kind)
        return token.address if token else NATIVE

    def _receivers(self, kind: str) -> int:
        """Return the receiver's balance plus its gas costs."""
        receiver = self.ground.receiver
        fees = self.ground.evm.fees[receiver] if kind == "coin" else 0
        return self.ground.balance(receiver, self._token(kind)) + fees

    def _logs(self, event: str) -> list[Log]:
        asked = {
            "address": self.ground.gateway.address,
            "topics": [self.ground.gateway.contract.topics[event]],
            "fromBlock": hex(self.first_block),
            "toBlock": "latest",
        }
        found = self.ground.evm.ask("eth_getLogs", asked)
        return [Log(one["address"], one["topics"], one["data"]) for one in found]


@pytest.fixture
def stage(ground: Ground) -> type[History]:
    """Accounts with large balances and allowances."""
    for token in ground.tokens():
        token.send(ground.receiver, "mint", ground.receiver, 10**30)
        ground.allow(ground.receiver, token, 10**30)
    return type("Staged", (History,), {"ground": ground})


@pytest.mark.timeout(0)
def test_after_every_step_of_every_history_books_and_money_agree(stage: type[History]) -> None:
    run_state_machine_as_test(stage, settings=PROFILE)
