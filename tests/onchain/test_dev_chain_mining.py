"""A development chain mines blocks if one of its sessions has not ended."""

from payintent.chains import store as chain_store
from payintent_sandbox.chains.registration import ChainRegistration
from tests.support.onchain import ChainWorld
from tests.support.world import ACTOR


async def test_a_chain_is_busy_until_its_sessions_have_ended(ground: ChainWorld) -> None:
    registration = ChainRegistration(ground.world.service, ACTOR)
    assert not await registration.busy("native")
    payment, session = await ground.bill("USDT")
    assert await registration.busy("native")
    assert not await registration.busy("bsc")
    await ground.pay(session)
    await ground.final()
    assert await ground.status(payment) == "PAID"
    assert not await registration.busy("native")


async def test_a_halted_chain_is_not_busy(ground: ChainWorld) -> None:
    registration = ChainRegistration(ground.world.service, ACTOR)
    await ground.bill("USDT")
    await chain_store.halt(ground.world.database, "native", "a person must look")
    assert not await registration.busy("native")
