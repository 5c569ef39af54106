"""Tracks transfers that are not settled yet: pending, posted, unproven and overdue transfers.

They are shown to the buyer and keep the session open, but do not settle the payment. A log that
only one endpoint reports is unproven. It is set aside: the cursor advances, a case is opened for
the log, and its session stays open until the log is confirmed.
"""

from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from prometheus_client import Counter, Gauge

from payintent.cases import store as case_store
from payintent.cases.model import CaseKind
from payintent.cases.store import NewCase
from payintent.chains import store as chain_store
from payintent.chains.store import ChainCursor, ChainRecord, DeployedContract
from payintent.core import ids
from payintent.core.errors import ChainUnavailableError
from payintent.db.database import Database, Executor, Tx
from payintent.evm.abi import read_pay
from payintent.evm.chain_reader import RpcChainReader
from payintent.evm.port import (
    BlockRangeTooLargeError,
    CallRevertedError,
    ChainHeads,
    ChainLog,
    ChainTransaction,
    ContractLog,
    LogBatch,
    PaidLog,
    TransactionReceipt,
)
from payintent.onchain import pending_store
from payintent.onchain import transfers_store as transfer_store
from payintent.onchain.pending_store import PendingTransfer, PostedHash
from payintent.onchain.settlement_rules import (
    OUTAGE_MAX,
    PostedTransactionState,
    TransferDetails,
    is_exact_transfer,
)
from payintent.onchain.transfers_store import ReferencedSession
from payintent.payment_sessions.inquire import escalate_to_operator
from payintent.payments.captures_store import UNKNOWN_ORIGIN, MoneyOrigin
from payintent.runtime.log import get_logger

_WINDOW_ENDPOINTS = 2  # must return all recent logs to prove that a log is missing
_WINDOW_RANGES_MAX = 50
_POSTED_MAX = 100  # per pass
_ALREADY_PAID = "already paid"
_OVERDUE_MAX = 100
_SUBJECT_PREFIX = "unproven log on"
#: Maximum number of open cases per chain. If more are needed, the endpoints are presumed faulty and
#: reading stops.
OPEN_CASES_MAX = 100

_log = get_logger("set_aside")
_overdue_log = get_logger("overdue")
Log = TypeVar("Log", bound=ChainLog)
DisputedLogs = dict[ContractLog, str]  # logs and the endpoints that reported them

