"""Reads the transfers to deposit addresses, and settles their sessions.

One search covers the unread final blocks and all newer blocks, for as many addresses as the
endpoint accepts. Two endpoints must report a final transfer, unless the chain has only one
endpoint. A single transaction stores final transfers, applies their captures, sets unproven
transfers aside and advances the cursor.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from math import ceil
from uuid import UUID

from prometheus_client import Counter, Gauge

from payintent.chains import store as chain_store
from payintent.chains.store import ChainCursor, ChainRecord
from payintent.core.errors import ChainUnavailableError
from payintent.db.database import Database, Tx
from payintent.evm.abi import to_hex
from payintent.evm.chain_reader import RpcChainReader
from payintent.evm.endpoint_votes import Agreement, Reading, read_at_endpoints
from payintent.evm.port import (
    Block,
    BlockRangeTooLargeError,
    ChainHeads,
    TooManyRecipientsError,
    TransferLog,
    log_position,
)
from payintent.onchain import deposits_store, pending_deposits_store
from payintent.onchain.deposit_rules import DepositCapture, decide_captures
from payintent.onchain.deposits_store import (
    DepositAddress,
    DepositCursor,
    NewDeposit,
    SessionDeposits,
)
from payintent.onchain.pending_deposits_store import DepositRecheck, PendingDeposit, RecheckSchedule
from payintent.onchain.pending_transfers import (
    can_set_aside,
    close_proven_cases,
    open_unproven_cases,
)
from payintent.onchain.sweeps.watcher import SweepWatcher
from payintent.payment_sessions import store as settlement_store
from payintent.payment_sessions.settle import ReportedSession, settle_sessions
from payintent.runtime.log import get_logger

_log = get_logger("deposits")
_RANGES_MAX = 200  # per pass
_SEARCHES_MAX = 20  # per endpoint and range of blocks
_SETTLED_MAX = 1_000  # sessions at a time
_AMOUNT_LIMIT = 2**128  # in the smallest unit; the database can add up millions of such amounts
_RECHECK_ADDRESSES_MAX = 1_000  # addresses at a time
_RECHECK_SEARCHES_MAX = 20  # per endpoint and pass
_RECHECKS_MAX = 10  # blocks with unproven deposits, per pass
_RECHECK_EVERY, _RECHECK_AGE = timedelta(minutes=10), timedelta(days=1)
_LONG_RECHECK_EVERY, _LONG_RECHECK_AGE = timedelta(hours=1), timedelta(days=30)
_RECHECK_BACK = timedelta(hours=1)

DEPOSITS = Counter("payintent_deposits_total", "Final transfers to deposit addresses", ["chain"])
ADDRESSES = Gauge("payintent_deposit_addresses", "Addresses of unfinished sessions", ["chain"])


@dataclass(frozen=True, slots=True, kw_only=True)
class DepositWatcher:
    database: Database
    reader: RpcChainReader
    chain: ChainRecord

    async def read_deposits(self, chain_cursor: ChainCursor, heads: Sequence[ChainHeads]) -> None:
        """Read and settle deposits up to the chain's cursor.

        Raises `ChainUnavailableError` unless two endpoints, or the only endpoint, can be read.
        """
        for _ in range(_RANGES_MAX):
            cursor = await deposits_store.get_deposit_cursor(self.database, self.chain.slug)
            if cursor is None or not await self._read_range(cursor, chain_cursor, heads):
                break
        try:
            await self._recheck_unproven(heads)
            await self._continue_recheck(heads)
        except ChainUnavailableError as error:
            _log.warning("second_look_deferred", chain=self.chain.slug, why=str(error))

    async def _continue_recheck(self, heads: Sequence[ChainHeads]) -> None:
        """Continue or begin a recheck of final blocks, in about `_RECHECK_SEARCHES_MAX` searches.

        A recheck finds deposits that endpoints omitted, and deposits of sessions that have ended.
        """
        slug = self.chain.slug
        blocks = int(_RECHECK_BACK.total_seconds() * 1000) // self.chain.block_time_ms
        schedule = RecheckSchedule(
            _RECHECK_EVERY, _RECHECK_AGE, _LONG_RECHECK_EVERY, _LONG_RECHECK_AGE, blocks
        )
        chunk = min(self.reader.get_recipients_max(name) for name in self.reader.names)
        searches = 0
        while searches < _RECHECK_SEARCHES_MAX:
            recheck = await pending_deposits_store.begin_recheck(self.database, slug, schedule)
            if recheck is None:
                return
            addresses, last_id = await deposits_store.list_addresses(
                self.database, slug, recheck.address_id, _RECHECK_ADDRESSES_MAX
            )
            while recheck is not None and searches < _RECHECK_SEARCHES_MAX:
                end = await self._read_recheck(recheck, heads, addresses, is_last=last_id is None)
                searches += max(1, ceil(len(addresses) / chunk))
                async with self.database.transaction() as tx:
                    recheck = await pending_deposits_store.advance_recheck(
                        tx, slug, recheck, end, last_id
                    )

    async def _read_recheck(
        self,
        recheck: DepositRecheck,
        heads: Sequence[ChainHeads],
        addresses: Sequence[bytes],
        *,
        is_last: bool,
    ) -> int:
        """Read as many of the blocks as one search allows, and return the last block read.

        Sweeps are read together with the last addresses.
        """
        end = recheck.last
        if addresses and recheck.first <= end:
            end = await self._read_known_blocks(_Range(recheck.first, end, end), heads, addresses)
        if is_last and recheck.first <= end:
            sweeps = SweepWatcher(database=self.database, reader=self.reader, chain=self.chain)
            end = await sweeps.read_again(recheck.first, end, heads)
        return end

    async def _recheck_unproven(self, heads: Sequence[ChainHeads]) -> None:
        """Read the blocks of a few unproven deposits again."""
        unproven = await pending_deposits_store.list_unproven(
            self.database, self.chain.slug, _RECHECKS_MAX
        )
        for block, session_ids in unproven.items():
            addresses = await deposits_store.get_addresses(self.database, session_ids)
            await self._read_known_blocks(_Range(block, block, block), heads, addresses)

    async def _read_known_blocks(
        self, blocks: "_Range", heads: Sequence[ChainHeads], addresses: Sequence[bytes]
    ) -> int:
        """Read known final blocks again, and return the last block read."""
        deposits = await self._read_at_endpoints(blocks, heads, addresses)
        if not await can_set_aside(self.database, self.chain.slug, len(deposits.unproven)):
            deposits = replace(deposits, unproven={})
        async with self.database.transaction() as tx:
            current = await chain_store.lock_cursor(tx, self.chain.slug)
            if current is not None and not current.halted:
                known_blocks = (blocks.first, deposits.end.number)
                count = await self._settle(tx, known_blocks, deposits, addresses)
                DEPOSITS.labels(self.chain.slug).inc(count)
        return deposits.end.number

    async def _read_range(
        self, cursor: DepositCursor, chain_cursor: ChainCursor, heads: Sequence[ChainHeads]
    ) -> bool:
        """Read a range of blocks. Returns True if more final blocks remain."""
        slug = self.chain.slug
        open_addresses = await deposits_store.get_open_addresses(self.database, slug)
        addresses = open_addresses.addresses
        ADDRESSES.labels(slug).set(len(addresses))
        if not addresses:
            await self._skip_blocks(cursor, chain_cursor)
            return False
        # A new address is read from the position that the cursor had when the address was created,
        # which may be a few blocks earlier.
        new_block = open_addresses.from_block
        start = min(cursor.block, cursor.block if new_block is None else new_block) + 1
        newest = max(head.latest.number for head in heads)
        if newest < start:
            return False
        blocks = _Range(start, chain_cursor.block, newest)
        deposits = await self._read_at_endpoints(blocks, heads, addresses)
        if not await can_set_aside(self.database, slug, len(deposits.unproven)):
            raise ChainUnavailableError(f"{slug}: too many unproven deposits")
        async with self.database.transaction() as tx:
            is_current = await deposits_store.advance_deposit_cursor(
                tx, slug, cursor, deposits.end.number, deposits.end.at
            )
            if not is_current:
                return False
            await deposits_store.mark_covered(tx, open_addresses.new_session_ids)
            decidable = await deposits_store.list_decidable_sessions(tx, slug, deposits.end.at)
            read_blocks = (start, deposits.last)
            count = await self._settle(tx, read_blocks, deposits, addresses, decidable)
        DEPOSITS.labels(slug).inc(count)
        return deposits.end.number < chain_cursor.block

    async def _skip_blocks(self, cursor: DepositCursor, chain_cursor: ChainCursor) -> None:
        """Advance the cursor without reading, because no address awaits a transfer."""
        if chain_cursor.at is None or cursor.block >= chain_cursor.block:
            return
        slug, at = self.chain.slug, chain_cursor.at
        async with self.database.transaction() as tx:
            await deposits_store.advance_deposit_cursor(tx, slug, cursor, chain_cursor.block, at)
            decidable = await deposits_store.list_decidable_sessions(tx, slug, at)
            await settlement_store.lock_sessions(tx, decidable)
            await settle_deposits(tx, decidable)

    async def _read_at_endpoints(
        self, blocks: "_Range", heads: Sequence[ChainHeads], addresses: Sequence[bytes]
    ) -> "Deposits":
        tokens = await deposits_store.list_tokens(self.database, self.chain.slug)
        latest = {head.endpoint: head.latest.number for head in heads}
        source = _DepositSource(self.reader, blocks, latest, tokens, addresses)
        block = max(blocks.first, blocks.final)
        return await read_at_endpoints(
            self.reader, source, heads, block, self.chain.slug, "deposits"
        )

    async def _settle(
        self,
        tx: Tx,
        blocks: tuple[int, int],
        deposits: "Deposits",
        addresses: Sequence[bytes],
        decidable_ids: Collection[UUID] = (),
    ) -> int:
        """Store the deposits in an inclusive range of blocks, and apply the captures.

        Sessions that have new deposits or can be decided are settled. Returns the number of
        new final deposits.
        """
        slug = self.chain.slug
        recipients = {
            log.recipient for log in (*deposits.facts, *deposits.unproven, *deposits.newer)
        }
        by_address = await deposits_store.find_addresses(tx, slug, recipients)
        new_logs = await deposits_store.filter_new(
            tx, slug, sorted(deposits.facts, key=log_position)
        )
        unproven = await deposits_store.filter_new(tx, slug, list(deposits.unproven))
        new_ids = {by_address[log.recipient].session_id for log in new_logs}
        unproven_ids = {by_address[log.recipient].session_id for log in unproven}
        # The rows below reference sessions, which must not be locked before their payments.
        await settlement_store.lock_sessions(tx, {*new_ids, *unproven_ids, *decidable_ids})
        new_deposits = [
            NewDeposit(
                tx.id_generator.new_id(), by_address[log.recipient], log, deposits.facts[log]
            )
            for log in new_logs
        ]
        await deposits_store.add_deposits(tx, slug, new_deposits)
        await close_proven_cases(tx, slug, new_logs)
        await pending_deposits_store.delete_final_pending(tx, slug, deposits.facts)
        pending = [
            PendingDeposit(by_address[log.recipient].session_id, log)
            for log in (*unproven, *deposits.newer)
        ]
        await pending_deposits_store.replace_pending(tx, slug, blocks, addresses, pending)
        await self._set_aside(tx, {log: deposits.unproven[log] for log in unproven}, by_address)
        await settle_deposits(tx, {*new_ids, *decidable_ids})
        return len(new_deposits)

    async def _set_aside(
        self,
        tx: Tx,
        unproven: Mapping[TransferLog, str],
        by_address: Mapping[bytes, DepositAddress],
    ) -> None:
        sessions = {log: by_address[log.recipient].session_id for log in unproven}
        origins = await pending_deposits_store.get_origins(tx, set(sessions.values()))
        await open_unproven_cases(
            tx, self.chain.slug, unproven, {log: origins[sessions[log]] for log in unproven}
        )


#: Final transfers with the times of their blocks.
Deposits = Agreement[TransferLog, datetime]


@dataclass(frozen=True, slots=True)
class _Range:
    """Blocks to search. `final` is the last block that may be settled; it can precede `first`."""

    first: int
    final: int
    last: int


@dataclass(frozen=True, slots=True)
class _DepositSource:
    """Reads transfers to addresses, with the times of their blocks."""

    reader: RpcChainReader
    blocks: _Range
    latest: Mapping[str, int]  # the newest block of each endpoint
    tokens: Sequence[bytes]
    addresses: Sequence[bytes]

    async def read_range(self, name: str) -> Reading[TransferLog, datetime]:
        """Read a range from an endpoint, or as many of its final blocks as one search allows.

        Newer blocks are read in up to `_SEARCHES_MAX` searches.
        """
        blocks = replace(self.blocks, last=min(self.blocks.last, self.latest[name]))
        reading = await self._search(name, blocks)
        for _ in range(1, _SEARCHES_MAX):
            if reading.end.number < blocks.final or reading.last == blocks.last:
                break
            rest = await self._search(name, replace(blocks, first=reading.last + 1))
            if rest.end.hash != reading.end.hash:
                raise ChainUnavailableError(f"{name} replaced block {reading.end.number}")
            reading = replace(reading, last=rest.last, newer=[*reading.newer, *rest.newer])
        return reading

    async def _search(self, name: str, blocks: _Range) -> Reading[TransferLog, datetime]:
        """Search a range as far as the endpoint's span allows."""
        while True:
            end = min(blocks.first + self.reader.get_span(name) - 1, blocks.last)
            part = _Range(blocks.first, min(blocks.final, end), end)
            try:
                return await self._read_chunks(name, part, self.addresses)
            except BlockRangeTooLargeError:
                if end == blocks.first:
                    raise

    async def _read_chunks(
        self, name: str, blocks: _Range, addresses: Sequence[bytes]
    ) -> Reading[TransferLog, datetime]:
        logs: list[TransferLog] = []
        final: Block | None = None
        count = 0  # addresses that have been searched
        while count < len(addresses):
            chunk = addresses[count : count + self.reader.get_recipients_max(name)]
            try:
                block, transfers = await self.reader.search_transfers(
                    name,
                    (blocks.first, blocks.final, blocks.last),
                    self.tokens,
                    chunk,
                )
            except TooManyRecipientsError:
                continue
            if final is not None and block.hash != final.hash:
                raise ChainUnavailableError(f"{name} replaced block {block.number}")
            final = block
            logs += [log for log in transfers if _is_possible(name, log)]
            count += len(chunk)
        assert final is not None  # noqa: S101 - there is at least one address
        final_logs = [log for log in logs if log.block_number <= final.number]
        times = await self._read_times(name, final_logs)
        return Reading(
            name,
            final,
            blocks.last,
            {log: times[log.block_number] for log in final_logs},
            [log for log in logs if log.block_number > final.number],
        )

    async def _read_times(self, name: str, logs: Sequence[TransferLog]) -> dict[int, datetime]:
        """Read the times of the logs' blocks, and check that the endpoint still has the blocks."""
        hashes = {log.block_number: log.block_hash for log in logs}
        blocks = await self.reader.fetch_blocks(name, list(hashes))
        times = {
            block.number: block.at
            for block in blocks
            if block is not None and hashes[block.number] == block.hash
        }
        if len(times) < len(hashes):
            raise ChainUnavailableError(f"{name} does not have the block that contains a log")
        return times

    async def confirm(self, name: str, facts: Mapping[TransferLog, datetime]) -> bool:
        return await self.reader.has_transfers(name, list(facts))

    async def read_block(
        self, name: str, number: int, logs: Sequence[TransferLog]
    ) -> Reading[TransferLog, datetime]:
        addresses = sorted({log.recipient for log in logs})
        return await self._read_chunks(name, _Range(number, number, number), addresses)


def _is_possible(endpoint: str, log: TransferLog) -> bool:
    """Return whether an amount is plausible. Amounts too large for a real token are logged."""
    if log.amount >= _AMOUNT_LIMIT:
        _log.error("deposit_impossible", endpoint=endpoint, tx=to_hex(log.tx_hash))
    return 0 < log.amount < _AMOUNT_LIMIT


async def settle_deposits(tx: Tx, session_ids: Collection[UUID]) -> None:
    """Apply the captures of the sessions' deposits, for one session per payment at a time.

    A capture can end the payment, and its remaining deposits are then late, so sessions are decided
    again until no captures remain.
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
    """Apply each session's captures in order. The sessions belong to different payments."""
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
