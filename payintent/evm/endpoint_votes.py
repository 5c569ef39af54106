"""Compare the logs of final deposits and sweeps that a chain's endpoints report.

A log is accepted if two endpoints report it with the same facts, such as the time of its block. If
the endpoints differ, every endpoint is queried for only the blocks of the doubtful logs. A log that
two endpoints do not have is dropped. A log that is neither accepted nor dropped is unproven: the
cursor advances, and the caller sets the log aside. If a chain has a single endpoint, a search of
only the log's block must also find the log.
"""

import asyncio
import contextlib
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from payintent.core.errors import ChainUnavailableError
from payintent.evm.chain_reader import RpcChainReader
from payintent.evm.port import Block, BlockId, ChainHeads, SweepLog, TransferLog
from payintent.evm.rpc import WRONG_RESPONSES
from payintent.runtime.log import get_logger

VOTES_NEEDED = 2  # endpoints that must agree, if the chain has several
_BLOCKS_MAX = 200  # per endpoint and round; logs in further blocks stay unproven
_ATTEMPTS_MAX = 4  # to prove a log, because an endpoint's servers may be out of sync
_PAUSE_S = 0.06  # longer than the reader's first back-off of 50 ms after a failure
_log = get_logger("votes")
Log = TypeVar("Log", TransferLog, SweepLog)
Fact = TypeVar("Fact")


@dataclass(frozen=True, slots=True)
class Reading(Generic[Log, Fact]):
    """The logs that an endpoint reports: up to block `end` with their facts, and newer logs.

    Newer logs are read up to block `last`.
    """

    endpoint: str
    end: Block
    last: int
    facts: Mapping[Log, Fact]
    newer: Sequence[Log] = field(default_factory=list[Log])


@dataclass(frozen=True, slots=True)
class Agreement(Generic[Log, Fact]):
    """The logs that enough endpoints report up to block `end`, and all newer logs.

    All endpoints were read at least up to block `last`. `unproven` maps each unproven log to an
    endpoint that reports it.
    """

    end: Block
    last: int
    facts: Mapping[Log, Fact]
    newer: Sequence[Log]
    unproven: Mapping[Log, str] = field(default_factory=dict[Log, str])


class LogSource(Protocol[Log, Fact]):
    """Reads a range of blocks, or the blocks of given logs, from an endpoint."""

    async def read_range(self, name: str) -> Reading[Log, Fact]: ...

    async def read_block(
        self, name: str, number: int, logs: Sequence[Log]
    ) -> Reading[Log, Fact]: ...

    async def confirm(self, name: str, facts: Mapping[Log, Fact]) -> bool:
        """Return whether searches of only the logs' blocks also find all logs."""
        ...


async def read_at_endpoints(
    reader: RpcChainReader,
    source: LogSource[Log, Fact],
    heads: Sequence[ChainHeads],
    block: int,
    chain: str,
    kind: str,
) -> Agreement[Log, Fact]:
    """Read a range from endpoints that have `block`; if too few agree, decide log by log.

    Raises `ChainUnavailableError` if too few endpoints can be read, or if they disagree about the
    last block itself.
    """
    needed = min(VOTES_NEEDED, len(reader.names))
    latest = {head.endpoint: head.latest.number for head in heads}
    readings: list[Reading[Log, Fact]] = []
    for name in reader.names:
        if latest.get(name, 0) < block:
            continue
        try:
            reading = await source.read_range(name)
        except ChainUnavailableError:
            continue
        agreeing = [item for item in readings if await _agree(reader, item, reading)]
        readings.append(reading)
        if needed > 1 and len(agreeing) + 1 >= needed:
            return _merge([reading, *agreeing])
    if needed == 1 and readings and await _is_confirmed(source, readings[0]):
        return _merge(readings)
    if len(readings) < needed:
        raise ChainUnavailableError(f"{chain}: too few endpoints report {kind} of block {block}")
    merged = _merge(readings)
    if needed > 1:
        WRONG_RESPONSES.labels(chain, kind).inc()
        _log.error("logs_disputed", chain=chain, kind=kind, block=merged.end.number)
    return await _prove(reader, source, merged, readings)


async def _is_confirmed(source: LogSource[Log, Fact], reading: Reading[Log, Fact]) -> bool:
    try:
        return await source.confirm(reading.endpoint, reading.facts)
    except ChainUnavailableError:
        return False


async def _agree(
    reader: RpcChainReader, first: Reading[Log, Fact], second: Reading[Log, Fact]
) -> bool:
    """Return whether two endpoints report the same logs, and the same last block that both have."""
    last = min(first.end.number, second.end.number)
    if _facts_up_to(first, last) != _facts_up_to(second, last):
        return False
    return await _have_same_end(reader, [first, second])


