"""Contracts without a chain, for tests that do not need transactions."""

import secrets as chance
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from payintent.chains import store as chain_store
from payintent.chains import watch_store as chain_watch_store
from payintent.chains.factory_operations import AddFactory
from payintent.chains.operations import AddContract, SetToken
from payintent.chains.store import DEPOSIT_PROVIDER, PROVIDER
from payintent.core import ids
from payintent.db.database import Database
from payintent.evm.port import PaidLog, TransferLog
from payintent.evm.refund_sender import RpcRefundSender
from payintent.gateways.port import Gateway
from payintent.merchants.methods_operations import AddPaymentMethod
from payintent.onchain import deposits_store
from payintent.onchain.deposit_gateway import DepositGateway
from payintent.onchain.deposit_watcher import settle_deposits
from payintent.onchain.deposits_store import NewDeposit
from payintent.onchain.gateway import OnchainGateway
from payintent.onchain.settle_logs import settle_transfers
from payintent.payments.model import Payment, Session
from payintent.runtime.settings import Settings
from payintent.service import Service, open_service
from tests.support.world import World

CONTRACT = "0xfb6916095ca1df60bb79ce92ce3ea74c37c5d359"
FACTORY = "0x8ba1f109551bd432803012645ac136ddd64dba72"
FORWARDER = "0x27b1fdb04752bbc536007a920d24acb045561c26"
PAYER = "0x52908400098527886e0f7030069857d2e4169ee7"
RECEIVER = "0x5aaeb6053f3e94c9b9a09f33669435e7ef1beaed"
USDT = "0xdbf03b407c01e7cd3cbea99509d93f8dddc8c6fb"
WATCHED_S = 1e9  # as if the watcher were always up to date, even if the clock is advanced
TOKENS = {"ethereum": ("USDT",), "bsc": ("USDT",), "native": ("USDT", "NATIVED")}


@asynccontextmanager
async def contract_service(
    settings: Settings,
    gateway: Gateway,
    refund_senders: Mapping[str, RpcRefundSender] | None = None,
) -> AsyncIterator[Service]:
    """Open the service with the fake gateway and the contract's adapter."""
    database = Database(settings)
    senders = {} if refund_senders is None else refund_senders
    contract = OnchainGateway(database, settings.api_base, senders)
    deposits = DepositGateway(database, settings.api_base, senders)
    gateways = {"fake": gateway, PROVIDER: contract, DEPOSIT_PROVIDER: deposits}
    service = await open_service(settings, gateways)
    try:
        yield service
    finally:
        await service.close()
        await database.close()


async def offer_tokens(world: World, chain: str = "native") -> dict[str, int]:
    """Add a contract on a chain, and offer its tokens; return the ids of the methods."""
    account_id = await add_contract(world, chain)
    if chain == "native":
        await world.perform(SetToken(chain=chain, symbol="USDT", address=USDT))
    return {symbol: await _offer(world, account_id, symbol) for symbol in TOKENS[chain]}


async def offer_deposits(world: World, chain: str = "native", label: str = "USDT") -> int:
    """Add a contract and a deposit factory on a chain, and offer USDT; return the method's id."""
    if not await chain_store.list_contracts(world.database, chain):
        await add_contract(world, chain)
    await world.perform(SetToken(chain=chain, symbol="USDT", address=USDT, enabled=True))
    return await _offer(world, await register_factory(world, chain), "USDT", label)


async def register_factory(world: World, chain: str) -> int:
    """Add a deposit factory; return its account's id."""
    factory = await world.perform(
        AddFactory(
            chain=chain,
            address=FACTORY,
            forwarder=FORWARDER,
            receiver=RECEIVER,
            deployed_block=1,
        )
    )
    return factory.account_id


async def add_contract(world: World, chain: str) -> int:
    """Add a contract on a chain, which is then watched; return its account's id."""
    contract = await world.perform(
        AddContract(chain=chain, address=CONTRACT, receiver=RECEIVER, deployed_block=1)
    )
    await chain_watch_store.mark_watched(world.database, chain, 0, WATCHED_S)
    return contract.account_id


async def _offer(world: World, account_id: int, symbol: str, label: str = "") -> int:
    method = await world.perform(
        AddPaymentMethod(
            merchant_id=world.merchant_id,
            account_id=account_id,
            kind="onchain",
            label=label or symbol,
            currencies=[symbol],
            token=symbol,
        )
    )
    return method.id


async def bill(world: World, method: int, **changes: Any) -> tuple[Payment, Session]:
    """Create a payment of 25.50 USD and select a token for it."""
    fields = {"currency": "USD", "amount": Decimal("25.50"), "amount_text": "25.50"} | changes
    selected = await world.select(await world.create(**fields), method)
    return selected.payment, selected.session


async def strand_payment(world: World) -> Payment:
    """Leave a payment past its deadline on an unwatched chain, and retire its contract."""
    payment = await world.create()
    session = (await world.select(payment)).session
    await world.rows("UPDATE session SET chain = 'bsc', token = 'USDT' WHERE id = $1", session.id)
    await world.rows("UPDATE payment SET expires_at = clock() WHERE id = $1", payment.id)
    return payment


def log_of(session: Session | None, **changes: Any) -> PaidLog:
    """Return a log that pays a session exactly, in the chain's native coin, with these changes.

    Without a session, the log pays an unknown reference.
    """
    reference = (session.reference if session else None) or f"0x{bytes(16).hex()}"
    fields: dict[str, Any] = {
        "contract": bytes.fromhex(CONTRACT[2:]),
        "uuid": bytes.fromhex(reference[2:]),
        "payer": bytes.fromhex(PAYER[2:]),
        "token": bytes(20),
        "amount": session.quote.total_minor if session else 1,
        "receiver": bytes.fromhex(RECEIVER[2:]),
        "block_number": 7,
        "block_hash": bytes(32),
        "tx_hash": chance.token_bytes(32),
        "log_index": 0,
    }
    return PaidLog(**(fields | changes))


async def record_deposit(
    world: World, session_id: UUID, amount: int, token: str = USDT
) -> TransferLog:
    """Record a final transfer to a session's deposit address, without a chain."""
    async with world.database.transaction() as tx:
        addresses = await deposits_store.get_addresses(tx, [session_id])
        [address] = (await deposits_store.find_addresses(tx, "native", addresses)).values()
        log = make_transfer(address.address, amount, token)
        deposit = NewDeposit(tx.id_generator.new_id(), address, log, datetime.now(UTC))
        await deposits_store.add_deposits(tx, "native", [deposit])
        await settle_deposits(tx, {session_id})
    return log


def make_transfer(recipient: bytes, amount: int, token: str = USDT) -> TransferLog:
    sender, tx_hash = bytes.fromhex(PAYER[2:]), chance.token_bytes(32)
    return TransferLog(
        bytes.fromhex(token[2:]), sender, recipient, amount, 7, bytes(32), tx_hash, 0
    )


async def record_final_logs(world: World, *logs: PaidLog, chain: str = "native") -> None:
    """Record logs as final."""
    result = await chain_store.list_contracts(world.database, chain)
    async with world.database.transaction() as tx:
        contracts = {item.address: item for item in result}
        await settle_transfers(tx, chain, logs, contracts)


def session_path(session: Session) -> str:
    return f"/v1/onchain/sessions/{ids.format_id(ids.SESSION, session.id)}"
