"""Deposits in the console: the pages of payments, chains and refunds."""

from collections.abc import AsyncIterator

import pytest

from payintent.chains.operations import SetToken
from payintent.core import ids
from payintent.core.access import Role
from payintent.evm.abi import to_checksum_address
from payintent.evm.deposits import derive_deposit_address, init_code_hash
from payintent.onchain import pending_deposits_store
from payintent.onchain.operations import SetChain
from payintent.onchain.pending_deposits_store import PendingDeposit
from payintent.payments.model import Session
from payintent.refunds.operations import RefundPayment
from payintent.runtime.settings import Settings
from payintent.service import Service
from tests.console.operator_browser import sign_in_as, words
from tests.support.contracts import (
    CONTRACT,
    FACTORY,
    FORWARDER,
    PAYER,
    RECEIVER,
    bill,
    contract_service,
    make_transfer,
    offer_deposits,
    record_deposit,
)
from tests.support.fakes import FakeGateway
from tests.support.onchain import pay_uuid
from tests.support.world import Api, World

pytestmark = pytest.mark.full

TOTAL = 25_500_000_000_000_000_000
SWEEP = "0x" + "5e" * 32
_SWEEP = """
    WITH sweep AS (
        INSERT INTO deposit_sweep (id, chain, account_id, uuid, session_id, token, currency,
            succeeded, amount, received, block, block_hash, tx_hash, log_index)
        SELECT gen_random_uuid(), chain, account_id, uuid, session_id, token, 'USDT', $2,
            CASE WHEN $2 THEN amount ELSE 0 END, CASE WHEN $2 THEN amount ELSE 0 END, block + 1,
            block_hash, $3, 0
        FROM chain_receipt
        WHERE tx_hash = $1
        RETURNING id
    )
    UPDATE chain_receipt SET deposit_sweep_id = sweep.id FROM sweep WHERE tx_hash = $1 AND $2
"""
_BATCH = """
    WITH batch AS (
        INSERT INTO sweep_batch (id, chain, account_id, token, sender, tx_hash, ended_at, result,
            gas_cost)
        SELECT gen_random_uuid(), chain, account_id, token, receiver, $2,
            CASE WHEN $3::text IS NOT NULL THEN clock() END, $3,
            CASE WHEN $3::text IS NOT NULL THEN 21000000000000 END
        FROM chain_receipt
        WHERE tx_hash = $1
        RETURNING id, token
    )
    INSERT INTO sweep_item (batch_id, session_id, token, ended)
    SELECT batch.id, r.session_id, batch.token, $3::text IS NOT NULL
    FROM batch, chain_receipt r
    WHERE r.tx_hash = $1
"""


@pytest.fixture
async def service(settings: Settings, gateway: FakeGateway) -> AsyncIterator[Service]:
    async with contract_service(settings, gateway) as service:
        yield service


@pytest.fixture
async def method(world: World) -> int:
    return await offer_deposits(world)


def address_of(session: Session) -> bytes:
    code_hash = init_code_hash(bytes.fromhex(FORWARDER[2:]))
    return derive_deposit_address(bytes.fromhex(FACTORY[2:]), code_hash, pay_uuid(session))


def checksum(address: str) -> str:
    return to_checksum_address(bytes.fromhex(address[2:]))


