"""A development chain needs blocks while a session on it has not ended."""

from payintent.chains import store as chain_store
from payintent_sandbox.chains.registration import ChainRegistration
from tests.support.onchain import ChainWorld
from tests.support.world import ACTOR


async def test_blocks_are_waited_for_while_a_session_has_not_ended(ground: ChainWorld) -> None:
    offer = ChainRegistration(ground.world.service, ACTOR)
    assert not await offer.busy("native")
    payment, session = await ground.bill("USDT")
    assert await offer.busy("native")
    assert not await offer.busy("bsc")
    await ground.pay(session)
    await ground.final()
    assert await ground.status(payment) == "PAID"
    assert not await offer.busy("native")


async def test_nobody_waits_for_a_chain_that_has_halted(ground: ChainWorld) -> None:
    offer = ChainRegistration(ground.world.service, ACTOR)
    await ground.bill("USDT")
    await chain_store.halt(ground.world.database, "native", "a person must look")
    assert not await offer.busy("native")
