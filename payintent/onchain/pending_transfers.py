"""Pending transfers in the newest blocks, and posted transactions.

Neither settles a payment. The buyer sees them, and they keep sessions from ending too early.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from payintent.chains import store as chain_store
from payintent.chains.store import ChainCursor, DeployedContract
from payintent.core.errors import ChainUnavailableError
from payintent.db.database import Database
from payintent.evm.abi import read_pay
from payintent.evm.chain_reader import RpcChainReader
from payintent.evm.port import (
    CallRevertedError,
    ChainHeads,
    ChainTransaction,
    PaidLog,
    TransactionReceipt,
)
from payintent.onchain import pending_store as pending_transfers
from payintent.onchain import transfers_store as transfer_store
from payintent.onchain.model import PostedTransactionState
from payintent.onchain.pending_store import PostedHash
from payintent.onchain.unproven_transfers import build_pending_transfer, match_session
from payintent.onchain.watcher import read_block_ranges

_WITNESSES = 2  # endpoints that must have returned all newest logs to prove absence
_WINDOW_RANGES_MAX = 50
_POSTED_MAX = 100  # per pass
_ALREADY_PAID = "already paid"


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingTransferScanner:
    """Reads a chain's newest blocks and its posted transactions."""

    database: Database
    reader: RpcChainReader
    chain: str

    async def scan(self, cursor: ChainCursor, heads: Sequence[ChainHeads]) -> None:
        """Read all blocks above the cursor again and store their payments as pending transfers.

        If two endpoints have returned all logs, a session without a log is known to be unpaid.
        """
        contracts = {
            contract.address: contract
            for contract in await chain_store.list_contracts(self.database, self.chain)
        }
        newest = max((head.latest for head in heads), key=lambda block: block.number)
        read_until: list[datetime] = []  # by each endpoint that has returned all logs
        logs_by_position: dict[tuple[bytes, int], PaidLog] = {}
        for head in sorted(heads, key=lambda head: -head.latest.number)[:_WITNESSES]:
            try:
                logs = await self._read_window(head, cursor, list(contracts))
            except ChainUnavailableError:
                continue
            logs_by_position |= {(log.tx_hash, log.log_index): log for log in logs}
            read_until.append(head.latest.at)
        await self._store_pending(list(logs_by_position.values()), contracts)
        window_at = min(read_until) if len(read_until) == _WITNESSES else None
        await chain_store.set_head(self.database, self.chain, newest.number, newest.at, window_at)

    async def _read_window(
        self, head: ChainHeads, cursor: ChainCursor, contracts: Sequence[bytes]
    ) -> list[PaidLog]:
        start, last = cursor.block + 1, head.latest.number
        if last < cursor.block:
            raise ChainUnavailableError(f"{head.endpoint} is behind the cursor")
        if last - start >= _WINDOW_RANGES_MAX * self.reader.span(head.endpoint):
            raise ChainUnavailableError(  # while we catch up
                f"{head.endpoint} would need too many requests"
            )
        batches = read_block_ranges(self.reader, head.endpoint, start, last, contracts)
        return [log async for batch in batches for log in batch.logs]

    async def _store_pending(
        self, logs: Sequence[PaidLog], contracts: Mapping[bytes, DeployedContract]
    ) -> None:
        if not logs:
            return
        uuids = {log.uuid for log in logs}
        referenced = await transfer_store.find_referenced_sessions(self.database, uuids)
        pending = [
            build_pending_transfer(log, session)
            for log in logs
            if (session := match_session(log, referenced, contracts)) is not None
        ]
        await pending_transfers.save_pending(self.database, self.chain, pending)

    async def check_posted_transactions(self, cursor: ChainCursor) -> None:
        """Look up posted transactions; only the state of a final transaction decides anything."""
        posted = await pending_transfers.list_undecided_posted(
            self.database, self.chain, _POSTED_MAX
        )
        if not posted:
            return
        for name in self.reader.names:
            try:
                posted = await self._classify_at(name, cursor, posted)
            except ChainUnavailableError:
                continue
            if not posted:
                return

    async def _classify_at(
        self, name: str, cursor: ChainCursor, posted: Sequence[PostedHash]
    ) -> Sequence[PostedHash]:
        """Classify the transactions that an endpoint has, and return the rest.

        Receipts are only read for calls of our contract, since anybody can post the hash of a
        transaction with a receipt larger than we read.
        """
        tx_hashes = [posted_hash.tx_hash for posted_hash in posted]
        answers = await self.reader.transactions(name, tx_hashes)
        located = [
            (posted_hash, tx)
            for posted_hash, tx in zip(posted, answers, strict=True)
            if isinstance(tx, ChainTransaction)
        ]
        ours = [
            posted_hash.tx_hash for posted_hash, tx in located if _is_payment_of(posted_hash, tx)
        ]
        receipts_of = dict(zip(ours, await self.reader.receipts(name, ours), strict=True))
        for posted_hash, tx in located:
            await self._classify(
                name, cursor, posted_hash, tx, receipts_of.get(posted_hash.tx_hash)
            )
        classified = {posted_hash.tx_hash for posted_hash, _ in located}
        return [posted_hash for posted_hash in posted if posted_hash.tx_hash not in classified]

    async def _classify(
        self,
        name: str,
        cursor: ChainCursor,
        posted_hash: PostedHash,
        tx: ChainTransaction,
        receipt: TransactionReceipt | None,
    ) -> None:
        state, reason, final = PostedTransactionState.PENDING, "", False
        if not _is_payment_of(posted_hash, tx):
            state = PostedTransactionState.FOREIGN
        elif receipt is not None and receipt.status == 1:
            state, final = PostedTransactionState.MINED, receipt.block_number <= cursor.block
        elif receipt is not None:
            reason = await self._get_revert_reason(name, tx, receipt) or posted_hash.reason
            state = (
                PostedTransactionState.DUPLICATE
                if reason == _ALREADY_PAID
                else PostedTransactionState.REVERTED
            )
            final = receipt.block_number <= cursor.block and await self._is_confirmed_revert(
                name, receipt
            )
        await pending_transfers.set_posted_state(
            self.database, posted_hash.session_id, posted_hash.tx_hash, state, reason, final=final
        )

    async def _get_revert_reason(
        self, name: str, tx: ChainTransaction, receipt: TransactionReceipt
    ) -> str:
        """Repeat the call on the block before, and return the contract's reason or ""."""
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
        return ""  # it succeeds there: it ran out of gas, or a transaction of its block preceded it

    async def _is_confirmed_revert(self, name: str, receipt: TransactionReceipt) -> bool:
        """Return whether a second endpoint, if there is one, confirms the revert."""
        other_names = [endpoint for endpoint in self.reader.names if endpoint != name]
        for endpoint in other_names:
            try:
                [second] = await self.reader.receipts(endpoint, [receipt.tx_hash])
            except ChainUnavailableError:
                continue
            if second is not None:
                return second.status == 0 and second.block_hash == receipt.block_hash
        return not other_names


def _is_payment_of(posted_hash: PostedHash, tx: ChainTransaction) -> bool:
    """Return whether a transaction pays the session that it was posted for, at its contract."""
    call = read_pay(tx.input)
    return tx.to == posted_hash.contract and call is not None and call.uuid == posted_hash.uuid
