"""Reads the sweeps of deposit addresses from final blocks, regardless of who sends them.

Two endpoints must report a sweep, unless the chain has only one endpoint. A sweep never changes a
payment. In the ledger, it moves money from a deposit address to the receiver. An unproven sweep is
skipped, because the recheck or the daily comparison of the address will find it.

A factory logs the sweeps that it makes. A direct call to a deposit address (`flush`, or the
receiver's `execute`) is not logged, so it is read from the token's transfer to the receiver.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client import Counter

from payintent.chains import store as chain_store
from payintent.chains.store import ChainRecord
from payintent.core.errors import ChainUnavailableError
from payintent.db.database import Database
from payintent.evm.chain_reader import RpcChainReader
from payintent.evm.endpoint_votes import Agreement, Reading, read_at_endpoints
from payintent.evm.port import (
    BlockRangeTooLargeError,
    ChainHeads,
    SweepLog,
    TransferLog,
    log_position,
)
from payintent.onchain.sweeps import store as sweeps_store
from payintent.onchain.sweeps.store import FinalSweep

_RANGES_MAX = 200  # per pass

SWEEPS = Counter(
    "payintent_deposit_sweeps_total", "Final sweeps of deposit addresses", ["chain", "result"]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepWatcher:
    database: Database
    reader: RpcChainReader
    chain: ChainRecord

    async def read_sweeps(self, heads: Sequence[ChainHeads]) -> None:
        """Read and store sweeps up to the last block whose deposits have been read.

        Raises `ChainUnavailableError` unless two endpoints, or the only endpoint, can be read.
        """
        slug = self.chain.slug
        receivers = await self._load_receivers()
        for _ in range(_RANGES_MAX):
            cursor = await sweeps_store.get_sweep_cursor(self.database, slug)
            if cursor is None or cursor.block >= cursor.last:
                return
            reading = await self._read_at_endpoints(cursor.block + 1, cursor.last, heads, receivers)
            async with self.database.transaction() as tx:
                is_current = await sweeps_store.advance_sweep_cursor(
                    tx, slug, cursor.block, reading.end.number
                )
                if not is_current:
                    return
                results = await sweeps_store.add_sweeps(tx, slug, _to_sweeps(reading.facts))
            self._count(results)

    async def read_again(self, first: int, last: int, heads: Sequence[ChainHeads]) -> int:
        """Read final blocks again, to find sweeps that endpoints omitted.

        Reads as many blocks as one search allows, and returns the last block read.
        """
        receivers = await self._load_receivers()
        if not receivers:
            return last
        reading = await self._read_at_endpoints(first, last, heads, receivers)
        if reading.facts:
            async with self.database.transaction() as tx:
                await chain_store.lock_cursor(tx, self.chain.slug)
                results = await sweeps_store.add_sweeps(
                    tx, self.chain.slug, _to_sweeps(reading.facts)
                )
            self._count(results)
        return reading.end.number

    def _count(self, results: Sequence[bool]) -> None:
        for succeeded in results:
            SWEEPS.labels(self.chain.slug, "swept" if succeeded else "failed").inc()

    async def _load_receivers(self) -> dict[bytes, bytes]:
        """Return the receivers of the chain's factories, including retired factories."""
        factories = await chain_store.list_factories(self.database, self.chain.slug)
        return {factory.address: factory.receiver for factory in factories}

    async def _read_at_endpoints(
        self, first: int, last: int, heads: Sequence[ChainHeads], receivers: Mapping[bytes, bytes]
    ) -> Agreement[SweepLog, "_Received"]:
        tokens = [
            token.address
            for token in await chain_store.list_tokens(self.database, self.chain.slug)
            if token.address is not None and not token.native
        ]
        source = _SweepSource(self, first, last, receivers, tokens)
        return await read_at_endpoints(self.reader, source, heads, last, self.chain.slug, "sweeps")


@dataclass(frozen=True, slots=True)
class _Received:
    """The received amount, and the transfer itself if the sweep has no log."""

    amount: int
    transfer: TransferLog | None = None


