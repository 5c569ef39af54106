"""Reads a chain's final blocks in order and settles their transfers.

One transaction stores the logs of a block range, their settlements and the cursor. After a crash, a
watcher therefore continues from its last commit, and concurrent watchers are harmless.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from prometheus_client import Counter, Gauge

from payintent.chains import store as chain_store
from payintent.chains.store import ChainCursor, ChainRecord, DeployedContract
from payintent.core.errors import ChainUnavailableError
from payintent.db.database import Database, get_current_time
from payintent.evm.chain_reader import RpcChainReader
from payintent.evm.endpoint_votes import VOTES_NEEDED
from payintent.evm.port import (
    Block,
    BlockRangeTooLargeError,
    ChainHeads,
    ContractLog,
    LogBatch,
    PaidLog,
    RefundedLog,
    log_position,
)
from payintent.evm.rpc import WRONG_RESPONSES
from payintent.onchain import pending_store
from payintent.onchain import transfers_store as transfer_store
from payintent.onchain.log_proof import LogClaim, prove_logs, report_unproven_logs
from payintent.onchain.pending_transfers import (
    DisputedLogs,
    can_set_aside,
    close_proven_cases,
    read_block_ranges,
    set_logs_aside,
)
from payintent.onchain.settle_logs import settle_transfers, store_refund_logs
from payintent.onchain.settlement_rules import TransferDisposition
from payintent.runtime.log import get_logger

_log = get_logger("watch")
LOGS_MAX = 1_000  # per transaction
RANGES_MAX = 200  # per pass, so that the newest blocks are read between passes
_PENDING_MAX = 1_000  # pending transfers checked per block range
_ATTEMPTS_MAX = 4  # per endpoint and range
_PAUSE_S = 0.06  # longer than the reader's first back-off of 50 ms after a failure
_RECHECK_EVERY_S = 600
_RECHECK_AGE_S = 3_600  # a recheck starts at the first block of at most this age
_RECHECK_RANGES_MAX = 20  # per pass

RECEIPTS = Counter(
    "payintent_chain_receipts_total", "Finalized logs by disposition", ["chain", "disposition"]
)
LATE_LOGS = Counter(
    "payintent_chain_late_logs_total", "Logs that were first found by a recheck", ["chain"]
)
FINAL = Gauge("payintent_chain_final", "The newest final block", ["chain"])
CURSOR = Gauge("payintent_chain_cursor", "The last block that was read", ["chain"])
HALTED = Gauge("payintent_chain_halted", "1 while the chain needs manual review", ["chain"])


@dataclass(frozen=True, slots=True)
class _Attempt:
    """An attempt to read and settle the next block range through one endpoint."""

    cursor: ChainCursor
    source: ChainHeads
    final: int  # the last block to read
    heads: Sequence[ChainHeads]
    contracts: Mapping[bytes, DeployedContract]
    disputed: DisputedLogs  # from earlier attempts
    is_last: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalBlockReader:
    database: Database
    reader: RpcChainReader
    chain: ChainRecord

    async def read_final(self, heads: Sequence[ChainHeads]) -> ChainCursor | None:
        """Read and settle up to `RANGES_MAX` ranges of unread final blocks.

        Returns None if the chain is halted or has no cursor. Raises `ChainUnavailableError` if no
        endpoint could supply and prove the next range.
        """
        slug, final = self.chain.slug, agreed_final_block(heads)
        FINAL.labels(slug).set(final)
        failures = ranges_read = 0
        disputed: DisputedLogs = {}
        while True:
            contracts = await self._get_contracts()
            cursor = await chain_store.get_cursor(self.database, slug)
            HALTED.labels(slug).set(cursor is not None and cursor.halted is not None)
            if cursor is None or cursor.halted:
                return None
            CURSOR.labels(slug).set(cursor.block)
            sources = [head for head in heads if head.final.number > cursor.block]
            if cursor.block >= final or ranges_read == RANGES_MAX:
                return cursor
            source = sources[failures % len(sources)]
            is_last = failures >= _ATTEMPTS_MAX * len(sources)
            attempt = _Attempt(cursor, source, final, heads, contracts, disputed, is_last)
            if await self._read_range(attempt):
                failures, ranges_read = 0, ranges_read + 1
                continue
            failures += 1
            if failures >= (_ATTEMPTS_MAX + bool(disputed)) * len(sources):
                raise ChainUnavailableError(
                    f"{slug}: no endpoint could supply and prove block {cursor.block + 1}"
                )
            if failures % len(sources) == 0:  # all endpoints were tried
                await asyncio.sleep(_PAUSE_S * failures / len(sources))

    async def recheck_recent_blocks(self, cursor: ChainCursor, heads: Sequence[ChainHeads]) -> None:
        """Every ten minutes, re-read the last hour of final blocks from a different endpoint.

        Only a few ranges are read per pass, so that new blocks are not delayed. If an endpoint
        fails, the next endpoint continues. The next pass continues at the next range.
        """
        slug = self.chain.slug
        contracts = await self._get_contracts()
        start = await self._next_recheck_block(cursor, contracts)
        # `names` starts with working endpoints, so the last name probably did not supply the logs.
        endpoints = _endpoints_with_final(heads, cursor.block)
        sources = [name for name in reversed(self.reader.names) if name in endpoints]
        if start is None or not sources:
            return
        last_checked = start - 1
        for source in sources:
            ranges = read_block_ranges(
                self.reader, source, last_checked + 1, cursor.block, list(contracts)
            )
            try:
                async with aclosing(ranges):
                    for _ in range(_RECHECK_RANGES_MAX):
                        if (batch := await anext(ranges, None)) is None:
                            break
                        await self._settle_missed(batch, heads, contracts)
                        last_checked = batch.end.number
                break
            except ChainUnavailableError as error:
                _log.warning("second_look_deferred", chain=slug, why=str(error))
        await chain_store.set_recheck_progress(
            self.database, slug, last_checked, ended=last_checked >= cursor.block
        )

    async def _next_recheck_block(
        self, cursor: ChainCursor, contracts: Mapping[bytes, DeployedContract]
    ) -> int | None:
        """Return the next block to recheck, or None if no recheck is due."""
        if cursor.second_look_block is not None:
            return cursor.second_look_block + 1
        now = await get_current_time(self.database)
        if (now - cursor.second_look_at).total_seconds() < _RECHECK_EVERY_S:
            return None
        first = min((contract.deployed_block for contract in contracts.values()), default=0)
        return max(first, cursor.block - _RECHECK_AGE_S * 1000 // self.chain.block_time_ms)

    async def _get_contracts(self) -> Mapping[bytes, DeployedContract]:
        contracts = await chain_store.list_contracts(self.database, self.chain.slug)
        return {contract.address: contract for contract in contracts}

    async def _read_range(self, attempt: _Attempt) -> bool:
        cursor = attempt.cursor
        try:
            batch = await self._fetch_range(attempt)
        except ChainUnavailableError:
            return False
        if cursor.hash is not None and (batch.before is None or batch.before.hash != cursor.hash):
            await self._confirm_or_halt(cursor)
            return False
        return await self._settle_batch(batch, attempt)

    async def _fetch_range(self, attempt: _Attempt) -> LogBatch:
        cursor, source = attempt.cursor, attempt.source
        before = cursor.block if cursor.hash is not None else None
        last = min(attempt.final, source.final.number)
        while True:
            end = min(cursor.block + self.reader.get_span(source.endpoint), last)
            try:
                return await self.reader.search_logs(
                    source.endpoint, cursor.block + 1, end, list(attempt.contracts), before
                )
            except BlockRangeTooLargeError:
                if end == cursor.block + 1:
                    raise

    async def _confirm_or_halt(self, cursor: ChainCursor) -> None:
        """Halt the chain if two endpoints report that the cursor's block was replaced.

        If any endpoint still has the block, the chain is not halted. If only one of several
        endpoints reports a replacement, it may be wrong, so nothing is read until two agree. If
        the chain has a single endpoint, its report is sufficient.
        """
        replacements = 0
        for name in self.reader.names:
            try:
                block = await self.reader.fetch_block(name, cursor.block)
            except ChainUnavailableError:
                continue
            if block is not None and block.hash == cursor.hash:
                WRONG_RESPONSES.labels(self.chain.slug, "other_block").inc()
                _log.warning("other_block", chain=self.chain.slug, block=cursor.block)
                return
            replacements += block is not None
        if replacements >= min(VOTES_NEEDED, len(self.reader.names)):
            await self._halt(f"block {cursor.block} was final but has been replaced")

    async def _halt(self, why: str) -> None:
        _log.error("chain_halted", chain=self.chain.slug, why=why)
        HALTED.labels(self.chain.slug).set(1)
        await chain_store.halt(self.database, self.chain.slug, why)

    async def _settle_batch(self, batch: LogBatch, attempt: _Attempt) -> bool:
        """Prove and settle logs in parts of up to `LOGS_MAX`; the last part moves the cursor.

        Each part is proven while the previous part is written. Returns False if a log cannot be
        proven and another attempt may succeed. The last attempt sets such logs aside.
        """
        logs = batch.all_logs
        parts = [logs[start : start + LOGS_MAX] for start in range(0, len(logs), LOGS_MAX)] or [[]]
        proof_task = asyncio.create_task(self._prove(batch, parts[0], attempt))
        try:
            for number in range(1, len(parts) + 1):
                proven_logs = await proof_task
                if proven_logs is None:
                    return False
                is_last = number == len(parts)
                if not is_last:
                    proof_task = asyncio.create_task(self._prove(batch, parts[number], attempt))
                proven_logs.sort(key=log_position)
                for log in proven_logs:
                    attempt.disputed.pop(log, None)
                unproven: DisputedLogs = {}
                if is_last:
                    unproven = {
                        log: endpoint
                        for log, endpoint in attempt.disputed.items()
                        if log.block_number <= batch.end.number
                    }
                if not await can_set_aside(self.database, self.chain.slug, len(unproven)):
                    return False
                await self._settle(
                    proven_logs,
                    unproven,
                    attempt.contracts,
                    cursor=attempt.cursor,
                    end=batch.end if is_last else None,
                )
                for log in unproven:
                    attempt.disputed.pop(log)
        finally:
            proof_task.cancel()
        return True

    async def _prove(
        self, batch: LogBatch, claimed_logs: Sequence[ContractLog], attempt: _Attempt
    ) -> list[ContractLog] | None:
        """Return the proven logs, including logs that the supplier omitted.

        Returns None if a log is not proven, because the supplier can then no longer be trusted. On
        the last attempt, the proven logs are returned, and disputed unproven logs are set aside.
        """
        slug, last = self.chain.slug, batch.end.number
        pending = await pending_store.list_pending_up_to(self.database, slug, last, _PENDING_MAX)
        claim = LogClaim(
            supplier=batch.endpoint,
            claimed_logs=claimed_logs,
            pending={transfer.tx_hash for transfer in pending}
            - {log.tx_hash for log in batch.logs},
            contracts=attempt.contracts.keys(),
            last=last,
            current_endpoints=_endpoints_with_final(attempt.heads, last),
        )
        proof = await prove_logs(self.reader, claim)
        if proof.unproven:
            report_unproven_logs(slug, proof)
            attempt.disputed.update(dict.fromkeys(proof.disputed, batch.endpoint))
            if not attempt.is_last:
                return None
        if proof.absent:
            await pending_store.mark_gone(self.database, slug, list(proof.absent))
        return proof.logs

    async def _settle(
        self,
        logs: Sequence[ContractLog],
        unproven: DisputedLogs,
        contracts: Mapping[bytes, DeployedContract],
        *,
        cursor: ChainCursor | None = None,
        end: Block | None = None,
    ) -> int:
        """Settle logs and set unproven logs aside in one transaction.

        Returns how many logs are new. If `end` is given, the cursor moves to it. Does nothing if
        the chain is halted, if `cursor` is outdated, or if a contract was added. The cursor is
        locked before any payment, so that all writers of this chain's logs wait here.
        """
        slug = self.chain.slug
        async with self.database.transaction() as tx:
            current = await chain_store.lock_cursor(tx, slug)
            if current is None or current.halted:
                return 0
            if cursor is not None:
                current_contracts = await chain_store.list_contracts(tx, slug)
                if current.block != cursor.block or len(current_contracts) != len(contracts):
                    return 0
            paid_logs = [log for log in logs if isinstance(log, PaidLog)]
            counts = await settle_transfers(tx, slug, paid_logs, contracts)
            if paid_logs:
                await pending_store.delete_finalized(tx, slug, [log.tx_hash for log in paid_logs])
            refunded_logs = [log for log in logs if isinstance(log, RefundedLog)]
            new_refunds = await store_refund_logs(tx, slug, refunded_logs, contracts)
            await close_proven_cases(tx, slug, logs)
            await set_logs_aside(tx, slug, unproven, contracts)
            if end is not None:
                await chain_store.advance_cursor(tx, slug, end.number, end.hash, end.at)
        for disposition, count in counts.items():
            RECEIPTS.labels(slug, disposition).inc(count)
        if wrong_receivers := counts[TransferDisposition.WRONG_RECEIVER]:
            _log.error("wrong_receiver", chain=slug, count=wrong_receivers)
        return counts.total() + new_refunds

    async def _settle_missed(
        self,
        batch: LogBatch,
        heads: Sequence[ChainHeads],
        contracts: Mapping[bytes, DeployedContract],
    ) -> None:
        """Settle logs that were missed when their blocks were first read."""
        slug = self.chain.slug
        missed_logs = await transfer_store.filter_new(self.database, slug, batch.all_logs)
        if not missed_logs:
            return
        last = batch.end.number
        claim = LogClaim(
            supplier=batch.endpoint,
            claimed_logs=missed_logs,
            contracts=contracts.keys(),
            last=last,
            current_endpoints=_endpoints_with_final(heads, last),
        )
        proof = await prove_logs(self.reader, claim)
        report_unproven_logs(slug, proof)
        unproven: DisputedLogs = dict.fromkeys(proof.disputed, batch.endpoint)
        if unproven and await can_set_aside(self.database, slug, len(unproven)):
            await self._settle([], unproven, contracts)
        for start in range(0, len(proof.logs), LOGS_MAX):
            logs = proof.logs[start : start + LOGS_MAX]
            LATE_LOGS.labels(slug).inc(await self._settle(logs, {}, contracts))


def agreed_final_block(heads: Sequence[ChainHeads]) -> int:
    """Return the last block that two endpoints, or the only endpoint, report as final."""
    numbers = sorted((head.final.number for head in heads), reverse=True)
    return numbers[min(VOTES_NEEDED, len(numbers)) - 1]


def _endpoints_with_final(heads: Sequence[ChainHeads], block: int) -> frozenset[str]:
    return frozenset(head.endpoint for head in heads if head.final.number >= block)
