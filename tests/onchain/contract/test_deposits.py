"""A deposit address sends money only to the receiver, or as the receiver instructs it."""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from uuid import UUID

import pytest
from eth_utils import keccak
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from payintent_sandbox.chains.contracts import (
    DEPOSIT_FACTORY,
    DEPOSIT_FORWARDER,
    HOSTILE_ACCOUNT,
    HOSTILE_TOKEN,
    PLAIN_TOKEN,
    USDT_LIKE_TOKEN,
    load,
)
from tests.onchain.contract.contract_setup import NATIVE
from tests.support.chain import Deployed, Evm, Log, Receipt, Reverted, expect_revert

AMOUNT = 50_000_000
COINS = 10**15
UUIDS = [UUID(f"0192f0c4-{n:04x}-7abc-8def-00112233aabb").bytes for n in range(201)]
FIRST, SECOND, THIRD, *_ = UUIDS
LONG = os.environ.get("HYPOTHESIS_PROFILE") == "long"


@dataclass(frozen=True)
class Deposits:
    """A factory with its forwarder, and tokens that anyone can mint."""

    evm: Evm
    factory: Deployed
    usdt: Deployed
    plain: Deployed
    hostile: Deployed
    receiver: str
    stranger: str

    def address(self, uuid: bytes) -> str:
        return self.factory.call("address_of", uuid)

    def forwarder(self, address: str) -> Deployed:
        return Deployed(self.evm, load(DEPOSIT_FORWARDER), address)

    def deposit(self, uuid: bytes, token: Deployed, amount: int = AMOUNT) -> str:
        address = self.address(uuid)
        token.send(self.stranger, "mint", address, amount)
        return address

    def sweep(self, uuid: bytes, token: Deployed | None) -> Receipt:
        token_address = token.address if token else NATIVE
        return self.factory.send(self.stranger, "sweep", uuid, token_address)

    def sweep_many(self, uuids: list[bytes], token: Deployed) -> Receipt:
        return self.factory.send(self.stranger, "sweep_many", uuids, token.address)

    def events(self, receipt: Receipt, event: str) -> list[Log]:
        topic = self.factory.contract.topics[event]
        logs = [log for log in receipt.logs if log.address == self.factory.address]
        return [log for log in logs if log.topics[0] == topic]

    def has_code(self, address: str) -> bool:
        return self.evm.ask("eth_getCode", address, "latest") != "0x"


def deploy_factory(evm: Evm, receiver: str) -> Deployed:
    return evm.deploy(DEPOSIT_FACTORY, evm.deploy(DEPOSIT_FORWARDER, receiver).address)


@pytest.fixture(scope="session")
def deployed(evm: Evm) -> Deposits:
    _, receiver, _, stranger, *_ = evm.accounts
    return Deposits(
        evm=evm,
        factory=deploy_factory(evm, receiver),
        usdt=evm.deploy(USDT_LIKE_TOKEN, "Tether USD", "USDT", 6),
        plain=evm.deploy(PLAIN_TOKEN, "Plain", "PLAIN", 18),
        hostile=evm.deploy(HOSTILE_TOKEN),
        receiver=receiver,
        stranger=stranger,
    )


@pytest.fixture
def deposits(deployed: Deposits) -> Iterator[Deposits]:
    with deployed.evm.revert_afterwards():
        yield deployed


def test_an_address_is_the_create2_address_of_its_uuid(deposits: Deposits) -> None:
    forwarder = deposits.factory.call("forwarder")
    init_code = (
        f"602d3d8160093d39f3363d3d373d3d3d363d73{forwarder[2:]}5af43d82803e903d91602b57fd5bf3"
    )
    init_code_hash = keccak(bytes.fromhex(init_code))
    for uuid in UUIDS[:20]:
        factory, salt = bytes.fromhex(deposits.factory.address[2:]), uuid.ljust(32, b"\0")
        expected = keccak(b"\xff" + factory + salt + init_code_hash)[12:].hex()
        assert deposits.address(uuid) == f"0x{expected}"


@pytest.mark.parametrize("kind", ["usdt", "plain", "hostile"])
def test_any_account_can_sweep_a_deposit_to_the_receiver(deposits: Deposits, kind: str) -> None:
    token: Deployed = getattr(deposits, kind)
    address = deposits.deposit(FIRST, token)

    receipt = deposits.sweep(FIRST, token)

    assert token.call("balanceOf", deposits.receiver) == AMOUNT
    assert token.call("balanceOf", address) == 0
    assert deposits.has_code(address)
    [swept] = deposits.events(receipt, "Swept")
    assert swept.topics[1] == f"0x{FIRST.hex():0<64}"
    assert [topic[26:] for topic in swept.topics[2:]] == [token.address[2:], address[2:]]
    assert int(swept.data, 16) == AMOUNT


