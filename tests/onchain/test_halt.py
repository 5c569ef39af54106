"""If a final block changes, the chain is halted until an operator resumes it."""

import pytest

from payintent.chains.operations import ResumeChain
from payintent.core.errors import ErrorCode, RefusedError
from payintent.merchants.operations import SetMerchantProfile
from tests.support.chain_refunds import RefundWorld
from tests.support.onchain import ChainWorld
from tests.support.world import Api

pytestmark = pytest.mark.full


async def halt(ground: ChainWorld) -> ChainWorld:
    """Revert a block that was read as final."""
    await ground.mine(6)
    await ground.turn()
    await ground.reorg(5)
    await ground.mine(1)
    await ground.turn()
    return ground


async def test_a_reorg_below_finality_halts_the_chain_and_keeps_it_halted(
    ground: ChainWorld, api: Api
) -> None:
    payment, session = await ground.bill("USDT")
    await ground.turn()
    assert (await api.send("GET", "/v1/chains/native")).json["status"] == "active"
    await halt(ground)
    cursor = await ground.cursor()
    assert cursor.halted is not None
    assert (await api.send("GET", "/v1/chains/native")).json["status"] == "halted"
    assert not (await ground.view(session))["payable"]
    await ground.pay(session)
    await ground.final()
    await ground.final()
    assert await ground.cursor() == cursor
    assert await ground.status(payment) == "PROCESSING"
    assert await ground.dispositions() == []


async def test_a_halted_chain_is_not_offered(ground: ChainWorld, api: Api) -> None:
    payment, _ = await ground.bill("USDT")
    path = f"/v1/checkout/{payment.checkout_id}/quotes"
    offers = (await api.send("GET", path)).json["quotes"]
    assert {quote.get("chain") for quote in offers} == {"native", None}
    await halt(ground)
    offers = (await api.send("GET", path)).json["quotes"]
    assert {quote.get("chain") for quote in offers} == {None}
    new_payment = await ground.world.create(currency="USD")
    with pytest.raises(RefusedError) as refused:
        await ground.world.select(new_payment, ground.methods["USDT"])
    assert refused.value.code is ErrorCode.PG_NOT_AVAILABLE


async def test_a_resumed_chain_processes_payments_made_during_the_halt(ground: ChainWorld) -> None:
    payment, session = await ground.bill("USDT")
    stray, _ = await ground.bill("USDT")
    await ground.turn()
    before = (await ground.cursor()).block
    await halt(ground)
    await ground.pay(session)
    await ground.mine(3)
    await ground.world.perform(ResumeChain(chain="native", block=before))
    await ground.turn()
    assert await ground.status(payment) == "PAID"
    assert await ground.status(stray) == "PROCESSING"
    assert (await ground.cursor()).halted is None
    await ground.final()
    assert await ground.dispositions() == ["credited"]


async def test_a_log_that_moved_to_a_different_block_is_not_refunded_automatically(
    ground: ChainWorld,
) -> None:
    """The log has a new position in its new block, so it is classified again."""
    world = ground.world
    await world.perform(SetMerchantProfile(merchant_id=world.merchant_id, auto_refund=True))
    payment, session = await ground.bill("USDT")
    await ground.turn()
    before = (await ground.cursor()).block
    await ground.pay(session)
    await ground.final()
    await world.rows("UPDATE chain_receipt SET log_index = log_index + 9, block_hash = sha256('')")
    await world.rows(
        "UPDATE capture SET reference = reference || '0'"
    )  # the reference contains the position too
    await halt(ground)
    await world.perform(ResumeChain(chain="native", block=before))
    await ground.final()
    assert await ground.status(payment) == "PAID"
    assert await ground.cases() == ["DOUBLE_PAYMENT"]
    assert await world.rows("SELECT FROM refund") == []
    await ground.pay_otherwise(session, amount=10**18)  # a real second payment
    await ground.final()
    assert await ground.cases() == ["DOUBLE_PAYMENT"] * 2
    assert len(await world.rows("SELECT FROM refund")) == 1


async def test_a_refund_waits_while_its_chain_is_halted(refunding: RefundWorld) -> None:
    payment, _ = await refunding.paid()
    await refunding.ground.turn()
    await halt(refunding.ground)
    refund = await refunding.ask(payment)
    await refunding.turn()
    assert await refunding.read_state(refund) == ("PENDING", "queued")
    assert refunding.signer.sent == [], "the payment may be reverted"
    await refunding.ground.world.perform(ResumeChain(chain="native"))
    await refunding.turn()
    await refunding.ground.final()
    assert await refunding.read_state(refund) == ("SUCCEEDED", "ended")


async def test_a_chain_resumes_at_its_cursor_by_default(
    ground: ChainWorld,
) -> None:
    await halt(ground)
    cursor = await ground.cursor()
    await ground.world.perform(ResumeChain(chain="native"))
    assert (await ground.cursor()).block == cursor.block
    await ground.final()
    assert (await ground.cursor()).block > cursor.block


async def test_a_chain_does_not_resume_beyond_its_cursor(ground: ChainWorld) -> None:
    payment, session = await ground.bill("USDT")
    await halt(ground)
    cursor = (await ground.cursor()).block
    await ground.pay(session)
    await ground.mine(3)
    resumed = await ground.world.perform(ResumeChain(chain="native", block=cursor + 100))
    assert resumed.block == cursor
    await ground.turn()
    assert await ground.status(payment) == "PAID"


async def test_a_payment_does_not_expire_while_its_chain_is_halted(ground: ChainWorld) -> None:
    payment, session = await ground.bill("USDT")
    await ground.turn()
    await ground.pay(session)
    await ground.turn()
    before = (await ground.cursor()).block
    await ground.mine(3)
    await ground.world.rows(
        "UPDATE chain_cursor SET hash = $1", bytes(32)
    )  # the stored block differs
    await ground.turn()
    assert (await ground.cursor()).halted is not None
    await ground.pass_time(3600)
    await ground.turn()
    assert await ground.status(payment) == "PROCESSING"
    await ground.world.perform(ResumeChain(chain="native", block=before))
    await ground.turn()
    assert await ground.status(payment) == "PAID"