SET_ASIDE = Counter(
    "payintent_chain_set_aside_total", "Final logs that could not be proven", ["chain"]
)
OVERDUE = Gauge(
    "payintent_chain_overdue", "Payments that were not final within the grace period", ["chain"]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingTransferScanner:
    """Reads a chain's newest blocks and its posted transactions."""

    database: Database
    reader: RpcChainReader
    chain: str

    async def scan_newest_blocks(self, cursor: ChainCursor, heads: Sequence[ChainHeads]) -> None:
        """Re-read all blocks above the cursor and store their payments as pending transfers.

        If two endpoints return all logs, a session without a log is known to be unpaid.
        """
        contracts = {
            contract.address: contract
            for contract in await chain_store.list_contracts(self.database, self.chain)
        }
        newest = max((head.latest for head in heads), key=lambda block: block.number)
        read_until: list[datetime] = []  # one entry per endpoint that returned all logs
        logs_by_position: dict[tuple[bytes, int], PaidLog] = {}
        for head in sorted(heads, key=lambda head: -head.latest.number)[:_WINDOW_ENDPOINTS]:
            try:
                logs = await self._read_window(head, cursor, list(contracts))
            except ChainUnavailableError:
                continue
            logs_by_position |= {(log.tx_hash, log.log_index): log for log in logs}
            read_until.append(head.latest.at)
        await save_pending_payments(self.database, self.chain, logs_by_position.values(), contracts)
        window_at = min(read_until) if len(read_until) == _WINDOW_ENDPOINTS else None
        await chain_store.set_head(self.database, self.chain, newest.number, newest.at, window_at)

    async def _read_window(
        self, head: ChainHeads, cursor: ChainCursor, contracts: Sequence[bytes]
    ) -> list[PaidLog]:
        start, last = cursor.block + 1, head.latest.number
        if last < cursor.block:
            raise ChainUnavailableError(f"{head.endpoint} is behind the cursor")
        if last - start >= _WINDOW_RANGES_MAX * self.reader.get_span(head.endpoint):
            raise ChainUnavailableError(f"{head.endpoint} is still catching up")
        batches = read_block_ranges(self.reader, head.endpoint, start, last, contracts)
        return [log async for batch in batches for log in batch.logs]

    async def check_posted_transactions(self, cursor: ChainCursor) -> None:
        """Look up posted transactions. Only final transactions can complete a session."""
        posted_hashes = await pending_store.list_undecided_posted(
            self.database, self.chain, _POSTED_MAX
        )
        if not posted_hashes:
            return
        for name in self.reader.names:
            try:
                posted_hashes = await self._classify_at(name, cursor, posted_hashes)
            except ChainUnavailableError:
                continue
            if not posted_hashes:
                return

    async def _classify_at(
        self, name: str, cursor: ChainCursor, posted_hashes: Sequence[PostedHash]
    ) -> Sequence[PostedHash]:
        """Classify the transactions known to an endpoint, and return the rest.

        Receipts are read only for calls to our contract, because anyone can post the hash of a
        transaction with an oversized receipt.
        """
        tx_hashes = [posted_hash.tx_hash for posted_hash in posted_hashes]
        answers = await self.reader.fetch_transactions(name, tx_hashes)
        located_transactions = [
            (posted_hash, tx)
            for posted_hash, tx in zip(posted_hashes, answers, strict=True)
            if isinstance(tx, ChainTransaction)
        ]
        payment_hashes = [
            posted_hash.tx_hash
            for posted_hash, tx in located_transactions
            if _is_payment_of(posted_hash, tx)
        ]
        receipts_of = dict(
            zip(payment_hashes, await self.reader.fetch_receipts(name, payment_hashes), strict=True)
        )
        for posted_hash, tx in located_transactions:
            await self._classify(
                name, cursor, posted_hash, tx, receipts_of.get(posted_hash.tx_hash)
            )
        located_hashes = {posted_hash.tx_hash for posted_hash, _ in located_transactions}
        return [
            posted_hash
            for posted_hash in posted_hashes
            if posted_hash.tx_hash not in located_hashes
        ]

    async def _classify(
        self,
        name: str,
        cursor: ChainCursor,
        posted_hash: PostedHash,
        tx: ChainTransaction,
        receipt: TransactionReceipt | None,
    ) -> None:
        state, reason, is_final = PostedTransactionState.PENDING, "", False
        if not _is_payment_of(posted_hash, tx):
            state = PostedTransactionState.FOREIGN
        elif receipt is not None and receipt.status == 1:
            state, is_final = PostedTransactionState.MINED, receipt.block_number <= cursor.block
        elif receipt is not None:
            reason = await self._get_revert_reason(name, tx, receipt) or posted_hash.reason
            state = (
                PostedTransactionState.DUPLICATE
                if reason == _ALREADY_PAID
                else PostedTransactionState.REVERTED
            )
            is_final = receipt.block_number <= cursor.block and await self._is_confirmed_revert(
                name, receipt
            )
        await pending_store.set_posted_state(
            self.database,
            posted_hash.session_id,
            posted_hash.tx_hash,
            state,
            reason,
            final=is_final,
        )

    async def _get_revert_reason(
        self, name: str, tx: ChainTransaction, receipt: TransactionReceipt
    ) -> str:
        """Replay the call at the previous block. Returns the revert reason, or "" if unknown."""
        try:
            await self.reader.call(
                name,
                tx.to or b"",
                tx.input,
                receipt.block_number - 1,
                sender=tx.sender,
                value=tx.value,
            )
        except CallRevertedError as reverted:
            return reverted.reason
        except ChainUnavailableError:
            return ""
        return ""  # it ran out of gas, or an earlier transaction in its block changed the result

    async def _is_confirmed_revert(self, name: str, receipt: TransactionReceipt) -> bool:
        """Return True if another endpoint confirms the revert, or if there is no other endpoint."""
        other_names = [endpoint for endpoint in self.reader.names if endpoint != name]
        for endpoint in other_names:
            try:
                [other_receipt] = await self.reader.fetch_receipts(endpoint, [receipt.tx_hash])
            except ChainUnavailableError:
                continue
            if other_receipt is not None:
                return other_receipt.status == 0 and other_receipt.block_hash == receipt.block_hash
        return not other_names


def _is_payment_of(posted_hash: PostedHash, tx: ChainTransaction) -> bool:
    """Return whether a transaction calls its session's contract to pay that session."""
    call = read_pay(tx.input)
    return tx.to == posted_hash.contract and call is not None and call.uuid == posted_hash.uuid


async def read_block_ranges(
    reader: RpcChainReader, endpoint: str, start: int, last: int, contracts: Sequence[bytes]
) -> AsyncGenerator[LogBatch]:
    """Read the blocks from `start` to `last` in ranges as large as the endpoint allows."""
    while start <= last:
        end = min(start + reader.get_span(endpoint) - 1, last)
        try:
            yield await reader.search_logs(endpoint, start, end, contracts, None)
        except BlockRangeTooLargeError:
            if end == start:
                raise
        else:
            start = end + 1


async def save_pending_payments(
    database: Executor,
    chain: str,
    logs: Collection[PaidLog],
    contracts: Mapping[bytes, DeployedContract],
) -> dict[PaidLog, ReferencedSession]:
    """Store the logs that pay one of our sessions, and return the session of each log.

    Logs from another account's contract are ignored.
    """
    if not logs:
        return {}
    referenced = await transfer_store.find_referenced_sessions(database, {log.uuid for log in logs})
    sessions = {
        log: session
        for log in logs
        if (session := referenced.get(log.uuid)) is not None
        and session.account_id == contracts[log.contract].account_id
    }
    pending = [_build_pending_transfer(log, session) for log, session in sessions.items()]
    await pending_store.save_pending(database, chain, pending)
    return sessions


def _build_pending_transfer(log: PaidLog, session: ReferencedSession) -> PendingTransfer:
    details = TransferDetails(session.account_id, log.token, log.amount, log.receiver)
    return PendingTransfer(
        tx_hash=log.tx_hash,
        log_index=log.log_index,
        session_id=session.session_id,
        exact=session.expected is not None and is_exact_transfer(details, session.expected),
        block=log.block_number,
    )


async def can_set_aside(database: Executor, chain: str, count: int) -> bool:
    """Return whether `count` more cases for unproven logs of a chain may be opened."""
    if not count:
        return True
    if (
        await case_store.count_open(database, f"{_SUBJECT_PREFIX} {chain} ") + count
        <= OPEN_CASES_MAX
    ):
        return True
    _log.error("set_aside_full", chain=chain, open_max=OPEN_CASES_MAX)
    return False


async def set_logs_aside(
    tx: Tx, chain: str, logs: DisputedLogs, contracts: Mapping[bytes, DeployedContract]
) -> None:
    """Open a case for each log, and keep its session open until the log is confirmed."""
    if not logs:
        return
    paid_logs = [log for log in logs if isinstance(log, PaidLog)]
    sessions = await save_pending_payments(tx, chain, paid_logs, contracts)
    await open_unproven_cases(tx, chain, logs, {log: sessions[log].origin for log in sessions})


async def open_unproven_cases(
    tx: Tx, chain: str, logs: Mapping[Log, str], origins: Mapping[Log, MoneyOrigin]
) -> None:
    """Open a case for each log. `logs` maps logs to the endpoints that reported them."""
    new_cases = {
        log: NewCase(
            id=tx.id_generator.new_id(),
            kind=CaseKind.RECONCILIATION,
            origin=origins.get(log, UNKNOWN_ORIGIN),
            subject=_subject(chain, log),
        )
        for log in logs
    }
    opened_ids = await case_store.open_cases(tx, list(new_cases.values()))
    for log, endpoint in logs.items():
        if new_cases[log].id in opened_ids:
            SET_ASIDE.labels(chain).inc()
            tx_hash = log.tx_hash.hex()
            _log.error("log_set_aside", chain=chain, tx=tx_hash, endpoint=endpoint)


async def close_proven_cases(tx: Tx, chain: str, logs: Sequence[ChainLog]) -> None:
    if logs:
        await case_store.dismiss_proven_transfers(tx, [_subject(chain, log) for log in logs])


def _subject(chain: str, log: ChainLog) -> str:
    return f"{_SUBJECT_PREFIX} {chain} 0x{log.tx_hash.hex()} {log.log_index}"


async def report_overdue_transfers(database: Database, chain: ChainRecord) -> None:
    """Report payments that are not final within the chain's grace period. They stay PROCESSING."""
    overdue = await pending_store.list_overdue(database, chain.slug, chain.grace_s, _OVERDUE_MAX)
    OVERDUE.labels(chain.slug).set(len(overdue))
    for transfer in overdue:
        if transfer.late_s >= OUTAGE_MAX.total_seconds() and not transfer.has_case:
            session = ids.format_id(ids.SESSION, transfer.session_id)
            _overdue_log.error(
                "payment_not_final", chain=chain.slug, session=session, late_s=transfer.late_s
            )
            await escalate_to_operator(database, transfer.payment_id, transfer.session_id)