def test_a_second_deposit_to_an_address_is_swept_too(deposits: Deposits) -> None:
    for _ in range(2):
        deposits.deposit(FIRST, deposits.usdt)
        deposits.sweep(FIRST, deposits.usdt)
    assert deposits.usdt.call("balanceOf", deposits.receiver) == 2 * AMOUNT


def test_coins_are_swept_before_and_after_the_forwarder_is_deployed(deposits: Deposits) -> None:
    address = deposits.address(FIRST)
    deposits.evm.send(deposits.stranger, address, value=COINS)
    before = deposits.evm.coins(deposits.receiver)

    deposits.sweep(FIRST, None)

    assert deposits.evm.coins(deposits.receiver) == before + COINS
    deposits.evm.send(deposits.stranger, address, value=COINS)  # a proxy accepts coins
    deposits.sweep(FIRST, None)
    assert deposits.evm.coins(deposits.receiver) == before + 2 * COINS


def test_an_empty_address_cannot_be_swept(deposits: Deposits) -> None:
    for token in (None, deposits.usdt):
        with expect_revert("nothing"):
            deposits.sweep(FIRST, token)
    assert not deposits.has_code(deposits.address(FIRST))


def test_an_account_without_code_is_rejected_as_a_token(deposits: Deposits) -> None:
    with expect_revert(""):
        deposits.factory.send(deposits.stranger, "sweep", FIRST, deposits.receiver)


@pytest.mark.parametrize(("response", "reason"), [(0, "transfer"), (2, "")])
def test_a_transfer_that_does_not_return_true_fails_the_sweep(
    deposits: Deposits, response: int, reason: str
) -> None:
    address = deposits.deposit(FIRST, deposits.hostile)
    deposits.hostile.send(deposits.stranger, "answer_with", response)
    with expect_revert(reason):
        deposits.sweep(FIRST, deposits.hostile)
    assert deposits.hostile.call("balanceOf", address) == AMOUNT


def test_a_blocked_address_does_not_stop_a_batch(deposits: Deposits) -> None:
    addresses = [deposits.deposit(uuid, deposits.usdt) for uuid in (FIRST, SECOND, THIRD)]
    deposits.usdt.send(deposits.stranger, "set_blocked", addresses[1], True)

    receipt = deposits.sweep_many([FIRST, SECOND, THIRD, UUIDS[3]], deposits.usdt)

    swept = [log.topics[1][2:34] for log in deposits.events(receipt, "Swept")]
    failed = [log.topics[1][2:34] for log in deposits.events(receipt, "SweepFailed")]
    assert swept == [FIRST.hex(), THIRD.hex()]
    assert failed == [SECOND.hex(), UUIDS[3].hex()]  # blocked, empty
    assert deposits.usdt.call("balanceOf", deposits.receiver) == 2 * AMOUNT
    deposits.usdt.send(deposits.stranger, "set_blocked", addresses[1], False)
    deposits.sweep_many([SECOND], deposits.usdt)
    assert deposits.usdt.call("balanceOf", deposits.receiver) == 3 * AMOUNT


def test_deposits_can_be_swept_to_a_blocked_receiver(deposits: Deposits) -> None:
    deposits.deposit(FIRST, deposits.usdt)
    deposits.usdt.send(deposits.stranger, "set_blocked", deposits.receiver, True)
    deposits.sweep(FIRST, deposits.usdt)
    assert deposits.usdt.call("balanceOf", deposits.receiver) == AMOUNT


def test_a_duplicate_uuid_in_a_batch_is_swept_once(deposits: Deposits) -> None:
    deposits.deposit(FIRST, deposits.usdt)
    receipt = deposits.sweep_many([FIRST, FIRST], deposits.usdt)
    assert len(deposits.events(receipt, "Swept")) == 1
    assert len(deposits.events(receipt, "SweepFailed")) == 1


def test_a_batch_has_at_most_200_uuids(deposits: Deposits) -> None:
    with expect_revert(""):
        deposits.sweep_many(UUIDS, deposits.usdt)


