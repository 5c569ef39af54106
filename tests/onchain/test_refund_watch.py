"""A log counts as a refund only if it is final, from our sender, and has the exact amount."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from payintent.chains.operations import AddContract
from payintent.evm.event_logs import REFUNDED
from payintent.evm.refund_sender import RpcRefundSender
from payintent.evm.rpc import WRONG_RESPONSES
from payintent.onchain import refund_logs_store as refund_logs
from payintent.onchain.operations import SetChain
from payintent.onchain.settle_logs import REFUNDS
from payintent.onchain.watcher import LATE_LOGS
from payintent_sandbox.chains.deploy import PLANS, deploy
from tests.support.chain_refunds import Mood, RefundWorld, refunding
from tests.support.fault_rpc import Faults, FaultyNode
from tests.support.onchain import ChainWorld, chain_world
from tests.support.world import World

pytestmark = pytest.mark.full

QUEUED = ("PENDING", "queued")
SENT = ("PENDING", "sent")
DONE = ("SUCCEEDED", "ended")
CENT = 10**16


class ForgingNode(FaultyNode):
    """A node that adds a refund to its search results."""

    forged_log: dict[str, Any] | None = None

    async def _forged(
        self, search: dict[str, Any], logs: list[dict[str, Any]], head: int
    ) -> dict[str, Any]:
        forged = await super()._forged(search, logs, head)
        return {**forged, **(self.forged_log or {})}


@pytest.fixture
async def pair(
    world: World, chain_url: str, refund_senders: dict[str, RpcRefundSender]
) -> AsyncIterator[tuple[RefundWorld, ForgingNode, FaultyNode]]:
    """Two endpoints of a chain; the first may forge logs."""
    async with AsyncExitStack() as stack:
        forger = await stack.enter_async_context(ForgingNode(chain_url))
        honest = await stack.enter_async_context(FaultyNode(chain_url))
        ground = await stack.enter_async_context(
            chain_world(world, chain_url, endpoints=[forger.url, honest.url])
        )
        await ground.allow()
        yield await stack.enter_async_context(refunding(ground, refund_senders)), forger, honest


def count_logs(disposition: str) -> float:
    return REFUNDS.labels("native", disposition)._value.get()


async def assert_still_sendable(world: RefundWorld, payment: Any, refund: Any) -> None:
    """Assert that the refund is unchanged and can still be sent."""
    assert await world.read_state(refund) == QUEUED
    assert await world.ground.status(payment) == "PAID"
    await world.turn()
    await world.ground.final()
    assert await world.read_state(refund) == DONE
    assert await world.ground.status(payment) == "REFUNDED"


async def test_a_refund_log_invented_by_one_endpoint_does_not_settle_the_refund(
    pair: tuple[RefundWorld, ForgingNode, FaultyNode],
) -> None:
    world, forger, _ = pair
    payment, session = await world.paid()
    refund = await world.ask(payment)
    forger.forged_log = {
        "topics": [
            f"0x{REFUNDED.hex()}",
            f"0x{(session.reference or '')[2:]}{32 * '0'}",
            f"0x{refund.id.hex}{32 * '0'}",
            f"0x{64 * '0'}",
        ],
        "data": f"0x{refund.amount_minor:064x}"
        f"{24 * '0'}{world.ground.payer[2:].lower()}{24 * '0'}{world.refunder[2:].lower()}",
    }
    forger.faults = Faults(forge_logs=1.0)
    before = WRONG_RESPONSES.labels("native", "unproven_log")._value.get()
    await world.ground.final()
    await world.ground.final()
    assert forger.done["forged"]
    assert WRONG_RESPONSES.labels("native", "unproven_log")._value.get() > before
    assert await world.logs() == []
    await assert_still_sendable(world, payment, refund)


async def test_a_refund_omitted_by_every_endpoint_is_found_by_the_recheck(
    pair: tuple[RefundWorld, ForgingNode, FaultyNode],
) -> None:
    world, *nodes = pair
    payment, _ = await world.paid()
    refund = await world.ask(payment)
    await world.turn()
    for node in nodes:
        node.faults = Faults(drop_logs=1.0)
    await world.ground.final()
    await world.turn()
    assert await world.read_state(refund) == SENT
    for node in nodes:
        node.faults = Faults()
    before = LATE_LOGS.labels("native")._value.get()
    await world.ground.move_clock(601)
    await world.ground.catch_up()
    assert await world.read_state(refund) == DONE
    assert LATE_LOGS.labels("native")._value.get() == before + 1
    assert await world.ground.status(payment) == "REFUNDED"


async def test_a_refund_log_from_a_foreign_sender_does_not_settle_the_refund(
    refunding: RefundWorld,
) -> None:
    payment, _ = await refunding.paid()
    refund = await refunding.ask(payment)
    refunding.signer.mood = Mood.SILENT
    await refunding.turn()
    refunding.signer.mood = Mood.SENDS
    before, stranger = count_logs("foreign"), (await refunding.accounts())[8]
    await refunding.by_hand(refund.id, refund.amount_minor, sender=stranger)
    await refunding.ground.final()
    assert await refunding.logs() == ["foreign"]
    assert count_logs("foreign") == before + 1
    assert await refunding.ground.cases() == []
    await refunding.turn()
    assert await refunding.read_state(refund) == SENT
    await refunding.ground.move_clock(600)
    await refunding.turn()
    await assert_still_sendable(refunding, payment, refund)


async def test_a_refund_is_settled_when_its_sender_is_added_as_a_refunder(
    refunding: RefundWorld,
) -> None:
    payment, _ = await refunding.paid()
    refund = await refunding.ask(payment)
    sender = (await refunding.accounts())[8]
    await refunding.by_hand(refund.id, refund.amount_minor, sender=sender)
    await refunding.ground.final()
    assert await refunding.read_state(refund) == QUEUED
    await refunding.ground.world.perform(SetChain(chain="native", refunder=sender))
    await refunding.ground.catch_up()
    assert await refunding.read_state(refund) == DONE
    assert await refunding.logs() == ["settles"]


async def test_a_log_of_an_unknown_refund_is_only_counted(refunding: RefundWorld) -> None:
    before = count_logs("unknown")
    await refunding.by_hand(refunding.ground.world.id_generator.new_id(), CENT)
    await refunding.ground.final()
    assert await refunding.logs() == ["unknown"]
    assert count_logs("unknown") == before + 1
    assert await refunding.ground.cases() == []


@pytest.mark.parametrize("wrong", ["amount", "destination", "token", "contract"])
async def test_a_refund_log_that_differs_from_the_request_opens_a_case(
    refunding: RefundWorld, wrong: str
) -> None:
    ground = refunding.ground
    payment, _ = await refunding.paid()
    refund = await refunding.ask(payment)
    changes: dict[str, Any] = {}
    amount = refund.amount_minor
    if wrong == "amount":
        amount -= 1
    elif wrong == "destination":
        changes["to"] = "0x" + 40 * "9"
    elif wrong == "token":
        changes["token"] = "USDT"
    else:
        changes["contract"] = await add_second_contract(ground)
    before = count_logs("mismatched")
    await refunding.by_hand(refund.id, amount, **changes)
    await ground.final()
    assert await refunding.logs() == ["mismatched"]
    assert count_logs("mismatched") == before + 1
    assert await ground.world.cases(payment) == ["RECONCILIATION"]
    assert await refunding.read_state(refund) == QUEUED
    assert await ground.status(payment) == "PAID"
    await refunding.turn()
    await ground.final()
    # A contract accepts a refund id once for each sender, so this refund now needs manual review.
    assert await refunding.read_state(refund) == (DONE if wrong == "contract" else SENT)


async def add_second_contract(ground: ChainWorld) -> str:
    """Add a second contract that accepts the same coin."""
    deployment = await deploy(ground.chain, PLANS["native"])
    await ground.world.perform(
        AddContract(
            chain="native",
            address=deployment.contract_address,
            receiver=deployment.receiver,
            deployed_block=deployment.deployed_block,
        )
    )
    return deployment.contract_address


async def test_a_refund_sent_by_two_of_our_accounts_opens_a_case(refunding: RefundWorld) -> None:
    payment, _ = await refunding.paid()
    refund = await refunding.ask(payment)
    before, second_refunder = count_logs("twice"), (await refunding.accounts())[8]
    await refunding.ground.world.perform(SetChain(chain="native", refunder=second_refunder))
    for sender in (refunding.refunder, second_refunder):
        await refunding.by_hand(refund.id, refund.amount_minor, sender=sender)
    await refunding.ground.final()
    assert await refunding.read_state(refund) == DONE
    assert await refunding.logs() == ["settles", "twice"]
    assert count_logs("twice") == before + 1
    assert await refunding.ground.world.cases(payment) == ["RECONCILIATION"]
    assert await refunding.ground.status(payment) == "REFUNDED"


async def test_a_payment_and_a_refund_in_the_same_block_both_count(refunding: RefundWorld) -> None:
    ground = refunding.ground
    payment, _ = await refunding.paid()
    refund = await refunding.ask(payment)
    second_payment, session = await ground.bill("NATIVED")
    await ground.chain.ask("evm_setAutomine", False)
    call = ground.call(session)
    transaction = {"from": ground.payer, "gas": hex(3_000_000)} | call
    await ground.chain.ask("eth_sendTransaction", transaction)
    await refunding.turn()
    await ground.chain.ask("evm_setAutomine", True)
    await ground.mine(1)
    await ground.final()
    assert await refunding.read_state(refund) == DONE
    assert [
        await ground.status(billed_payment) for billed_payment in (payment, second_payment)
    ] == ["REFUNDED", "PAID"]


async def test_an_unclassified_refund_log_is_settled_by_the_submitter(
    refunding: RefundWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watcher may be killed between storing and classifying the log."""
    payment, _ = await refunding.paid()
    refund = await refunding.ask(payment)
    await refunding.turn()
    await refunding.ground.mine(3)

    async def list_nothing(*_: object) -> list[Any]:
        return []

    with monkeypatch.context() as patch:
        patch.setattr(refund_logs, "list_unclassified", list_nothing)
        await refunding.ground.catch_up()
    assert await refunding.logs() == [None]
    assert await refunding.read_state(refund) == SENT
    await refunding.turn()
    assert await refunding.read_state(refund) == DONE
    await refunding.ground.catch_up()
    assert await refunding.logs() == ["settles"]
    assert await refunding.ground.status(payment) == "REFUNDED"
    assert await refunding.ground.cases() == []


async def test_refunds_settle_while_new_refunds_are_requested_and_two_watchers_run(
    refunding: RefundWorld,
) -> None:
    payments = [(await refunding.paid())[0] for _ in range(4)]
    first = [await refunding.ask(payment, "1.00") for payment in payments]
    await refunding.turn()
    await refunding.ground.mine(3)
    await asyncio.gather(
        refunding.ground.catch_up(),
        refunding.ground.catch_up(),
        *(refunding.ask(payment, "2.00") for payment in reversed(payments)),
    )
    await refunding.ground.catch_up()
    assert [await refunding.read_state(refund) for refund in first] == [DONE] * 4
    await refunding.turn()
    await refunding.ground.final()
    assert await refunding.logs() == ["settles"] * 8
    for payment in payments:
        [row] = await refunding.ground.world.rows(
            "SELECT refunded_amount, reserved_amount FROM payment WHERE id = $1", payment.id
        )
        assert (row["refunded_amount"], row["reserved_amount"]) == (3, 0)
