"""One reader of each chain in a process, for the watchers of all its cells.

What one watcher has been answered the others are given, each once: so watchers of the same height
ask the nodes as one would. A watcher that asks again is given a new answer, always, and one that is
behind reads for itself. What an endpoint failed to answer is not kept; with one cell nothing is.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from payintent.domain.evm import (
    Block,
    BlockId,
    ChainHeads,
    ChainReader,
    ChainTransaction,
    ContractLog,
    LogBatch,
    TransactionReceipt,
    Unanswered,
)
from payintent.evm.chain_reader import RpcChainReader

ANSWERS_MAX = 256  # of each kind
FRESH_S = 5.0  # an answer that is older is given to nobody

_Answer = TypeVar("_Answer")
_Key = tuple[object, ...]


@dataclass(slots=True)
class _Kept(Generic[_Answer]):
    """An answer, and which watchers have had it."""

    answer: _Answer
    at: float
    given: set[int] = field(default_factory=set[int])


class _Memory(Generic[_Answer]):
    """The newest answers of one kind; those who want the same at once ask once."""

    def __init__(self, clock: Callable[[], float], *, keeps: bool = True) -> None:
        self._clock = clock
        self._keeps = keeps
        self._kept: OrderedDict[_Key, _Kept[_Answer]] = OrderedDict()
        self._asking: dict[_Key, tuple[asyncio.Lock, int]] = {}

    def find(self, key: _Key, watcher: int) -> _Answer | None:
        """Return an answer that is fresh and that this watcher has not had."""
        kept = self._kept.get(key)
        if kept is None or watcher in kept.given or self._clock() - kept.at > FRESH_S:
            return None
        kept.given.add(watcher)
        return kept.answer

    def keep(self, key: _Key, watcher: int, answer: _Answer, at: float) -> None:
        """Keep an answer that was asked for at a time; those that nobody may have are forgotten."""
        if not self._keeps:
            return
        self._kept[key] = _Kept(answer, at, {watcher})
        self._kept.move_to_end(key)
        while len(self._kept) > ANSWERS_MAX or self._oldest_is_stale():
            self._kept.popitem(last=False)

    def _oldest_is_stale(self) -> bool:
        oldest = next(iter(self._kept.values()), None)
        return oldest is not None and self._clock() - oldest.at > FRESH_S

    async def ask(self, key: _Key, watcher: int, ask: Callable[[], Awaitable[_Answer]]) -> _Answer:
        """Return what another watcher was answered, or ask; a failure is the asker's alone."""
        lock, waiting = self._asking.get(key, (asyncio.Lock(), 0))
        self._asking[key] = (lock, waiting + 1)
        try:
            async with lock:
                found = self.find(key, watcher)
                if found is None:
                    at = self._clock()
                    found = await ask()
                    self.keep(key, watcher, found, at)
                return found
        finally:
            _, waiting = self._asking.pop(key)
            if waiting > 1:
                self._asking[key] = (lock, waiting - 1)


class _Shared:
    """A reader with the answers that its watchers share; closed with the last of them."""

    def __init__(self, reader: RpcChainReader, clock: Callable[[], float], *, keeps: bool) -> None:
        self.reader = reader
        self.clock = clock
        self.watchers: set[int] = set()
        self.heads: _Memory[list[ChainHeads]] = _Memory(clock, keeps=keeps)
        self.chunks: _Memory[LogBatch] = _Memory(clock, keeps=keeps)
        self.block_logs: _Memory[list[ContractLog]] = _Memory(clock, keeps=keeps)