def test_only_the_receiver_can_execute_calls(deposits: Deposits) -> None:
    deposits.deposit(FIRST, deposits.usdt)
    address = deposits.deposit(FIRST, deposits.plain)
    deposits.sweep(FIRST, deposits.usdt)
    forwarder = deposits.forwarder(address)
    data = bytes.fromhex(deposits.plain.data("transfer", deposits.stranger, AMOUNT)[2:])
    call = (deposits.plain.address, data, 0)
    for sender in (deposits.stranger, deposits.evm.accounts[0], deposits.evm.accounts[4]):
        with expect_revert("receiver"):
            forwarder.send(sender, "execute", *call)

    forwarder.send(deposits.receiver, "execute", *call)

    assert deposits.plain.call("balanceOf", deposits.stranger) == AMOUNT


def test_a_failed_call_by_the_receiver_does_not_move_tokens(deposits: Deposits) -> None:
    address = deposits.deposit(FIRST, deposits.plain)
    deposits.deposit(FIRST, deposits.usdt)
    deposits.sweep(FIRST, deposits.usdt)
    data = bytes.fromhex(deposits.plain.data("transfer", deposits.stranger, AMOUNT + 1)[2:])
    with expect_revert(""):
        deposits.forwarder(address).send(
            deposits.receiver, "execute", deposits.plain.address, data, 0
        )
    assert deposits.plain.call("balanceOf", address) == AMOUNT


def test_a_reentrant_token_can_only_trigger_a_sweep_to_the_receiver(deposits: Deposits) -> None:
    """A reentrant sweep of another token sends it to the receiver, like any sweep."""
    address = deposits.deposit(FIRST, deposits.usdt)
    deposits.deposit(FIRST, deposits.hostile)
    stolen = bytes.fromhex(deposits.usdt.data("transfer", deposits.stranger, AMOUNT)[2:])
    forwarder = deposits.forwarder(address)
    for data, inner_calls in (
        (forwarder.data("execute", deposits.usdt.address, stolen, 0), 0),
        (deposits.factory.data("sweep", FIRST, deposits.usdt.address), 1),
    ):
        target = address if not inner_calls else deposits.factory.address
        inner = (target, bytes.fromhex(data[2:]), 0)
        deposits.hostile.send(deposits.stranger, "call_inside", *inner)
        deposits.hostile.send(deposits.stranger, "mint", address, AMOUNT)
        deposits.sweep(FIRST, deposits.hostile)
        assert deposits.hostile.call("inner_calls") == inner_calls
    assert deposits.usdt.call("balanceOf", deposits.receiver) == AMOUNT
    assert deposits.hostile.call("balanceOf", deposits.receiver) == 3 * AMOUNT


def test_a_reentrant_sweep_of_the_same_token_reverts(deposits: Deposits) -> None:
    deposits.deposit(FIRST, deposits.hostile)
    data = deposits.factory.data("sweep", FIRST, deposits.hostile.address)
    inner = (deposits.factory.address, bytes.fromhex(data[2:]), 0)
    deposits.hostile.send(deposits.stranger, "call_inside", *inner)
    with expect_revert(""):  # the balance is gone when the outer transfer continues
        deposits.sweep(FIRST, deposits.hostile)
    deposits.hostile.send(deposits.stranger, "call_inside", NATIVE, b"", 0)  # stop the inner calls
    deposits.sweep(FIRST, deposits.hostile)
    assert deposits.hostile.call("balanceOf", deposits.receiver) == AMOUNT


def test_a_sweep_to_a_receiver_that_rejects_coins_reverts(deposits: Deposits) -> None:
    account = deposits.evm.deploy(HOSTILE_ACCOUNT)
    factory = deploy_factory(deposits.evm, account.address)
    address = factory.call("address_of", FIRST)
    deposits.evm.send(deposits.stranger, address, value=COINS)
    account.send(deposits.stranger, "refuse", True)
    with expect_revert(""):
        factory.send(deposits.stranger, "sweep", FIRST, NATIVE)
    assert deposits.evm.coins(address) == COINS


def test_two_factories_derive_different_addresses_from_a_uuid(deposits: Deposits) -> None:
    factory = deploy_factory(deposits.evm, deposits.receiver)
    assert factory.call("address_of", FIRST) != deposits.address(FIRST)


def test_a_forwarder_needs_a_receiver_and_a_factory_needs_a_forwarder(deposits: Deposits) -> None:
    with expect_revert("receiver"):
        deposits.evm.deploy(DEPOSIT_FORWARDER, NATIVE)
    for address in (deposits.stranger, deposits.usdt.address, NATIVE):
        with expect_revert(""):
            deposits.evm.deploy(DEPOSIT_FACTORY, address)


