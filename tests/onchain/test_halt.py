"""If a final block changes, the chain is halted until an operator resumes it."""

import pytest

from payintent.chains.operations import ResumeChain
from payintent.core.errors import ErrorCode, RefusedError
from payintent.merchants.operations import SetMerchantProfile
from tests.support.onchain import ChainWorld
from tests.support.refunding import RefundWorld
from tests.support.world import Api

pytestmark = pytest.mark.full


async def halted(ground: ChainWorld) -> ChainWorld:
    """Revert a block that was read as final."""
    await ground.mine(6)
    await ground.turn()
    await ground.reorg(5)
    await ground.mine(1)
    await ground.turn()
    return ground


async def test_a_reorg_below_finality_halts_the_chain_and_it_stays_halted(
    ground: ChainWorld, api: Api
) -> None:
    payment, session = await ground.bill("USDT")
    await ground.turn()
    assert (await api.send("GET", "/v1/chains/native")).json["status"] == "active"
    await halted(ground)
    stood = await ground.cursor()
    assert stood.halted is not None
    assert (await api.send("GET", "/v1/chains/native")).json["status"] == "halted"
    assert not (await ground.view(session))["payable"]
    await ground.pay(session)
    await ground.final()
    await ground.final()
    assert await ground.cursor() == stood
    assert await ground.status(payment) == "PROCESSING"
    assert await ground.dispositions() == []


async def test_a_halted_chain_is_offered_to_nobody(ground: ChainWorld, api: Api) -> None:
    payment, _ = await ground.bill("USDT")
    quotes = f"/v1/checkout/{payment.checkout_id}/quotes"
    offered = (await api.send("GET", quotes)).json["quotes"]
    assert {one.get("chain") for one in offered} == {"native", None}
    await halted(ground)
    offered = (await api.send("GET", quotes)).json["quotes"]
    assert {one.get("chain") for one in offered} == {None}
    fresh = await ground.world.create(currency="USD")
    with pytest.raises(RefusedError) as refused:
        await ground.world.select(fresh, ground.methods["USDT"])
    assert refused.value.code is ErrorCode.PG_NOT_AVAILABLE


async def test_a_person_lets_the_chain_go_on_and_nothing_is_lost(ground: ChainWorld) -> None:
    payment, session = await ground.bill("USDT")
    stray, _ = await ground.bill("USDT")
    await ground.turn()
    before = (await ground.cursor()).block
    await halted(ground)
    await ground.pay(session)
    await ground.mine(3)
    await ground.world.perform(ResumeChain(chain="native", block=before))
    await ground.turn()
    assert await ground.status(payment) == "PAID"
    assert await ground.status(stray) == "PROCESSING"
    assert (await ground.cursor()).halted is None
    await ground.final()
    assert await ground.dispositions() == ["credited"]


async def test_what_has_moved_to_another_block_is_not_given_back_as_if_it_came_twice(
    ground: ChainWorld,
) -> None:
    """Its log has a new position in its new block, so it is judged again."""
    world = ground.world
    await world.perform(SetMerchantProfile(merchant_id=world.merchant_id, auto_refund=True))
    payment, session = await ground.bill("USDT")
    await ground.turn()
    before = (await ground.cursor()).block
    await ground.pay(session)
    await ground.final()
    await world.rows("UPDATE chain_receipt SET log_index = log_index + 9, block_hash = sha256('')")
    await world.rows("UPDATE capture SET reference = reference || '0'")  # which has the place too
    await halted(ground)
    await world.perform(ResumeChain(chain="native", block=before))
    await ground.final()
    assert await ground.status(payment) == "PAID"
    assert await ground.cases() == ["DOUBLE_PAYMENT"]
    assert await world.rows("SELECT FROM refund") == []
    await ground.pay_otherwise(session, amount=10**18)  # this comes a second time
    await ground.final()
    assert await ground.cases() == ["DOUBLE_PAYMENT"] * 2
    assert len(await world.rows("SELECT FROM refund")) == 1


async def test_a_refund_waits_while_its_chain_is_halted(refunding: RefundWorld) -> None:
    payment, _ = await refunding.paid()
    await refunding.ground.turn()
    await halted(refunding.ground)
    refund = await refunding.ask(payment)
    await refunding.turn()
    assert await refunding.stands(refund) == ("PENDING", "queued")
    assert refunding.signer.sent == [], "what was paid may be undone"
    await refunding.ground.world.perform(ResumeChain(chain="native"))
    await refunding.turn()
    await refunding.ground.final()
    assert await refunding.stands(refund) == ("SUCCEEDED", "ended")


async def test_a_chain_goes_on_from_where_it_stood_if_nothing_else_is_said(
    ground: ChainWorld,
) -> None:
    await halted(ground)
    stood = await ground.cursor()
    await ground.world.perform(ResumeChain(chain="native"))
    assert (await ground.cursor()).block == stood.block
    await ground.final()
    assert (await ground.cursor()).block > stood.block


async def test_a_chain_goes_on_from_no_block_that_was_not_read(ground: ChainWorld) -> None:
    payment, session = await ground.bill("USDT")
    await halted(ground)
    stood = (await ground.cursor()).block
    await ground.pay(session)
    await ground.mine(3)
    resumed = await ground.world.perform(ResumeChain(chain="native", block=stood + 100))
    assert resumed.block == stood
    await ground.turn()
    assert await ground.status(payment) == "PAID"


async def test_a_payment_waits_out_a_halted_chain(ground: ChainWorld) -> None:
    payment, session = await ground.bill("USDT")
    await ground.turn()
    await ground.pay(session)
    await ground.turn()
    before = (await ground.cursor()).block
    await ground.mine(3)
    await ground.world.rows("UPDATE chain_cursor SET hash = $1", bytes(32))  # we read another one
    await ground.turn()
    assert (await ground.cursor()).halted is not None
    await ground.pass_time(3600)
    await ground.turn()
    assert await ground.status(payment) == "PROCESSING"
    await ground.world.perform(ResumeChain(chain="native", block=before))
    await ground.turn()
    assert await ground.status(payment) == "PAID"
