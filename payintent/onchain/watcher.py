"""The watcher of one chain: reads its final blocks in order, and settles their transfers.

One transaction stores the logs of a stretch of blocks, what follows from them, and the cursor: a
watcher that dies continues after its last commit, and a second one does no harm.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from prometheus_client import Counter, Gauge

from payintent.domain.errors import ChainUnavailableError
from payintent.domain.evm import (
    Block,
    BlockRangeTooLargeError,
    ChainHeads,
    ChainReader,
    ContractLog,
    LogBatch,
    PaidLog,
    RefundedLog,
    log_position,
)
from payintent.domain.onchain import TransferDisposition
from payintent.evm.rpc import WRONG_ANSWERS
from payintent.log import get_logger
from payintent.onchain.log_proof import LogClaim, prove_logs, report_unproven_logs
from payintent.onchain.settle_refund_logs import store_refund_logs
from payintent.onchain.settle_transfers import settle_transfers
from payintent.onchain.unproven_transfers import Doubts, has_room, set_aside, settle_doubts
from payintent.storage import sessions
from payintent.storage.database import Database, current_time
from payintent.storage.onchain import chains, pending_transfers, refund_logs, transfers
from payintent.storage.onchain.chains import ChainCursor, ChainRecord, DeployedContract

_log = get_logger("watch")
LOGS_MAX = 1_000  # in one transaction
STRETCHES_MAX = 200  # in one pass: then it is time to see what else is new
_PENDING_MAX = 1_000  # looked up in one stretch
_TRIES = 4  # at each endpoint, for one stretch
_PAUSE_S = 0.06  # an endpoint that has failed once pauses for 50 ms
_VOICES = 2  # endpoints that must agree, where there are so many
_SECOND_LOOK_EVERY_S = 600
_SECOND_LOOK_S = 3_600
_SECOND_LOOK_STRETCHES_MAX = 20  # in one pass

RECEIPTS = Counter(
    "payintent_chain_receipts_total", "Finalized logs by what they were", ["chain", "disposition"]
)
LATE = Counter("payintent_chain_late_logs_total", "Logs that only a second look found", ["chain"])
FINAL = Gauge("payintent_chain_final", "The newest final block", ["chain"])
CURSOR = Gauge("payintent_chain_cursor", "The last block that was read", ["chain"])
HALTED = Gauge("payintent_chain_halted", "1 while a person must look", ["chain"])


@dataclass(frozen=True, slots=True)
class _Step:
    """The blocks from the cursor to the end of what was read, and the contracts searched for."""

    cursor: ChainCursor
    end: Block
    contracts: Mapping[bytes, DeployedContract]


@dataclass(frozen=True, slots=True)
class _Reading:
    """One try to read the next stretch: which endpoint, how far, and the doubtful logs before."""

    source: ChainHeads
    final: int
    heads: Sequence[ChainHeads]
    contracts: Mapping[bytes, DeployedContract]
    doubts: Doubts
    last_try: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalBlockReader:
    database: Database
    reader: ChainReader
    chain: ChainRecord

    async def read_final(self, heads: Sequence[ChainHeads]) -> ChainCursor | None:
        """Read final blocks that were not read, many; None where nothing can be read.

        Raises `ChainUnavailableError` where no endpoint could supply or prove the next stretch.
        """
        slug, final = self.chain.slug, agreed_final_block(heads)
        FINAL.labels(slug).set(final)
        failures = stretches_read = 0
        doubts: Doubts = {}
        while True:
            contracts = await self._contracts()
            cursor = await chains.get_cursor(self.database, slug)
            HALTED.labels(slug).set(cursor is not None and cursor.halted is not None)
            if cursor is None or cursor.halted:
                return None
            CURSOR.labels(slug).set(cursor.block)
            ahead = [head for head in heads if head.final.number > cursor.block]
            if cursor.block >= final or stretches_read == STRETCHES_MAX:
                return cursor
            source = ahead[failures % len(ahead)]
            last_try = failures >= _TRIES * len(ahead)
            reading = _Reading(source, final, heads, contracts, doubts, last_try)
            if await self._read_stretch(cursor, reading):
                failures, stretches_read = 0, stretches_read + 1
                continue
            failures += 1
            if failures >= (_TRIES + bool(doubts)) * len(ahead):
                raise ChainUnavailableError(
                    f"{slug}: no endpoint gives and proves block {cursor.block + 1}"
                )
            if failures % len(ahead) == 0:  # all were asked, and pause
                await asyncio.sleep(_PAUSE_S * failures / len(ahead))

    async def recheck_recent_blocks(self, cursor: ChainCursor, heads: Sequence[ChainHeads]) -> None:
        """Read the last hour of final blocks again, from another endpoint, now and then.

        A few stretches at a time, so that nothing new has to wait; an endpoint that fails here
        is asked again in the next pass.
        """
        slug = self.chain.slug
        contracts = await self._contracts()
        start = await self._second_start(cursor, contracts)
        # Working endpoints come first; the last one is least likely to be the one usually asked.
        able = _able(heads, cursor.block)
        source = next((name for name in reversed(self.reader.names) if name in able), None)
        if start is None or source is None:
            return
        read = start - 1
        try:
            found = read_block_ranges(self.reader, source, start, cursor.block, list(contracts))
            async with aclosing(found):
                for _ in range(_SECOND_LOOK_STRETCHES_MAX):
                    if (chunk := await anext(found, None)) is None:
                        break
                    await self._rescue(chunk, heads, contracts)
                    read = chunk.end.number
        except ChainUnavailableError as error:
            _log.warning("second_look_deferred", chain=slug, why=str(error))
        await chains.set_second_look(self.database, slug, read, ended=read >= cursor.block)

    async def _second_start(
        self, cursor: ChainCursor, contracts: Mapping[bytes, DeployedContract]
    ) -> int | None:
        """Return the block to begin or continue at; None where it is not time yet."""
        if cursor.second_look_block is not None:
            return cursor.second_look_block + 1
        now = await current_time(self.database)
        if (now - cursor.second_look_at).total_seconds() < _SECOND_LOOK_EVERY_S:
            return None
        first = min((contract.deployed_block for contract in contracts.values()), default=0)
        return max(first, cursor.block - _SECOND_LOOK_S * 1000 // self.chain.block_time_ms)

    async def _contracts(self) -> Mapping[bytes, DeployedContract]:
        found = await chains.list_contracts(self.database, self.chain.slug)
        return {contract.address: contract for contract in found}

    async def _read_stretch(self, cursor: ChainCursor, reading: _Reading) -> bool:
        contracts = reading.contracts
        try:
            chunk = await self._stretch(cursor, reading.source, reading.final, list(contracts))
        except ChainUnavailableError:
            return False
        if cursor.hash is not None and (chunk.before is None or chunk.before.hash != cursor.hash):
            await self._doubt(cursor)
            return False
        return await self._take(_Step(cursor, chunk.end, contracts), chunk, reading)

    async def _stretch(
        self, cursor: ChainCursor, source: ChainHeads, final: int, contracts: Sequence[bytes]
    ) -> LogBatch:
        before = cursor.block if cursor.hash is not None else None
        last = min(final, source.final.number)
        while True:
            end = min(cursor.block + self.reader.span(source.endpoint), last)
            try:
                return await self.reader.chunk(
                    source.endpoint, cursor.block + 1, end, contracts, before
                )
            except BlockRangeTooLargeError:
                if end == cursor.block + 1:
                    raise

    async def _doubt(self, cursor: ChainCursor) -> None:
        """Halt where two endpoints have another block than we read, and none has ours any more.

        A single one of several may be wrong: then no block is read meanwhile. If there is only one
        endpoint, it decides.
        """
        others = 0
        for name in self.reader.names:
            try:
                block = await self.reader.block(name, cursor.block)
            except ChainUnavailableError:
                continue
            if block is not None and block.hash == cursor.hash:
                WRONG_ANSWERS.labels(self.chain.slug, "other_block").inc()
                _log.warning("other_block", chain=self.chain.slug, block=cursor.block)
                return
            others += block is not None
        if others >= min(_VOICES, len(self.reader.names)):
            why = f"block {cursor.block} was final and is another one now"
            _log.error("chain_halted", chain=self.chain.slug, why=why)
            HALTED.labels(self.chain.slug).set(1)
            await chains.halt(self.database, self.chain.slug, why)

    async def _take(self, step: _Step, chunk: LogBatch, reading: _Reading) -> bool:
        """Prove and apply logs, at most 1,000 in a transaction; the last one moves the cursor.

        While one part is written the next one is proven. False where one cannot be proven but may
        be in another try; in the last try it is set aside.
        """
        claimed = chunk.all_logs
        pieces = [claimed[at : at + LOGS_MAX] for at in range(0, len(claimed), LOGS_MAX)] or [[]]
        proving = asyncio.create_task(self._proven(chunk, pieces[0], step, reading))
        try:
            for number in range(1, len(pieces) + 1):
                logs = await proving
                if logs is None:
                    return False
                last = number == len(pieces)
                if not last:
                    proving = asyncio.create_task(
                        self._proven(chunk, pieces[number], step, reading)
                    )
                logs.sort(key=log_position)
                for log in logs:
                    reading.doubts.pop(log, None)
                aside = _up_to(reading.doubts, chunk.end.number) if last else {}
                if not await has_room(self.database, self.chain.slug, len(aside)):
                    return False
                await self._apply(logs, step.contracts, step, aside, moves=last)
                for log in aside:
                    reading.doubts.pop(log)
        finally:
            proving.cancel()
        return True

    async def _proven(
        self, chunk: LogBatch, claimed: Sequence[ContractLog], step: _Step, reading: _Reading
    ) -> list[ContractLog] | None:
        """Return the logs reported, and those left out; None where one is not proven.

        An endpoint with a log that no other one has is not believed for the rest either, until the
        last try: then what is proven counts, and the rest is doubtful.
        """
        slug, last = self.chain.slug, chunk.end.number
        sighted = await pending_transfers.list_pending_up_to(
            self.database, slug, last, _PENDING_MAX
        )
        claim = LogClaim(
            supplier=chunk.endpoint,
            claimed=claimed,
            pending={transfer.tx_hash for transfer in sighted}
            - {log.tx_hash for log in chunk.logs},
            contracts=step.contracts.keys(),
            last=last,
            able=_able(reading.heads, last),
        )
        proof = await prove_logs(self.reader, claim)
        if proof.unproven:
            report_unproven_logs(slug, proof)
            reading.doubts.update(dict.fromkeys(proof.disputed, chunk.endpoint))
            if not reading.last_try:
                return None
        if proof.absent:
            await pending_transfers.mark_gone(self.database, slug, list(proof.absent))
        return proof.logs

    async def _apply(
        self,
        logs: Sequence[ContractLog],
        contracts: Mapping[bytes, DeployedContract],
        step: _Step | None,
        aside: Doubts,
        *,
        moves: bool,
    ) -> int:
        """Apply logs in one transaction, and set doubtful ones aside; returns how many were new.

        The cursor is locked before all payments: every other writer of this chain's logs waits
        here.
        """
        slug = self.chain.slug
        async with self.database.transaction() as tx:
            present = await chains.lock_cursor(tx, slug)
            if present is None or present.halted:
                return 0
            if step is not None:
                present_contracts = await chains.list_contracts(tx, slug)
                if present.block != step.cursor.block or len(present_contracts) != len(contracts):
                    return 0  # another watcher was here, or there is a new contract to search for
            paid = [log for log in logs if isinstance(log, PaidLog)]
            counts = await settle_transfers(tx, slug, paid, contracts)
            if paid:
                await pending_transfers.delete_finalized(tx, slug, [log.tx_hash for log in paid])
            back = [log for log in logs if isinstance(log, RefundedLog)]
            new_refunds = await store_refund_logs(tx, slug, back, contracts)
            await settle_doubts(tx, slug, logs)
            await set_aside(tx, slug, aside, contracts)
            if step is not None and moves:
                end = step.end
                await chains.advance_cursor(tx, slug, end.number, end.hash, end.at)
        for disposition, count in counts.items():
            RECEIPTS.labels(slug, disposition).inc(count)
        if counts[TransferDisposition.WRONG_RECEIVER]:
            _log.error(
                "wrong_receiver", chain=slug, count=counts[TransferDisposition.WRONG_RECEIVER]
            )
        return counts.total() + new_refunds

    async def _rescue(
        self,
        chunk: LogBatch,
        heads: Sequence[ChainHeads],
        contracts: Mapping[bytes, DeployedContract],
    ) -> None:
        """Apply what a second look has found and the first one has not."""
        slug = self.chain.slug
        unknown: list[ContractLog] = [
            *await transfers.pick_unknown(self.database, slug, chunk.logs),
            *await refund_logs.pick_unknown(self.database, slug, chunk.refunds),
        ]
        if not unknown:
            return
        last = chunk.end.number
        claim = LogClaim(
            supplier=chunk.endpoint,
            claimed=unknown,
            contracts=contracts.keys(),
            last=last,
            able=_able(heads, last),
        )
        proof = await prove_logs(self.reader, claim)
        report_unproven_logs(slug, proof)
        aside: Doubts = dict.fromkeys(proof.disputed, chunk.endpoint)
        if aside and await has_room(self.database, slug, len(aside)):
            await self._apply([], contracts, None, aside, moves=False)
        for start in range(0, len(proof.logs), LOGS_MAX):
            late = proof.logs[start : start + LOGS_MAX]
            LATE.labels(slug).inc(await self._apply(late, contracts, None, {}, moves=False))


def agreed_final_block(heads: Sequence[ChainHeads]) -> int:
    """Return the last block that two endpoints call final; a single endpoint's own."""
    numbers = sorted((head.final.number for head in heads), reverse=True)
    return numbers[min(_VOICES, len(numbers)) - 1]


def _up_to(doubts: Doubts, last: int) -> Doubts:
    return {log: name for log, name in doubts.items() if log.block_number <= last}


def _able(heads: Sequence[ChainHeads], block: int) -> frozenset[str]:
    """Return the endpoints that have a block, and call it final."""
    return frozenset(head.endpoint for head in heads if head.final.number >= block)


async def read_block_ranges(
    reader: ChainReader, endpoint: str, start: int, last: int, contracts: Sequence[bytes]
) -> AsyncGenerator[LogBatch]:
    """Read blocks from `start` to `last` from one endpoint, as many at a time as it returns."""
    while start <= last:
        end = min(start + reader.span(endpoint) - 1, last)
        try:
            yield await reader.chunk(endpoint, start, end, contracts, None)
        except BlockRangeTooLargeError:
            if end == start:
                raise
        else:
            start = end + 1


async def wake_decidable_sessions(database: Database, slug: str) -> None:
    """Make the sessions due for an inquiry that the chain has decided."""
    await sessions.request_chain_inquiries(database, slug)