@dataclass(frozen=True, slots=True)
class _SweepSource:
    """Reads sweeps, with the amounts that the receivers received.

    Transfers of unsupported tokens are not read, because anyone can deploy a token.
    """

    watcher: SweepWatcher
    first: int
    last: int
    receivers: Mapping[bytes, bytes]  # by factory
    tokens: Sequence[bytes]

    async def read_range(self, name: str) -> Reading[SweepLog, _Received]:
        """Read a range from an endpoint, or as much of it as the endpoint's span allows."""
        while True:
            end = min(self.first + self.watcher.reader.get_span(name) - 1, self.last)
            try:
                return await self._read(name, self.first, end)
            except BlockRangeTooLargeError:
                if end == self.first:
                    raise

    async def _read(self, name: str, first: int, end: int) -> Reading[SweepLog, _Received]:
        block, logs, transfers = await self.watcher.reader.search_sweeps(
            name, first, end, self.receivers, self.tokens
        )
        sweeps, other_transfers = match_transfers(logs, transfers, self.receivers, self.tokens)
        flushed = await sweeps_store.list_flushed(
            self.watcher.database, self.watcher.chain.slug, other_transfers
        )
        facts = {sweep.log: _Received(sweep.received) for sweep in sweeps}
        facts |= {log: _Received(log.amount, transfer) for log, transfer in flushed.items()}
        await self._check_blocks(name, list(facts))
        return Reading(name, block, end, facts)

    async def _check_blocks(self, name: str, logs: Sequence[SweepLog]) -> None:
        """Check that the endpoint still has the logs' blocks."""
        hashes = {log.block_number: log.block_hash for log in logs}
        for block in await self.watcher.reader.fetch_blocks(name, list(hashes)):
            if block is None or hashes[block.number] != block.hash:
                raise ChainUnavailableError(f"{name} does not have the block that contains a log")

    async def confirm(self, name: str, facts: Mapping[SweepLog, _Received]) -> bool:
        reader = self.watcher.reader
        logs = [log for log, received in facts.items() if received.transfer is None]
        transfers = [item.transfer for item in facts.values() if item.transfer is not None]
        return await reader.has_sweeps(name, logs) and await reader.has_transfers(name, transfers)

    async def read_block(
        self, name: str, number: int, logs: Sequence[SweepLog]
    ) -> Reading[SweepLog, _Received]:
        del logs
        return await self._read(name, number, number)


def match_transfers(
    logs: Sequence[SweepLog],
    transfers: Sequence[TransferLog],
    receivers: Mapping[bytes, bytes],
    tokens: Collection[bytes],
) -> tuple[list[FinalSweep], list[TransferLog]]:
    """Return the sweeps with the received amounts, and the transfers without a sweep.

    The receiver receives less than a sweep's amount if the token charges a fee. A sweep's transfers
    are the last transfers before its log, up to its amount, because a contract can flush and sweep
    in the same transaction. Sweeps of tokens other than `tokens` are assumed to arrive in full.
    """
    sweeps: list[FinalSweep] = []
    unmatched: dict[tuple[bytes, ...], list[TransferLog]] = {}
    for log in sorted((*logs, *transfers), key=log_position):
        if isinstance(log, TransferLog):
            key = (log.tx_hash, log.token, log.sender, log.recipient)
            unmatched.setdefault(key, []).append(log)
            continue
        received = log.amount
        if log.succeeded and log.token in tokens:
            key = (log.tx_hash, log.token, log.deposit_address, receivers[log.factory])
            received = _take_amount(unmatched.get(key, []), log.amount)
        sweeps.append(FinalSweep(log, received))
    return sweeps, [log for group in unmatched.values() for log in group if log.amount]


def _take_amount(transfers: list[TransferLog], amount: int) -> int:
    """Remove the last transfers, up to this amount, and return their sum."""
    received = 0
    while transfers and (not received or received + transfers[-1].amount <= amount):
        received += transfers.pop().amount
    return min(received, amount)


def _to_sweeps(received: Mapping[SweepLog, _Received]) -> list[FinalSweep]:
    return [FinalSweep(log, received[log].amount) for log in sorted(received, key=log_position)]
