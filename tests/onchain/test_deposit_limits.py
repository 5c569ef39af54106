"""The watcher's searches respect the endpoints' limits on blocks and topics."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from tests.support.deposits import TOTAL, DepositGround, add_factory
from tests.support.fault_rpc import Faults, FaultyNode
from tests.support.onchain import chain_world
from tests.support.world import World

pytestmark = pytest.mark.full

OPEN = 10_000
Limited = tuple[DepositGround, FaultyNode]

_SESSIONS = """
INSERT INTO session (id, payment_id, account_id, payment_method_id, provider, provider_name, kind,
    label, country, chain, token, currency, amount, fee_mode, fee_rate, fee_amount, estimated_tax,
    total_amount, total_minor, life, reference, inquire_at, token_address)
SELECT gen_random_uuid(), s.payment_id, s.account_id, s.payment_method_id, s.provider,
    s.provider_name, s.kind, s.label, s.country, s.chain, s.token, s.currency, s.amount, s.fee_mode,
    s.fee_rate, s.fee_amount, s.estimated_tax, s.total_amount, s.total_minor, s.life,
    '0x' || md5(n::text), s.inquire_at, s.token_address
FROM session s, generate_series(2, $1::int) AS n
"""
_ADDRESSES = """
INSERT INTO deposit_address (session_id, account_id, uuid, address, from_block, covered)
SELECT s.id, s.account_id, decode(substr(s.reference, 3), 'hex'),
    substr(sha256(s.reference::bytea), 1, 20), a.from_block, true
FROM session s, deposit_address a
WHERE s.id <> a.session_id
"""


@pytest.fixture
async def limited(world: World, chain_url: str) -> AsyncIterator[Limited]:
    """Deposits on a chain that is read through an endpoint with limits."""
    async with AsyncExitStack() as stack:
        node = await stack.enter_async_context(FaultyNode(chain_url))
        ground = await stack.enter_async_context(
            chain_world(world, chain_url, endpoints=[node.url])
        )
        yield await add_factory(ground, "USDT"), node


@pytest.mark.parametrize(
    "text",
    [
        "exceed max addresses or topics per search position",
        "query exceeds the maximum of 3 addresses or topics per search position",
        "limit exceeded",
    ],
    ids=["geth", "erigon", "other provider"],
)
async def test_searches_respect_the_limits_of_the_endpoint(limited: Limited, text: str) -> None:
    deposits, node = limited
    bills = [await deposits.bill() for _ in range(8)]
    await deposits.ground.turn()
    node.faults = Faults(topics_max=3, topics_text=text, range_max=4)
    await deposits.ground.chain.ask("evm_setAutomine", False)
    hashes = [await deposits.post_transfer(session) for _, session in bills]
    await deposits.ground.mine(1)  # all in one block, which is also searched alone
    for tx_hash in hashes:
        await deposits.ground.chain.receipt(tx_hash)
    await deposits.ground.chain.ask("evm_setAutomine", True)
    for blocks in (9, 3):
        await deposits.ground.final(blocks)
    assert [await deposits.ground.status(payment) for payment, _ in bills] == 8 * ["PAID"]
    assert node.done["refused_topics"] > 0
    assert node.done["refused"] > 0


async def test_a_pending_transfer_beyond_the_range_of_the_endpoint_is_detected(
    limited: Limited,
) -> None:
    deposits, node = limited
    _, session = await deposits.bill()
    await deposits.ground.final()
    node.faults = Faults(range_max=1)
    await deposits.ground.mine(1)
    await deposits.transfer(session)  # in the second block after the final blocks
    await deposits.ground.turn()
    rows = await deposits.ground.world.rows("SELECT gone_at FROM chain_sighting")
    assert [row["gone_at"] for row in rows] == [None]


async def test_polls_continue_during_a_recheck_with_many_small_searches(
    limited: Limited,
) -> None:
    deposits, node = limited
    ground = deposits.ground
    omitted_payment, omitted_session = await deposits.bill()
    second_payment, second_session = await deposits.bill()
    await ground.final(150)
    node.faults = Faults(drop_logs=1.0)
    await deposits.transfer(omitted_session)
    await ground.final(50)
    assert node.done["dropped"]

    node.faults = Faults(range_max=1)
    await ground.world.rows("UPDATE chain_cursor SET looked_at = '-infinity'")
    before = node.asked["eth_getLogs"]
    await ground.turn()
    assert 0 < node.asked["eth_getLogs"] - before < 100
    await deposits.transfer(second_session)
    await ground.final()
    assert await ground.status(second_payment) == "PAID"
    assert await ground.status(omitted_payment) == "PROCESSING"

    passes = 0
    while await ground.status(omitted_payment) != "PAID":
        passes += 1
        assert passes < 20
        await ground.turn()
    while (await ground.world.rows("SELECT look_until FROM chain_cursor"))[0]["look_until"]:
        passes += 1
        assert passes < 20
        await ground.turn()
    assert passes > 3


async def test_ten_thousand_addresses_take_twenty_searches_per_poll(limited: Limited) -> None:
    deposits, node = limited
    payment, session = await deposits.bill()
    await deposits.ground.final()
    node.faults = Faults(topics_max=1_000)
    await deposits.ground.final()
    before = node.asked["eth_getLogs"]
    await deposits.ground.final()
    base_count = node.asked["eth_getLogs"] - before  # with a single address

    world = deposits.ground.world
    await world.rows(_SESSIONS, OPEN)
    await world.rows(_ADDRESSES)
    [row] = await world.rows("SELECT count(*) AS count FROM deposit_address")
    assert row["count"] == OPEN
    before = node.asked["eth_getLogs"]
    await deposits.ground.final()
    assert node.asked["eth_getLogs"] - before == base_count - 1 + 20
    assert node.done["refused_topics"] == 0

    await deposits.transfer(session, TOTAL)
    await deposits.ground.final()
    assert await deposits.ground.status(payment) == "PAID"
