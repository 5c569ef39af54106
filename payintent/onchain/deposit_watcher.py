"""Reads the transfers to deposit addresses, and settles their sessions.

One search covers the final blocks that are unread and all newer blocks, for as many addresses as
the endpoint accepts. Two endpoints must report the same final transfers, unless the chain has only
one. One transaction stores final transfers, applies their captures and advances the cursor.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from uuid import UUID

from prometheus_client import Counter, Gauge

from payintent.chains import store as chain_store
from payintent.chains.store import ChainCursor, ChainRecord
from payintent.core.errors import ChainUnavailableError
from payintent.db.database import Database, Tx
from payintent.evm.chain_reader import RpcChainReader
from payintent.evm.port import (
    Block,
    BlockRangeTooLargeError,
    ChainHeads,
    TooManyRecipientsError,
    TransferLog,
    log_position,
)
from payintent.evm.rpc import WRONG_RESPONSES
from payintent.onchain import deposits_store, pending_deposits_store
from payintent.onchain.deposit_rules import DepositCapture, decide_captures
from payintent.onchain.deposits_store import (
    DepositAddress,
    DepositCursor,
    LookSchedule,
    NewDeposit,
    SessionDeposits,
)
from payintent.onchain.log_proof import VOTES_NEEDED
from payintent.onchain.pending_deposits_store import PendingDeposit
from payintent.onchain.sweep_watcher import SweepWatcher
from payintent.payment_sessions.settle import ReportedSession, settle_sessions
from payintent.runtime.log import get_logger

_log = get_logger("deposits")
_RANGES_MAX = 200  # per pass
_SEARCHES_MAX = 20  # per endpoint and range of blocks
_SETTLED_MAX = 1_000  # sessions at a time
_LOOK_MAX = 5_000  # addresses per pass
_LOOK_EVERY, _LOOK_AGE = timedelta(minutes=10), timedelta(days=1)
_LONG_LOOK_EVERY, _LONG_LOOK_AGE = timedelta(hours=1), timedelta(days=30)
_LOOK_BACK = timedelta(hours=1)

DEPOSITS = Counter("payintent_deposits_total", "Final transfers to deposit addresses", ["chain"])
ADDRESSES = Gauge("payintent_deposit_addresses", "Addresses of unfinished sessions", ["chain"])


@dataclass(frozen=True, slots=True)
class _Reading:
    """What the endpoints report between the cursor and the newest block."""

    final: Block
    last: int  # the last block that was searched
    final_logs: Sequence[TransferLog]
    pending_logs: Sequence[TransferLog]
    times: Mapping[int, datetime]  # of the blocks of `final_logs`


@dataclass(frozen=True, slots=True, kw_only=True)
class DepositWatcher:
    database: Database
    reader: RpcChainReader
    chain: ChainRecord

    async def read_deposits(self, chain_cursor: ChainCursor, heads: Sequence[ChainHeads]) -> None:
        """Read and settle deposits up to the chain's cursor.

        Raises `ChainUnavailableError` if no endpoint, or fewer than two of several, can be read.
        """
        for _ in range(_RANGES_MAX):
            cursor = await deposits_store.get_deposit_cursor(self.database, self.chain.slug)
            if cursor is None or not await self._read_range(cursor, chain_cursor, heads):
                break
        await self._look_again(heads)

    async def _look_again(self, heads: Sequence[ChainHeads]) -> None:
        """Continue or begin a second look at final blocks, at most `_LOOK_MAX` addresses at a time.

        It finds deposits that endpoints omitted, and deposits of sessions that have ended.
        """
        slug = self.chain.slug
        blocks = int(_LOOK_BACK.total_seconds() * 1000) // self.chain.block_time_ms
        schedule = LookSchedule(_LOOK_EVERY, _LOOK_AGE, _LONG_LOOK_EVERY, _LONG_LOOK_AGE, blocks)
        look = await deposits_store.begin_second_look(self.database, slug, schedule)
        if look is None:
            return
        addresses = await deposits_store.list_addresses(
            self.database, slug, look.address_id, _LOOK_MAX
        )
        logs: list[TransferLog] = []
        times: dict[int, datetime] = {}
        first = look.first
        while addresses and first <= look.last:
            blocks_left = _Range(first, look.last, look.last)
            reading = await self._read_at_endpoints(blocks_left, heads, addresses)
            logs += reading.final_logs
            times |= reading.times
            first = reading.final.number + 1
        async with self.database.transaction() as tx:
            progress = addresses[-1].id if len(addresses) == _LOOK_MAX else None
            if await deposits_store.advance_second_look(tx, slug, look, progress):
                by_address = {item.address: item for item in addresses}
                count = await self._settle(tx, logs, times, by_address)
                DEPOSITS.labels(slug).inc(count)
        if progress is None:
            sweeps = SweepWatcher(database=self.database, reader=self.reader, chain=self.chain)
            await sweeps.read_again(look.first, look.last, heads)

    async def _read_range(
        self, cursor: DepositCursor, chain_cursor: ChainCursor, heads: Sequence[ChainHeads]
    ) -> bool:
        """Read a range of blocks; return True if more final blocks remain."""
        slug = self.chain.slug
        addresses = await deposits_store.list_open_addresses(self.database, slug)
        ADDRESSES.labels(slug).set(len(addresses))
        if not addresses:
            await self._skip_blocks(cursor, chain_cursor)
            return False
        # A new address is read from the cursor at its creation, which may be a few blocks earlier.
        starts = (item.from_block for item in addresses if not item.covered)
        start = min((cursor.block, *starts)) + 1
        newest = max(head.latest.number for head in heads)
        if newest < start:
            return False
        blocks = _Range(start, chain_cursor.block, newest)
        reading = await self._read_at_endpoints(blocks, heads, addresses)
        by_address = {item.address: item for item in addresses}
        async with self.database.transaction() as tx:
            is_current = await deposits_store.advance_deposit_cursor(
                tx, slug, cursor, reading.final.number, reading.final.at
            )
            if not is_current:
                return False
            count = await self._settle(tx, reading.final_logs, reading.times, by_address)
            await deposits_store.mark_covered(
                tx, [item.session_id for item in addresses if not item.covered]
            )
            decidable = await deposits_store.list_decidable_sessions(tx, slug, reading.final.at)
            await settle_deposits(tx, decidable)
        DEPOSITS.labels(slug).inc(count)
        await pending_deposits_store.replace_pending(
            self.database,
            slug,
            [item.session_id for item in addresses],
            [
                PendingDeposit(by_address[log.recipient].session_id, log)
                for log in reading.pending_logs
            ],
        )
        return reading.final.number < chain_cursor.block

    async def _skip_blocks(self, cursor: DepositCursor, chain_cursor: ChainCursor) -> None:
        """Advance the cursor without reading, because no address awaits a transfer."""
        if chain_cursor.at is None or cursor.block >= chain_cursor.block:
            return
        slug, at = self.chain.slug, chain_cursor.at
        async with self.database.transaction() as tx:
            await deposits_store.advance_deposit_cursor(tx, slug, cursor, chain_cursor.block, at)
            await settle_deposits(tx, await deposits_store.list_decidable_sessions(tx, slug, at))

    async def _read_at_endpoints(
        self, blocks: "_Range", heads: Sequence[ChainHeads], addresses: Sequence[DepositAddress]
    ) -> _Reading:
        """Read a range at two endpoints, or at the only one, and compare their final transfers."""
        latest = {head.endpoint: head.latest.number for head in heads}
        needed = min(VOTES_NEEDED, len(self.reader.names))
        readings: list[_Reading] = []
        for name in self.reader.names:
            if latest.get(name, 0) < max(blocks.first, blocks.final):
                continue
            visible = replace(blocks, last=min(blocks.last, latest[name]))
            try:
                reading = await self._read_at(name, visible, addresses)
            except ChainUnavailableError:
                continue
            agreeing = [item for item in readings if _agree(item, reading)]
            readings.append(reading)
            if len(agreeing) + 1 >= needed:
                return _merge(reading, agreeing)
        if len(readings) >= needed:
            WRONG_RESPONSES.labels(self.chain.slug, "deposits").inc()
            _log.error("deposits_disputed", chain=self.chain.slug, block=blocks.first)
        raise ChainUnavailableError(
            f"{self.chain.slug}: too few endpoints agree on deposits from block {blocks.first} on"
        )

    async def _read_at(
        self, name: str, blocks: "_Range", addresses: Sequence[DepositAddress]
    ) -> _Reading:
        """Read a range at an endpoint, or as many of its final blocks as one search allows.

        Newer blocks are read in up to `_SEARCHES_MAX` searches.
        """
        tokens = [
            token.address
            for token in await chain_store.list_tokens(self.database, self.chain.slug)
            if token.address is not None and not token.native
        ]
        reading = await self._search(name, blocks, tokens, addresses)
        for _ in range(1, _SEARCHES_MAX):
            if reading.final.number < blocks.final or reading.last == blocks.last:
                break
            newer = replace(blocks, first=reading.last + 1)
            rest = await self._search(name, newer, tokens, addresses)
            if rest.final.hash != reading.final.hash:
                raise ChainUnavailableError(f"{name} replaced block {reading.final.number}")
            pending_logs = [*reading.pending_logs, *rest.pending_logs]
            reading = replace(reading, last=rest.last, pending_logs=pending_logs)
        return reading

    async def _search(
        self,
        name: str,
        blocks: "_Range",
        tokens: Sequence[bytes],
        addresses: Sequence[DepositAddress],
    ) -> _Reading:
        """Search the beginning of a range, as far as the endpoint's span allows."""
        while True:
            end = min(blocks.first + self.reader.get_span(name) - 1, blocks.last)
            part = _Range(blocks.first, min(blocks.final, end), end)
            try:
                return await self._read_chunks(name, part, tokens, addresses)
            except BlockRangeTooLargeError:
                if end == blocks.first:
                    raise

    async def _read_chunks(
        self,
        name: str,
        blocks: "_Range",
        tokens: Sequence[bytes],
        addresses: Sequence[DepositAddress],
    ) -> _Reading:
        logs: list[TransferLog] = []
        final: Block | None = None
        count = 0  # addresses that have been searched
        while count < len(addresses):
            chunk = addresses[count : count + self.reader.get_recipients_max(name)]
            try:
                block, transfers = await self.reader.search_transfers(
                    name,
                    (blocks.first, blocks.final, blocks.last),
                    tokens,
                    [item.address for item in chunk],
                )
            except TooManyRecipientsError:
                continue
            if final is not None and block.hash != final.hash:
                raise ChainUnavailableError(f"{name} replaced block {block.number}")
            final = block
            logs += [log for log in transfers if log.amount]
            count += len(chunk)
        assert final is not None  # noqa: S101 - there is at least one address
        logs.sort(key=log_position)
        final_logs = [log for log in logs if log.block_number <= final.number]
        return _Reading(
            final,
            blocks.last,
            final_logs,
            [log for log in logs if log.block_number > final.number],
            await self._read_times(name, final_logs),
        )

    async def _read_times(self, name: str, logs: Sequence[TransferLog]) -> dict[int, datetime]:
        """Read the times of the logs' blocks, and check that the endpoint still has the blocks.

        A single endpoint must also return the logs when it searches their blocks one by one.
        """
        if len(self.reader.names) == 1 and not await self.reader.has_transfers(name, logs):
            raise ChainUnavailableError(f"{name} does not confirm a log")
        hashes = {log.block_number: log.block_hash for log in logs}
        blocks = await self.reader.fetch_blocks(name, list(hashes))
        times = {
            block.number: block.at
            for block in blocks
            if block is not None and hashes[block.number] == block.hash
        }
        if len(times) < len(hashes):
            raise ChainUnavailableError(f"{name} lacks the block of a log")
        return times

    async def _settle(
        self,
        tx: Tx,
        logs: Sequence[TransferLog],
        times: Mapping[int, datetime],
        by_address: Mapping[bytes, DepositAddress],
    ) -> int:
        """Store final transfers and apply the captures that they complete."""
        new_logs = await deposits_store.filter_new(tx, self.chain.slug, logs)
        deposits = [
            NewDeposit(
                tx.id_generator.new_id(), by_address[log.recipient], log, times[log.block_number]
            )
            for log in new_logs
        ]
        await deposits_store.add_deposits(tx, self.chain.slug, deposits)
        await pending_deposits_store.delete_final_pending(tx, self.chain.slug, logs)
        await settle_deposits(tx, {deposit.address.session_id for deposit in deposits})
        return len(deposits)


