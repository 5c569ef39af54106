"""Reads the sweeps of deposit addresses from final blocks, whoever sends them.

Two endpoints must report the same sweeps, unless the chain has only one. A sweep never changes a
payment. It moves money from a deposit address to the receiver in the ledger.

A factory logs the sweeps that it makes. A direct call of an address (`flush`, or the receiver's
`execute`) has no such log. It is read from the token's transfer to the receiver.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client import Counter

from payintent.chains import store as chain_store
from payintent.chains.store import ChainRecord
from payintent.core.errors import ChainUnavailableError
from payintent.db.database import Database
from payintent.evm.chain_reader import RpcChainReader
from payintent.evm.port import (
    Block,
    BlockRangeTooLargeError,
    ChainHeads,
    SweepLog,
    TransferLog,
    log_position,
)
from payintent.evm.rpc import WRONG_RESPONSES
from payintent.onchain import sweeps_store
from payintent.onchain.log_proof import VOTES_NEEDED
from payintent.onchain.sweeps_store import FinalSweep
from payintent.runtime.log import get_logger

_log = get_logger("sweeps")
_RANGES_MAX = 200  # per pass

SWEEPS = Counter(
    "payintent_deposit_sweeps_total", "Final sweeps of deposit addresses", ["chain", "result"]
)


@dataclass(frozen=True, slots=True)
class _Reading:
    end: Block
    sweeps: frozenset[FinalSweep]


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepWatcher:
    database: Database
    reader: RpcChainReader
    chain: ChainRecord

    async def read_sweeps(self, heads: Sequence[ChainHeads]) -> None:
        """Read and store sweeps up to the last block whose deposits are read.

        Raises `ChainUnavailableError` if no endpoint, or fewer than two of several, can be read.
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
                results = await sweeps_store.add_sweeps(tx, slug, _in_order(reading.sweeps))
            self._count(results)

    async def read_again(self, first: int, last: int, heads: Sequence[ChainHeads]) -> None:
        """Read final blocks again, to find sweeps that endpoints omitted."""
        receivers = await self._load_receivers()
        while receivers and first <= last:
            reading = await self._read_at_endpoints(first, last, heads, receivers)
            first = reading.end.number + 1
            if not reading.sweeps:
                continue
            async with self.database.transaction() as tx:
                await chain_store.lock_cursor(tx, self.chain.slug)
                results = await sweeps_store.add_sweeps(
                    tx, self.chain.slug, _in_order(reading.sweeps)
                )
            self._count(results)

    def _count(self, results: Sequence[bool]) -> None:
        for succeeded in results:
            SWEEPS.labels(self.chain.slug, "swept" if succeeded else "failed").inc()

    async def _load_receivers(self) -> dict[bytes, bytes]:
        """Return the receivers of the chain's factories, including retired factories."""
        factories = await chain_store.list_factories(self.database, self.chain.slug)
        return {factory.address: factory.receiver for factory in factories}

    async def _read_at_endpoints(
        self,
        first: int,
        last: int,
        heads: Sequence[ChainHeads],
        receivers: Mapping[bytes, bytes],
    ) -> _Reading:
        """Read a range at two endpoints, or at the only one, and compare their sweeps."""
        latest = {head.endpoint: head.latest.number for head in heads}
        needed = min(VOTES_NEEDED, len(self.reader.names))
        readings: list[_Reading] = []
        for name in self.reader.names:
            if latest.get(name, 0) < last:
                continue
            try:
                reading = await self._read_at(name, first, last, receivers)
            except ChainUnavailableError:
                continue
            agreeing = [item for item in readings if _agree(item, reading)]
            readings.append(reading)
            if len(agreeing) + 1 >= needed:
                return min((reading, *agreeing), key=lambda item: item.end.number)
        if len(readings) >= needed:
            WRONG_RESPONSES.labels(self.chain.slug, "sweeps").inc()
            _log.error("sweeps_disputed", chain=self.chain.slug, block=first)
        raise ChainUnavailableError(
            f"{self.chain.slug}: too few endpoints agree on sweeps from block {first} on"
        )

    async def _read_at(
        self, name: str, first: int, last: int, receivers: Mapping[bytes, bytes]
    ) -> _Reading:
        """Read a range at an endpoint, or as much of it as the endpoint's span allows.

        Transfers of unsupported tokens are not read, because anyone can deploy a token.
        """
        tokens = [
            token.address
            for token in await chain_store.list_tokens(self.database, self.chain.slug)
            if token.address is not None and not token.native
        ]
        while True:
            end = min(first + self.reader.get_span(name) - 1, last)
            try:
                block, logs, transfers = await self.reader.search_sweeps(
                    name, first, end, receivers, tokens
                )
            except BlockRangeTooLargeError:
                if end == first:
                    raise
                continue
            sweeps, other_transfers = match_transfers(logs, transfers, receivers, tokens)
            flushed = await sweeps_store.list_flushed(
                self.database, self.chain.slug, other_transfers
            )
            await self._check_blocks(name, logs, list(flushed.values()))
            sweeps += [FinalSweep(log, transfer.amount) for log, transfer in flushed.items()]
            return _Reading(block, frozenset(sweeps))

    async def _check_blocks(
        self, name: str, logs: Sequence[SweepLog], transfers: Sequence[TransferLog]
    ) -> None:
        """Check that the endpoint still has the logs' blocks.

        A single endpoint must also return the logs when it searches their blocks one by one.
        """
        if len(self.reader.names) == 1 and not (
            await self.reader.has_sweeps(name, logs)
            and await self.reader.has_transfers(name, transfers)
        ):
            raise ChainUnavailableError(f"{name} does not confirm a log")
        hashes = {log.block_number: log.block_hash for log in (*logs, *transfers)}
        for block in await self.reader.fetch_blocks(name, list(hashes)):
            if block is None or hashes[block.number] != block.hash:
                raise ChainUnavailableError(f"{name} lacks the block of a log")


def match_transfers(
    logs: Sequence[SweepLog],
    transfers: Sequence[TransferLog],
    receivers: Mapping[bytes, bytes],
    tokens: Collection[bytes],
) -> tuple[list[FinalSweep], list[TransferLog]]:
    """Return the sweeps with what the receiver got, and the transfers that belong to no sweep.

    The receiver gets less than a sweep's amount if the token takes a fee. The transfers of a sweep
    are the last before its log, up to its amount: a contract can flush and sweep in a transaction.
    Transfers of other tokens than `tokens` are not known.
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


def _agree(first: _Reading, second: _Reading) -> bool:
    """Return whether two endpoints report the same sweeps in the blocks that both have."""
    last = min(first.end.number, second.end.number)
    if first.end.number == second.end.number and first.end.hash != second.end.hash:
        return False
    return _up_to(first, last) == _up_to(second, last)


def _up_to(reading: _Reading, last: int) -> set[FinalSweep]:
    return {sweep for sweep in reading.sweeps if sweep.log.block_number <= last}


def _in_order(sweeps: frozenset[FinalSweep]) -> list[FinalSweep]:
    return sorted(sweeps, key=lambda sweep: (sweep.log.block_number, sweep.log.log_index))