async def test_a_payment_shows_its_address_its_transfers_and_the_remainder(
    operator: Api, world: World, method: int
) -> None:
    payment, session = await bill(world, method)
    address = address_of(session)
    first = await record_deposit(world, session.id, TOTAL // 2)
    unsupported = await record_deposit(world, session.id, 7, CONTRACT)
    pending = PendingDeposit(session.id, make_transfer(address, TOTAL // 4))
    async with world.database.transaction() as tx:
        await pending_deposits_store.replace_pending(tx, "native", (0, 9), [address], [pending])
    visitor = await sign_in_as(operator, role=Role.VIEWER)
    path = f"/payments/{ids.format_id(ids.PAYMENT, payment.id)}"
    page = words(await visitor.get(path))
    assert f"Address {to_checksum_address(address)} on native" in page
    assert "Received 12.75 of 25.5 USDT, 6.375 USDT pending" in page
    assert "Remaining 6.375 USDT" in page
    assert f"final 0x{first.tx_hash.hex()}" in page
    assert f"7 {CONTRACT} final mismatch 0x{unsupported.tx_hash.hex()}" in page
    assert f"pending 0x{pending.log.tx_hash.hex()}" in page
    await record_deposit(world, session.id, TOTAL // 2)
    page = words(await visitor.get(path))
    assert f"counted 0x{first.tx_hash.hex()}" in page
    assert f"final mismatch 0x{unsupported.tx_hash.hex()}" not in page  # it has a case
    assert "not credited" in page


async def test_a_sweep_shows_its_state_failures_and_transaction(
    operator: Api, world: World, method: int
) -> None:
    payment, session = await bill(world, method)
    log = await record_deposit(world, session.id, TOTAL)
    show = f"/operator/payment/show?payment_id={ids.format_id(ids.PAYMENT, payment.id)}"
    token = await world.operator_token("Eve", Role.VIEWER)

    async def sweeps() -> tuple[str, str | None, int]:
        answer = await operator.send("GET", show, headers={"Authorization": f"Bearer {token}"})
        [transfer] = answer.json["deposits"][0]["transfers"]
        return transfer["sweep"], transfer["sweep_tx_hash"], transfer["sweep_failures"]

    assert await sweeps() == ("unswept", None, 0)
    failed_tx_hash, claimed_tx_hash = bytes(31) + b"\1", bytes(31) + b"\2"
    await world.rows(_BATCH, log.tx_hash, failed_tx_hash, "mined")
    await world.rows(_SWEEP, log.tx_hash, False, failed_tx_hash)
    assert await sweeps() == ("unswept", None, 1)
    await world.rows(_BATCH, log.tx_hash, claimed_tx_hash, None)
    assert await sweeps() == ("claimed", f"0x{claimed_tx_hash.hex()}", 1)
    await world.rows(_SWEEP, log.tx_hash, True, bytes.fromhex(SWEEP[2:]))
    assert await sweeps() == ("swept", SWEEP, 1)
    visitor = await sign_in_as(operator, role=Role.VIEWER)
    page = words(await visitor.get(f"/payments/{ids.format_id(ids.PAYMENT, payment.id)}"))
    assert "swept" in page
    assert f"{SWEEP} failed 1 time" in page


async def test_a_chain_shows_its_factory_sweep_policy_unswept_deposits_and_batches(
    operator: Api, world: World, method: int
) -> None:
    _, session = await bill(world, method)
    log = await record_deposit(world, session.id, TOTAL)
    visitor = await sign_in_as(operator)
    page = words(await visitor.get("/chains"))
    assert f"Factory {checksum(FACTORY)} current" in page
    assert f"Receiver {checksum(RECEIVER)}" in page
    assert "Sweeper not set deposits are not swept automatically" in page
    assert "50 addresses are unswept, or a deposit is 24 h old Gas price limit none" in page
    assert "USDT 25.5 1" in page
    await world.perform(
        SetChain(chain="native", sweeper=checksum(PAYER), sweep_gas_price_max="7.5", sweep_count=9)
    )
    await world.perform(SetToken(chain="native", symbol="USDT", sweep_value="5000"))
    await world.rows(_BATCH, log.tx_hash, bytes.fromhex(SWEEP[2:]), "reverted")
    page = words(await visitor.get("/chains"))
    assert f"Sweeper {checksum(PAYER)}" in page
    assert (
        "9 addresses are unswept, or a deposit is 24 h old, or unswept deposits are worth 5000"
        in (page)
    )
    assert "Gas price limit 7.5 gwei" in page
    assert f"USDT 1 reverted 0.000021 NATIVED {SWEEP}" in page
    answer = await visitor.post("/operations/chain/sweep-now", chain="native", why="month end")
    assert answer.status == 200, words(answer)
    assert await world.rows("SELECT FROM chain WHERE sweep_now_at IS NOT NULL")
    viewer = await sign_in_as(operator, "eve", Role.VIEWER)
    assert b"/operations/chain/sweep-now" not in (await viewer.get("/chains")).body


async def test_the_refund_page_offers_the_buyers_link(
    operator: Api, world: World, method: int
) -> None:
    payment, session = await bill(world, method)
    await record_deposit(world, session.id, TOTAL)
    visitor = await sign_in_as(operator)
    payment_id = ids.format_id(ids.PAYMENT, payment.id)
    refund = await world.perform(RefundPayment(payment_id=payment_id))
    page = await visitor.get(f"/refunds/{refund.id}")
    assert "The buyer has not entered an address yet" in words(page)
    assert b"/operations/refund/address-link?refund_id=ref_" in page.body
    assert b"/c/refund/" not in page.body
