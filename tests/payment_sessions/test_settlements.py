"""The locks and writes of settlements: the lock order, and the currency of on-chain money."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from payintent.chains.operations import SetToken
from payintent.payments import sessions_store as session_store
from payintent.runtime.settings import Settings
from payintent.service import Service
from tests.callbacks.test_receive import selected, tell
from tests.support.contracts import (
    USDT,
    bill,
    contract_service,
    log_of,
    offer_tokens,
    record_final_logs,
)
from tests.support.fakes import FakeGateway, captured
from tests.support.race_staging import hold_transaction, wait_until_blocked
from tests.support.world import World, patient


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Allow transactions to wait for locks as long as a slow machine needs."""
    return patient(settings)


@pytest.fixture
async def service(settings: Settings, gateway: FakeGateway) -> AsyncIterator[Service]:
    async with contract_service(settings, gateway) as service:
        yield service


async def test_a_session_is_locked_before_a_capture_that_is_reported_again(world: World) -> None:
    payment, session_id = await selected(world)
    await tell(world, session_id)
    async with hold_transaction(world, lambda tx: session_store.lock(tx, session_id)) as first:
        again = asyncio.create_task(world.report(payment, session_id, captured(159000)))
        await wait_until_blocked(world, again)
        connection = await world.open_connection()
        free = await connection.fetch("SELECT FROM capture FOR UPDATE NOWAIT")
        await connection.close()
        assert len(free) == 1
        await first.commit()
        assert (await again).id == payment.id
    assert await world.cases(payment) == []


async def test_a_transfer_of_an_unknown_token_shows_the_token_address(world: World) -> None:
    methods = await offer_tokens(world)
    _, session = await bill(world, methods["USDT"])
    await record_final_logs(world, log_of(session, token=b"\x07" * 20))
    [capture] = await world.rows("SELECT currency FROM capture")
    assert capture["currency"] == f"0x{20 * '07'}"


async def test_a_transfer_of_a_token_address_shared_by_two_tokens_is_stored_once(
    world: World,
) -> None:
    methods = await offer_tokens(world, "ethereum")
    await world.perform(SetToken(chain="ethereum", symbol="USDT", address=USDT))
    # As stored before `chain set-token` rejected such an address.
    await world.rows(
        "INSERT INTO chain_token (chain, symbol, address, decimals) "
        "SELECT chain, 'USDC', address, decimals FROM chain_token "
        "WHERE chain = 'ethereum' AND symbol = 'USDT' "
        "ON CONFLICT (chain, symbol) DO UPDATE SET address = excluded.address"
    )
    payment, session = await bill(world, methods["USDT"])
    log = log_of(session, token=bytes.fromhex(USDT[2:]))
    await record_final_logs(world, log, chain="ethereum")
    [capture] = await world.rows("SELECT currency, credited FROM capture")
    assert dict(capture) == {"currency": "USDT", "credited": True}
    assert await world.status(payment) == "PAID"
