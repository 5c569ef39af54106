"""Reads the sweeps of deposit addresses from final blocks, whoever sends them.

Two endpoints must report the same sweeps, unless the chain has only one. A sweep never changes a
payment. It moves money from a deposit address to the receiver in the ledger.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from prometheus_client import Counter

from payintent.chains import store as chain_store
from payintent.chains.store import ChainRecord
from payintent.core.errors import ChainUnavailableError
from payintent.db.database import Database
from payintent.evm.chain_reader import RpcChainReader
from payintent.evm.port import Block, BlockId, BlockRangeTooLargeError, ChainHeads, SweepLog
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
        """Read a range at an endpoint, or as much of it as the endpoint's span allows."""
        while True:
            end = min(first + self.reader.get_span(name) - 1, last)
            try:
                block, logs = await self.reader.search_sweeps(name, first, end, list(receivers))
            except BlockRangeTooLargeError:
                if end == first:
                    raise
                continue
            await self._check_blocks(name, logs)
            return _Reading(block, frozenset(await self._read_received(name, logs, receivers)))

    async def _check_blocks(self, name: str, logs: Sequence[SweepLog]) -> None:
        """Check that the endpoint still has the logs' blocks.

        A single endpoint must also return the logs when it searches their blocks one by one.
        """
        if len(self.reader.names) == 1 and not await self.reader.has_sweeps(name, logs):
            raise ChainUnavailableError(f"{name} does not confirm a log")
        hashes = {log.block_number: log.block_hash for log in logs}
        for block in await self.reader.fetch_blocks(name, list(hashes)):
            if block is None or hashes[block.number] != block.hash:
                raise ChainUnavailableError(f"{name} lacks the block of a log")

    async def _read_received(
        self, name: str, logs: Sequence[SweepLog], receivers: Mapping[bytes, bytes]
    ) -> list[FinalSweep]:
        """Read what the receivers got. It is less than the amount if the token takes a fee.

        Transfers of unsupported tokens are not read, because anyone can deploy a token.
        """
        tokens = {
            token.address
            for token in await chain_store.list_tokens(self.database, self.chain.slug)
            if token.address is not None and not token.native
        }
        supported = [log for log in logs if log.succeeded and log.token in tokens]
        transfers = await self.reader.fetch_block_transfers(
            name,
            {BlockId(log.block_number, log.block_hash) for log in supported},
            {log.token for log in supported},
            set(receivers.values()),
        )
        sweeps: list[FinalSweep] = []
        for log in logs:
            if log not in supported:
                sweeps.append(FinalSweep(log, log.amount))
                continue
            received = sum(
                transfer.amount
                for transfer in transfers
                if (transfer.tx_hash, transfer.token) == (log.tx_hash, log.token)
                and transfer.sender == log.deposit_address
                and transfer.recipient == receivers[log.factory]
                and transfer.log_index < log.log_index
            )
            sweeps.append(FinalSweep(log, min(received, log.amount)))
        return sweeps


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
