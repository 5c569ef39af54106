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
from tests.support.fault_rpc import Faults, FaultyNode
from tests.support.onchain import ChainWorld, chain_world
from tests.support.refunding import Mood, RefundWorld, refunding
from tests.support.world import World

pytestmark = pytest.mark.full

WAITS = ("PENDING", "queued")
SENT = ("PENDING", "sent")
DONE = ("SUCCEEDED", "ended")
CENT = 10**16


class Liar(FaultyNode):
    """A node whose searches return a refund that its chain does not have."""

    lie: dict[str, Any] | None = None

    async def _forged(
        self, search: dict[str, Any], logs: list[dict[str, Any]], head: int
    ) -> dict[str, Any]:
        forged = await super()._forged(search, logs, head)
        return {**forged, **(self.lie or {})}


@pytest.fixture
async def pair(
    world: World, chain_url: str, refund_senders: dict[str, RpcRefundSender]
) -> AsyncIterator[tuple[RefundWorld, Liar, FaultyNode]]:
    """Two endpoints of a chain, of which the first may return false data."""
    async with AsyncExitStack() as stack:
        liar = await stack.enter_async_context(Liar(chain_url))
        honest = await stack.enter_async_context(FaultyNode(chain_url))
        ground = await stack.enter_async_context(
            chain_world(world, chain_url, endpoints=[liar.url, honest.url])
        )
        await ground.allow()
        yield await stack.enter_async_context(refunding(ground, refund_senders)), liar, honest


def counted(disposition: str) -> float:
    return REFUNDS.labels("native", disposition)._value.get()


async def still_ours_to_send(world: RefundWorld, payment: Any, refund: Any) -> None:
    """Nothing has moved, and the refund can still be sent as accepted."""
    assert await world.stands(refund) == WAITS
    assert await world.ground.status(payment) == "PAID"
    await world.turn()
    await world.ground.final()
    assert await world.stands(refund) == DONE
    assert await world.ground.status(payment) == "REFUNDED"


async def test_a_refund_that_one_endpoint_invents_settles_nothing(
    pair: tuple[RefundWorld, Liar, FaultyNode],
) -> None:
    world, liar, _ = pair
    payment, session = await world.paid()
    refund = await world.ask(payment)
    liar.lie = {
        "topics": [
            f"0x{REFUNDED.hex()}",
            f"0x{(session.reference or '')[2:]}{32 * '0'}",
            f"0x{refund.id.hex}{32 * '0'}",
            f"0x{64 * '0'}",
        ],
        "data": f"0x{refund.amount_minor:064x}"
        f"{24 * '0'}{world.ground.payer[2:].lower()}{24 * '0'}{world.refunder[2:].lower()}",
    }
    liar.faults = Faults(forge_logs=1.0)
    before = WRONG_RESPONSES.labels("native", "unproven_log")._value.get()
    await world.ground.final()
    await world.ground.final()
    assert liar.done["forged"]
    assert WRONG_RESPONSES.labels("native", "unproven_log")._value.get() > before
    assert await world.logs() == []
    await still_ours_to_send(world, payment, refund)


async def test_a_refund_that_everybody_left_out_is_found_by_the_second_look(
    pair: tuple[RefundWorld, Liar, FaultyNode],
) -> None:
    world, *nodes = pair
    payment, _ = await world.paid()
    refund = await world.ask(payment)
    await world.turn()
    for node in nodes:
        node.faults = Faults(drop_logs=1.0)
    await world.ground.final()
    await world.turn()
    assert await world.stands(refund) == SENT
    for node in nodes:
        node.faults = Faults()
    before = LATE_LOGS.labels("native")._value.get()
    await world.ground.move_clock(601)
    await world.ground.look()
    assert await world.stands(refund) == DONE
    assert LATE_LOGS.labels("native")._value.get() == before + 1
    assert await world.ground.status(payment) == "REFUNDED"


async def test_a_stranger_who_writes_our_refunds_id_settles_nothing(
    refunding: RefundWorld,
) -> None:
    payment, _ = await refunding.paid()
    refund = await refunding.ask(payment)
    refunding.signer.mood = Mood.SILENT
    await refunding.turn()
    refunding.signer.mood = Mood.SENDS
    before, stranger = counted("foreign"), (await refunding.accounts())[8]
    await refunding.by_hand(refund.id, refund.amount_minor, sender=stranger)
    await refunding.ground.final()
    assert await refunding.logs() == ["foreign"]
    assert counted("foreign") == before + 1
    assert await refunding.ground.cases() == []
    await refunding.turn()
    assert await refunding.stands(refund) == SENT
    await refunding.ground.move_clock(600)
    await refunding.turn()
    await still_ours_to_send(refunding, payment, refund)


async def test_a_refund_by_an_account_that_is_listed_later_counts_from_then_on(
    refunding: RefundWorld,
) -> None:
    payment, _ = await refunding.paid()
    refund = await refunding.ask(payment)
    sender = (await refunding.accounts())[8]
    await refunding.by_hand(refund.id, refund.amount_minor, sender=sender)
    await refunding.ground.final()
    assert await refunding.stands(refund) == WAITS
    await refunding.ground.world.perform(SetChain(chain="native", refunder=sender))
    await refunding.ground.look()
    assert await refunding.stands(refund) == DONE
    assert await refunding.logs() == ["settles"]