class WatcherReader(ChainReader):
    """A chain's shared reader, as one watcher has it."""

    def __init__(self, shared: _Shared, watcher: int) -> None:
        self._shared = shared
        self._watcher = watcher
        shared.watchers.add(watcher)

    @property
    def reader(self) -> RpcChainReader:
        """Return the reader itself, whose answers are shared with nobody."""
        return self._shared.reader

    @property
    def names(self) -> tuple[str, ...]:
        """Return the endpoints' names, those that work first."""
        return self.reader.names

    def span(self, endpoint: str) -> int:
        """Return how many blocks this endpoint can be asked for at once, at least 1."""
        return self.reader.span(endpoint)

    async def close(self) -> None:
        """Leave the reader, whose connections close with the last watcher."""
        self._shared.watchers.discard(self._watcher)
        if not self._shared.watchers:
            await self.reader.close()

    async def heads(self) -> list[ChainHeads]:
        """Return the newest blocks, if need be those that another watcher has just seen."""
        return list(await self._shared.heads.ask((), self._watcher, self.reader.heads))

    async def chunk(
        self, endpoint: str, start: int, end: int, contracts: Sequence[bytes], before: int | None
    ) -> LogBatch:
        """Search blocks for logs, or return what another watcher has found in them."""
        addresses = frozenset(contracts)
        return await self._shared.chunks.ask(
            (endpoint, start, end, addresses, before),
            self._watcher,
            lambda: self.reader.chunk(endpoint, start, end, contracts, before),
        )

    async def receipts(
        self, endpoint: str, tx_hashes: Sequence[bytes]
    ) -> list[TransactionReceipt | None]:
        """Read receipts, in the order asked for."""
        return await self.reader.receipts(endpoint, tx_hashes)

    async def block_logs(
        self, endpoint: str, blocks: Sequence[BlockId], contracts: Sequence[bytes]
    ) -> list[list[ContractLog] | Unanswered]:
        """Read the logs in single blocks, but for those that another watcher has just read."""
        addresses, memory, at = frozenset(contracts), self._shared.block_logs, self._shared.clock()
        found: dict[BlockId, list[ContractLog] | Unanswered] = {}
        for block in blocks:
            kept = memory.find((endpoint, block, addresses), self._watcher)
            if kept is not None:
                found[block] = kept
        missing = [block for block in blocks if block not in found]
        answers = await self.reader.block_logs(endpoint, missing, contracts) if missing else []
        for block, answer in zip(missing, answers, strict=True):
            found[block] = answer
            if not isinstance(answer, Unanswered):
                memory.keep((endpoint, block, addresses), self._watcher, answer, at)
        return [found[block] for block in blocks]

    async def transactions(
        self, endpoint: str, tx_hashes: Sequence[bytes]
    ) -> list[ChainTransaction | Unanswered | None]:
        """Read transactions, in the order asked for."""
        return await self.reader.transactions(endpoint, tx_hashes)

    async def call(
        self,
        endpoint: str,
        to: bytes,
        data: bytes,
        block: int | str = "latest",
        *,
        sender: bytes | None = None,
        value: int = 0,
    ) -> bytes:
        """Call a contract without a transaction, and give what it returns."""
        return await self.reader.call(endpoint, to, data, block, sender=sender, value=value)

    async def coins(self, endpoint: str, address: bytes, block: int) -> int:
        """Read how much of the native coin an account has as of a block."""
        return await self.reader.coins(endpoint, address, block)

    async def block(self, endpoint: str, number: int) -> Block | None:
        """Read a block's header, always anew: a halt is decided on it."""
        return await self.reader.block(endpoint, number)


class SharedReaders:
    """The readers of a process: watchers that read a chain by the same settings share one.

    Without `keeps` nobody is given another's answers: there is nobody else, with one cell.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, *, keeps: bool = True) -> None:
        self._clock = clock
        self._keeps = keeps
        self._shared: dict[_Key, _Shared] = {}

    def open(
        self, settings: _Key, watcher: int, make: Callable[[], RpcChainReader | None]
    ) -> WatcherReader | None:
        """Return a chain's reader for a watcher; None where its settings allow none."""
        shared = self._shared.get(settings)
        if shared is None or not shared.watchers:
            made = make()
            if made is None:
                return None
            shared = self._shared[settings] = _Shared(made, self._clock, keeps=self._keeps)
        self._shared = {
            key: item for key, item in self._shared.items() if item.watchers or item is shared
        }
        return WatcherReader(shared, watcher)