@dataclass(frozen=True, slots=True)
class _Range:
    """Blocks to search. `final`, the last that may be settled, can be before the first."""

    first: int
    final: int
    last: int


def _agree(first: _Reading, second: _Reading) -> bool:
    """Return whether two endpoints report the same transfers in the blocks that both have."""
    last = min(first.final.number, second.final.number)
    if first.final.number == second.final.number and first.final.hash != second.final.hash:
        return False
    return _logs_up_to(first, last) == _logs_up_to(second, last)


def _logs_up_to(reading: _Reading, last: int) -> set[TransferLog]:
    return {log for log in reading.final_logs if log.block_number <= last}


def _merge(reading: _Reading, agreeing: Sequence[_Reading]) -> _Reading:
    """Return the final transfers that all report, and the pending transfers that any reports."""
    readings = (reading, *agreeing)
    shortest = min(readings, key=lambda item: item.final.number)
    all_logs = {log for item in readings for log in (*item.final_logs, *item.pending_logs)}
    last = shortest.final.number
    pending = sorted((log for log in all_logs if log.block_number > last), key=log_position)
    return replace(shortest, pending_logs=pending)


async def settle_deposits(tx: Tx, session_ids: Collection[UUID]) -> None:
    """Apply the captures that the sessions' deposits amount to, at most one per payment at a time.

    A capture can end the payment, and its remaining deposits are then late, so sessions are decided
    again until they have no capture left.
    """
    remaining = sorted(session_ids)
    while remaining:
        batch, remaining = remaining[:_SETTLED_MAX], remaining[_SETTLED_MAX:]
        deposits = await deposits_store.get_deposits(tx, batch)
        decided: dict[UUID, tuple[SessionDeposits, list[DepositCapture]]] = {}  # by payment
        for session_id in batch:
            if (item := deposits.get(session_id)) and (captures := decide_captures(item.evidence)):
                decided.setdefault(item.payment_id, (item, captures))
        await _apply_captures(tx, list(decided.values()))
        remaining = [
            item.session_id for item in deposits.values() if item.payment_id in decided
        ] + remaining


async def _apply_captures(
    tx: Tx, decided: Sequence[tuple[SessionDeposits, list[DepositCapture]]]
) -> None:
    """Apply the captures of sessions of different payments, each session's in their order."""
    for number in range(max((len(captures) for _, captures in decided), default=0)):
        chosen = [(item, captures[number]) for item, captures in decided if number < len(captures)]
        await settle_sessions(
            tx,
            [
                ReportedSession(item.payment_id, item.session_id, capture.report)
                for item, capture in chosen
            ],
        )
        await deposits_store.link_captures(
            tx, [(item.account_id, capture) for item, capture in chosen]
        )