async def test_a_log_of_an_unknown_refund_is_only_counted(refunding: RefundWorld) -> None:
    before = counted("unknown")
    await refunding.by_hand(refunding.ground.world.id_generator.new_id(), CENT)
    await refunding.ground.final()
    assert await refunding.logs() == ["unknown"]
    assert counted("unknown") == before + 1
    assert await refunding.ground.cases() == []


@pytest.mark.parametrize("wrong", ["amount", "destination", "token", "contract"])
async def test_a_refund_of_ours_that_is_not_what_was_promised_is_a_case(
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
        changes["contract"] = await another_contract(ground)
    before = counted("mismatched")
    await refunding.by_hand(refund.id, amount, **changes)
    await ground.final()
    assert await refunding.logs() == ["mismatched"]
    assert counted("mismatched") == before + 1
    assert await ground.world.cases(payment) == ["RECONCILIATION"]
    assert await refunding.stands(refund) == WAITS
    assert await ground.status(payment) == "PAID"
    await refunding.turn()
    await ground.final()
    # The contract does it once for each sender, so that it now waits for a person.
    assert await refunding.stands(refund) == (DONE if wrong == "contract" else SENT)


async def another_contract(ground: ChainWorld) -> str:
    """Add another contract of ours, which accepts the same coin."""
    other = await deploy(ground.chain, PLANS["native"])
    await ground.world.perform(
        AddContract(
            chain="native",
            address=other.contract_address,
            receiver=other.receiver,
            deployed_block=other.deployed_block,
        )
    )
    return other.contract_address


async def test_money_that_two_of_our_accounts_gave_back_is_a_case(refunding: RefundWorld) -> None:
    payment, _ = await refunding.paid()
    refund = await refunding.ask(payment)
    before, other = counted("twice"), (await refunding.accounts())[8]
    await refunding.ground.world.perform(SetChain(chain="native", refunder=other))
    for sender in (refunding.refunder, other):
        await refunding.by_hand(refund.id, refund.amount_minor, sender=sender)
    await refunding.ground.final()
    assert await refunding.stands(refund) == DONE
    assert await refunding.logs() == ["settles", "twice"]
    assert counted("twice") == before + 1
    assert await refunding.ground.world.cases(payment) == ["RECONCILIATION"]
    assert await refunding.ground.status(payment) == "REFUNDED"


async def test_a_payment_and_a_refund_in_one_block_both_count(refunding: RefundWorld) -> None:
    ground = refunding.ground
    payment, _ = await refunding.paid()
    refund = await refunding.ask(payment)
    later, session = await ground.bill("NATIVED")
    await ground.chain.ask("evm_setAutomine", False)
    call = ground.call(session)
    asked = {"from": ground.payer, "gas": hex(3_000_000)} | call
    await ground.chain.ask("eth_sendTransaction", asked)
    await refunding.turn()
    await ground.chain.ask("evm_setAutomine", True)
    await ground.mine(1)
    await ground.final()
    assert await refunding.stands(refund) == DONE
    assert [await ground.status(one) for one in (payment, later)] == ["REFUNDED", "PAID"]


async def test_what_was_kept_and_not_judged_is_settled_by_whoever_comes_first(
    refunding: RefundWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A watcher that is killed between its transactions leaves the refund to the submitter."""
    payment, _ = await refunding.paid()
    refund = await refunding.ask(payment)
    await refunding.turn()
    await refunding.ground.mine(3)

    async def died(*_: object) -> list[Any]:
        return []

    with monkeypatch.context() as patch:
        patch.setattr(refund_logs, "list_unclassified", died)
        await refunding.ground.look()
    assert await refunding.logs() == [None]
    assert await refunding.stands(refund) == SENT
    await refunding.turn()
    assert await refunding.stands(refund) == DONE
    await refunding.ground.look()
    assert await refunding.logs() == ["settles"]
    assert await refunding.ground.status(payment) == "REFUNDED"
    assert await refunding.ground.cases() == []


async def test_many_refunds_settle_while_others_are_asked_for_and_watched_twice(
    refunding: RefundWorld,
) -> None:
    payments = [(await refunding.paid())[0] for _ in range(4)]
    first = [await refunding.ask(one, "1.00") for one in payments]
    await refunding.turn()
    await refunding.ground.mine(3)
    await asyncio.gather(
        refunding.ground.look(),
        refunding.ground.look(),
        *(refunding.ask(one, "2.00") for one in reversed(payments)),
    )
    await refunding.ground.look()
    assert [await refunding.stands(one) for one in first] == [DONE] * 4
    await refunding.turn()
    await refunding.ground.final()
    assert await refunding.logs() == ["settles"] * 8
    for one in payments:
        [row] = await refunding.ground.world.rows(
            "SELECT refunded_amount, reserved_amount FROM payment WHERE id = $1", one.id
        )
        assert (row["refunded_amount"], row["reserved_amount"]) == (3, 0)