async def _have_same_end(reader: RpcChainReader, readings: Sequence[Reading[Log, Fact]]) -> bool:
    """Return whether all endpoints report the last block of the shortest reading.

    The caller relies on the time of this block.
    """
    end = min((item.end for item in readings), key=lambda block: block.number)
    for item in readings:
        block: Block | None = item.end
        if item.end.number > end.number:
            block = await reader.fetch_block(item.endpoint, end.number)
        if block != end:
            return False
    return True


def _facts_up_to(reading: Reading[Log, Fact], last: int) -> dict[Log, Fact]:
    return {log: fact for log, fact in reading.facts.items() if log.block_number <= last}


def _merge(readings: Sequence[Reading[Log, Fact]]) -> Agreement[Log, Fact]:
    """Return the facts of the shortest reading, and the newer logs of all readings."""
    shortest = min(readings, key=lambda item: item.end.number)
    last = shortest.end.number
    newer = {
        (log.tx_hash, log.log_index): log
        for item in readings
        for log in (*item.facts, *item.newer)
        if log.block_number > last
    }
    return Agreement(
        shortest.end, min(item.last for item in readings), shortest.facts, list(newer.values())
    )


@dataclass(slots=True)
class _Votes(Generic[Log, Fact]):
    needed: int
    reporters: dict[Log, dict[str, Fact]] = field(default_factory=dict[Log, dict[str, Fact]])
    deniers: dict[Log, set[str]] = field(default_factory=dict[Log, set[str]])

    def proven_fact(self, log: Log) -> tuple[Fact] | None:
        """Return the fact that enough endpoints report, as a tuple, or None if there is none."""
        facts = list(self.reporters[log].values())
        return next(((fact,) for fact in facts if facts.count(fact) >= self.needed), None)

    def is_denied(self, log: Log) -> bool:
        return len(self.deniers[log]) >= VOTES_NEEDED

    def list_doubtful(self) -> list[Log]:
        return [log for log in self.reporters if self.proven_fact(log) is None]

    def count_block(self, name: str, logs: Iterable[Log], facts: Mapping[Log, Fact]) -> None:
        """Record whether an endpoint's response for a block contains these logs."""
        for log in logs:
            if log in facts:
                self.reporters[log][name] = facts[log]
                self.deniers[log].discard(name)
            else:
                self.deniers[log].add(name)


async def _prove(
    reader: RpcChainReader,
    source: LogSource[Log, Fact],
    merged: Agreement[Log, Fact],
    readings: Sequence[Reading[Log, Fact]],
) -> Agreement[Log, Fact]:
    last = merged.end.number
    if not await _have_same_end(reader, readings):
        raise ChainUnavailableError(f"endpoints disagree about block {last}")
    votes: _Votes[Log, Fact] = _Votes(min(VOTES_NEEDED, len(reader.names)))
    supplier: dict[Log, str] = {}
    for reading in readings:
        for log, fact in _facts_up_to(reading, last).items():
            reporters = votes.reporters.setdefault(log, {})
            votes.deniers.setdefault(log, set())
            supplier.setdefault(log, reading.endpoint)
            if votes.needed > 1:
                reporters[reading.endpoint] = fact
    await _ask_for_blocks(reader, source, votes)
    return Agreement(
        merged.end,
        merged.last,
        {log: fact[0] for log in votes.reporters if (fact := votes.proven_fact(log)) is not None},
        merged.newer,
        {log: supplier[log] for log in votes.list_doubtful() if not votes.is_denied(log)},
    )


async def _ask_for_blocks(
    reader: RpcChainReader, source: LogSource[Log, Fact], votes: _Votes[Log, Fact]
) -> None:
    """Query every endpoint for the blocks of doubtful logs, in up to `_ATTEMPTS_MAX` rounds.

    Each block needs a request, so a faulty endpoint that reports logs in all blocks of a range must
    not cause a request for every block.
    """
    for attempt in range(_ATTEMPTS_MAX):
        await asyncio.sleep(_PAUSE_S * attempt if votes.list_doubtful() else 0)
        for name in reader.names:
            by_block: dict[BlockId, list[Log]] = {}
            for log in votes.list_doubtful():
                block = BlockId(log.block_number, log.block_hash)
                by_block.setdefault(block, []).append(log)
            if not by_block:
                return
            for block, logs in itertools.islice(by_block.items(), _BLOCKS_MAX):
                with contextlib.suppress(ChainUnavailableError):
                    reading = await source.read_block(name, block.number, logs)
                    votes.count_block(name, logs, reading.facts)