def test_the_deployed_code_is_the_committed_bytecode_followed_by_the_immutable(
    deposits: Deposits,
) -> None:
    forwarder = deposits.factory.call("forwarder")
    assert deposits.forwarder(forwarder).call("receiver") == deposits.receiver
    for name, address, immutable in (
        (DEPOSIT_FACTORY, deposits.factory.address, forwarder),
        (DEPOSIT_FORWARDER, forwarder, deposits.receiver),
    ):
        code = deposits.evm.ask("eth_getCode", address, "latest")
        assert code == f"{load(name).runtime_bytecode}{immutable[2:]:0>64}"


def test_the_contracts_have_no_owner_functions() -> None:
    assert sorted(load(DEPOSIT_FACTORY).selectors) == [
        "address_of(bytes16)",
        "forwarder()",
        "sweep(bytes16,address)",
        "sweep_many(bytes16[],address)",
    ]
    assert sorted(load(DEPOSIT_FORWARDER).selectors) == [
        "__default__()",
        "execute(address,bytes,uint256)",
        "flush(address)",
        "receiver()",
    ]


class History(RuleBasedStateMachine):
    """Deposits, sweeps and calls in any order. The test sets `deposits`."""

    deposits: Deposits

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.stack.enter_context(self.deposits.evm.revert_afterwards())
        self.balances: Counter[tuple[bytes, str]] = Counter()
        self.received: Counter[str] = Counter()

    def teardown(self) -> None:
        self.stack.close()

    @rule(
        uuid=st.sampled_from(UUIDS[:3]),
        kind=st.sampled_from(["usdt", "plain"]),
        amount=st.sampled_from([1, AMOUNT]),
    )
    def deposit(self, uuid: bytes, kind: str, amount: int) -> None:
        self.deposits.deposit(uuid, getattr(self.deposits, kind), amount)
        self.balances[uuid, kind] += amount

    @rule(uuid=st.sampled_from(UUIDS[:3]), kind=st.sampled_from(["usdt", "plain"]))
    def sweep(self, uuid: bytes, kind: str) -> None:
        error = _error_of(lambda: self.deposits.sweep(uuid, getattr(self.deposits, kind)))
        amount = self.balances.pop((uuid, kind), 0)
        assert error == (None if amount else "nothing")
        self.received[kind] += amount

    @rule(
        uuids=st.lists(st.sampled_from(UUIDS[:3]), max_size=4),
        kind=st.sampled_from(["usdt", "plain"]),
    )
    def sweep_many(self, uuids: list[bytes], kind: str) -> None:
        receipt = self.deposits.sweep_many(uuids, getattr(self.deposits, kind))
        amounts = [self.balances.pop((uuid, kind), 0) for uuid in uuids]
        swept = [int(log.data, 16) for log in self.deposits.events(receipt, "Swept")]
        assert swept == [amount for amount in amounts if amount]
        self.received[kind] += sum(amounts)

    @rule(uuid=st.sampled_from(UUIDS[:3]), kind=st.sampled_from(["usdt", "plain"]))
    def steal(self, uuid: bytes, kind: str) -> None:
        token: Deployed = getattr(self.deposits, kind)
        data = bytes.fromhex(token.data("transfer", self.deposits.stranger, 1)[2:])
        address = self.deposits.address(uuid)
        error = _error_of(
            lambda: self.deposits.forwarder(address).send(
                self.deposits.stranger, "execute", token.address, data, 0
            )
        )
        assert error == ("receiver" if self.deposits.has_code(address) else None)

    @invariant()
    def all_tokens_are_at_their_address_or_the_receiver(self) -> None:
        for kind in ("usdt", "plain"):
            token: Deployed = getattr(self.deposits, kind)
            assert token.call("balanceOf", self.deposits.receiver) == self.received[kind]
            for uuid in UUIDS[:3]:
                balance = token.call("balanceOf", self.deposits.address(uuid))
                assert balance == self.balances[uuid, kind]


def _error_of(act: Callable[[], object]) -> str | None:
    try:
        act()
    except Reverted as error:
        return str(error.args[0])
    return None


@pytest.mark.full
@pytest.mark.timeout(0)
def test_every_history_moves_money_only_to_the_receiver(deposits: Deposits) -> None:
    profile = settings(
        max_examples=500 if LONG else 20,
        stateful_step_count=50 if LONG else 20,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )
    history = type("Staged", (History,), {"deposits": deposits})
    run_state_machine_as_test(history, settings=profile)
