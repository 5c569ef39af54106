"""Sweeps deposit addresses through a chain's signer.

A batch is claimed in the database before the signer is called, and is released when its transaction
is final or lost. If the process crashes at any point, the addresses are swept again later. Sweeping
an empty address has no effect.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from prometheus_client import Counter, Gauge

from payintent.cases import store as case_store
from payintent.cases.model import CaseKind
from payintent.cases.store import NewCase
from payintent.chains import store as chain_store
from payintent.chains import unswept_store
from payintent.chains.checks import open_configured_reader
from payintent.chains.store import ChainRecord
from payintent.core.errors import ChainUnavailableError
from payintent.db.database import Database, get_current_time
from payintent.evm.abi import to_checksum_address
from payintent.evm.chain_reader import RpcChainReader
from payintent.evm.endpoint_votes import VOTES_NEEDED
from payintent.evm.port import GasExceeded, SweepCall, TransactionReceipt
from payintent.evm.signer import ExternalSigner
from payintent.gateways.port import NotContacted, OutcomeUnknown
from payintent.onchain.sweeps import batches_store as sweep_batches_store
from payintent.onchain.sweeps import store as sweeps_store
from payintent.onchain.sweeps.batches_store import BatchResult, OpenBatch
from payintent.onchain.sweeps.rules import SweepBatch, SweepPolicy, UnsweptAddress, choose_batches
from payintent.payments.captures_store import MoneyOrigin
from payintent.runtime.log import get_logger
from payintent.runtime.settings import Settings

_log = get_logger("sweeper")
_GWEI = 10**9
_COIN = 10**18
#: Below Ethereum's gas limit for a transaction (EIP-7825).
_GAS_MAX = 16_000_000
# A failed sweep does not revert its batch. A node may therefore underestimate the gas, and sweeps
# would then run out of gas and fail.
_GAS_BASE, _GAS_PER_ADDRESS = 50_000, 78_000
_OPEN_MAX = 20  # batches per chain
#: A batch without a known transaction is released after the blocks of this period, which starts at
#: its claim, have been read. If its transaction was mined, its sweeps have been stored by then.
_UNKNOWN_S = 600.0

BATCHES = Counter("payintent_sweep_batches_total", "Ended sweep batches", ["chain", "result"])
UNSWEPT = Gauge("payintent_deposits_unswept", "Unswept deposits, in tokens", ["chain", "token"])
UNSWEPT_AGE = Gauge(
    "payintent_deposits_unswept_age_seconds",
    "Age of the oldest unswept deposit",
    ["chain", "token"],
)
SWEEPER_COINS = Gauge("payintent_sweeper_coins", "The sweeper's coins for gas", ["chain"])
WAITING = Gauge(
    "payintent_sweeps_waiting", "1 while due sweeps wait for a lower gas price", ["chain"]
)
PENDING_AGE = Gauge(
    "payintent_sweep_pending_age_seconds", "Age of the oldest unfinished sweep batch", ["chain"]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweeper:
    """Sweeps a chain's deposits from the configured account."""

    database: Database
    chain: ChainRecord
    signer: ExternalSigner
    open_reader: Callable[[ChainRecord], RpcChainReader | None]

    async def step(self) -> bool:
        """End final batches and send due batches. Returns True if a batch was sent."""
        slug = self.chain.slug
        await self._measure()
        sweep_cursor = await sweeps_store.get_sweep_cursor(self.database, slug)
        if sweep_cursor is None:
            return False
        open_batches = await sweep_batches_store.list_open(self.database, slug)
        oldest_s = max((batch.read_s for batch in open_batches), default=0.0)
        PENDING_AGE.labels(slug).set(oldest_s)
        if open_batches:
            await self._end_batches(open_batches, sweep_cursor.block)
        addresses = await sweep_batches_store.list_unclaimed(self.database, slug)
        await self._open_cases(addresses)
        if self.chain.sweeper is None or len(open_batches) >= _OPEN_MAX:
            return False
        batches = choose_batches(addresses, self._policy(), await get_current_time(self.database))
        if not batches or not await self._is_affordable():
            return False
        results = [await self._send(self.chain.sweeper, batch) for batch in batches]
        return any(results)

    def _policy(self) -> SweepPolicy:
        return SweepPolicy(
            count=self.chain.sweep_count,
            after=timedelta(seconds=self.chain.sweep_after_s),
            requested_at=self.chain.sweep_now_at,
        )

    async def _measure(self) -> None:
        slug = self.chain.slug
        unswept = {
            item.currency: item for item in await unswept_store.list_unswept(self.database, slug)
        }
        for token in await chain_store.list_tokens(self.database, slug):
            item = unswept.get(token.symbol)
            UNSWEPT.labels(slug, token.symbol).set(float(item.amount) if item else 0)
            UNSWEPT_AGE.labels(slug, token.symbol).set(item.age_s if item else 0)
        if self.chain.sweeper is not None:
            try:
                coins = await self.signer.get_balance(self.chain.sweeper)
            except ChainUnavailableError:
                return
            SWEEPER_COINS.labels(slug).set(coins / _COIN)

    async def _is_affordable(self) -> bool:
        """Return whether the gas price is within the limit."""
        limit = self.chain.sweep_gas_price_max * _GWEI
        try:
            is_affordable = limit == 0 or await self.signer.get_gas_price() <= limit
        except ChainUnavailableError:
            return False
        WAITING.labels(self.chain.slug).set(0 if is_affordable else 1)
        return is_affordable

    async def _send(self, sender: bytes, batch: SweepBatch) -> bool:
        """Send a batch. It is claimed before the signer is called."""
        slug = self.chain.slug
        gas = await self.signer.estimate(sender, self._call(batch, batch.addresses), _GAS_MAX)
        if isinstance(gas, GasExceeded) and len(batch.addresses) > 1:
            return await self._send(
                sender, SweepBatch(batch.addresses[: len(batch.addresses) // 2])
            )
        if not isinstance(gas, int):
            detail = gas.detail if isinstance(gas, NotContacted) else "it needs too much gas"
            _log.warning("sweep_not_sent", chain=slug, why=detail)
            return False
        claimed = await sweep_batches_store.claim(self.database, slug, sender, batch)
        if claimed is None:
            return False
        batch_id, session_ids = claimed
        addresses = [item for item in batch.addresses if item.session_id in session_ids]
        gas = min(_GAS_MAX, max(gas, _GAS_BASE + _GAS_PER_ADDRESS * len(addresses)))
        tx_hash = await self.signer.send(sender, self._call(batch, addresses), gas)
        if isinstance(tx_hash, OutcomeUnknown):
            _log.warning("sweep_unknown", chain=slug, batch=str(batch_id), why=tx_hash.detail)
            return False
        await sweep_batches_store.set_transaction_hash(self.database, batch_id, tx_hash)
        return True

    def _call(self, batch: SweepBatch, addresses: Sequence[UnsweptAddress]) -> SweepCall:
        return SweepCall(
            network_id=self.chain.network_id,
            contract=batch.factory,
            uuids=[address.uuid for address in addresses],
            token=batch.token,
        )

    async def _end_batches(self, batches: Sequence[OpenBatch], last_block: int) -> None:
        reader = self.open_reader(self.chain)
        if reader is None:
            return
        try:
            for batch in batches:
                await self._end_batch(reader, batch, last_block)
        finally:
            await reader.close()

    async def _end_batch(self, reader: RpcChainReader, batch: OpenBatch, last_block: int) -> None:
        """End a batch if its transaction is lost, or is in a block whose sweeps have been read."""
        try:
            receipt = await find_receipt(reader, batch.tx_hash)
            if receipt is None and await self._may_be_pending(reader, batch):
                return
        except ChainUnavailableError:
            return
        if receipt is not None and receipt.block_number > last_block:
            return
        result, gas_cost = BatchResult.LOST, 0
        if receipt is not None:
            result = BatchResult.MINED if receipt.status else BatchResult.REVERTED
            gas_cost = receipt.gas_cost
        async with self.database.transaction() as tx:
            has_ended = await sweep_batches_store.end(
                tx, batch, result, gas_cost, self.chain.coin_symbol
            )
        if has_ended:
            BATCHES.labels(batch.chain, result.value).inc()

    async def _may_be_pending(self, reader: RpcChainReader, batch: OpenBatch) -> bool:
        """Return False if two endpoints, or the only endpoint, do not know the transaction."""
        if batch.read_s < _UNKNOWN_S or await self.signer.has_pending_transactions(batch.sender):
            return True
        if batch.tx_hash is None:
            return False
        denials_needed = min(VOTES_NEEDED, len(reader.names))
        for name in reader.names:
            try:
                [transaction] = await reader.fetch_transactions(name, [batch.tx_hash])
            except ChainUnavailableError:
                continue
            if transaction is not None:
                return True
            denials_needed -= 1
        return denials_needed > 0

    async def _open_cases(self, addresses: Sequence[UnsweptAddress]) -> None:
        """Open a case for each address that our sweeps could not empty."""
        failed = await sweep_batches_store.list_failed(self.database, addresses)
        if not failed:
            return
        async with self.database.transaction() as tx:
            cases = [
                NewCase(
                    id=tx.id_generator.new_id(),
                    kind=CaseKind.RECONCILIATION,
                    origin=MoneyOrigin(
                        merchant_id=item.merchant_id,
                        payment_id=item.payment_id,
                        session_id=item.session_id,
                    ),
                    subject=f"{self.chain.slug} deposit address"
                    f" {to_checksum_address(item.address)}: {item.currency} cannot be swept",
                )
                for item in failed
            ]
            opened_ids = await case_store.open_cases(tx, cases)
        for _ in opened_ids:
            _log.error("sweep_blocked", chain=self.chain.slug)


async def find_receipt(reader: RpcChainReader, tx_hash: bytes | None) -> TransactionReceipt | None:
    """Return the receipt that two endpoints, or the only endpoint, report.

    Returns None if there is no receipt. Raises `ChainUnavailableError` if the endpoints disagree or
    too few respond.
    """
    if tx_hash is None:
        return None
    needed = min(VOTES_NEEDED, len(reader.names))
    receipts: list[TransactionReceipt | None] = []
    for name in reader.names:
        try:
            [receipt] = await reader.fetch_receipts(name, [tx_hash])
        except ChainUnavailableError:
            continue
        receipts.append(receipt)
        if receipts.count(receipt) >= needed:
            return receipt
    raise ChainUnavailableError("too few endpoints agree on a receipt")


async def sweep_deposits(
    settings: Settings, database: Database, signers: Mapping[str, ExternalSigner]
) -> bool:
    """Sweep the deposits of all chains with a signer. Returns True if a batch was sent."""
    has_sent = False
    for slug, signer in signers.items():
        chain = await chain_store.get_chain(database, slug)
        if chain is not None:
            sweeper = Sweeper(
                database=database,
                chain=chain,
                signer=signer,
                open_reader=partial(open_configured_reader, settings),
            )
            has_sent = await sweeper.step() or has_sent
    return has_sent
