"""What is not final yet: pending transfers in the newest blocks, and posted transactions.

None of it moves money. It is shown to the buyer, and keeps sessions from ending too early.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from payintent.domain.errors import ChainUnavailableError
from payintent.domain.evm import (
    CallRevertedError,
    ChainHeads,
    ChainReader,
    ChainTransaction,
    PaidLog,
    TransactionReceipt,
)
from payintent.domain.onchain import PostedTransactionState, TransferDetails, is_exact_transfer
from payintent.evm.abi import read_pay
from payintent.onchain.watcher import read_block_ranges
from payintent.storage.database import Database
from payintent.storage.onchain import chains, pending_transfers, transfers
from payintent.storage.onchain.chains import ChainCursor, DeployedContract
from payintent.storage.onchain.pending_transfers import PendingTransfer, PostedHash

_WITNESSES = 2  # endpoints that must lack a transaction before that counts
_WINDOW_STRETCHES_MAX = 50
_HINTS_MAX = 100
_ALREADY_PAID = "already paid"


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingTransferScanner:
    """Reads a chain's newest blocks and its posted transactions."""

    database: Database
    reader: ChainReader
    chain: str

    async def scan(self, cursor: ChainCursor, heads: Sequence[ChainHeads]) -> None:
        """Read all blocks above the cursor again; payments in them are pending transfers.

        Where two endpoints have shown all logs, a session without one is unpaid so far.
        """
        contracts_listed = await chains.list_contracts(self.database, self.chain)
        contracts = {contract.address: contract for contract in contracts_listed}
        newest = max((head.latest for head in heads), key=lambda block: block.number)
        shown: list[datetime] = []
        found: dict[tuple[bytes, int], PaidLog] = {}
        for head in sorted(heads, key=lambda head: -head.latest.number)[:_WITNESSES]:
            try:
                logs = await self._window(head, cursor, list(contracts))
            except ChainUnavailableError:
                continue
            found |= {(log.tx_hash, log.log_index): log for log in logs}
            shown.append(head.latest.at)
        await self._sight(list(found.values()), contracts)
        window_at = min(shown) if len(shown) == _WITNESSES else None
        await chains.set_head(self.database, self.chain, newest.number, newest.at, window_at)

    async def _window(
        self, head: ChainHeads, cursor: ChainCursor, contracts: Sequence[bytes]
    ) -> list[PaidLog]:
        start, last = cursor.block + 1, head.latest.number
        if last < cursor.block:
            raise ChainUnavailableError(f"{head.endpoint} ends before what was read")
        if last - start >= _WINDOW_STRETCHES_MAX * self.reader.span(head.endpoint):
            raise ChainUnavailableError(
                f"{head.endpoint} has to be asked too often"
            )  # while we catch up
        found = read_block_ranges(self.reader, head.endpoint, start, last, contracts)
        return [log async for chunk in found for log in chunk.logs]

    async def _sight(
        self, logs: Sequence[PaidLog], contracts: Mapping[bytes, DeployedContract]
    ) -> None:
        if not logs:
            return
        named = await transfers.find_named_sessions(self.database, list({log.uuid for log in logs}))
        pending: list[PendingTransfer] = []
        for log in logs:
            name, contract = named.get(log.uuid), contracts[log.contract]
            if name is None or name.account_id != contract.account_id:
                continue
            paid = TransferDetails(contract.account_id, log.token, log.amount, log.receiver)
            pending.append(
                PendingTransfer(
                    tx_hash=log.tx_hash,
                    log_index=log.log_index,
                    session_id=name.session_id,
                    exact=name.expected is not None and is_exact_transfer(paid, name.expected),
                    block=log.block_number,
                )
            )
        await pending_transfers.save_pending(self.database, self.chain, pending)

    async def check_posted_transactions(self, cursor: ChainCursor) -> None:
        """Look posted transactions up; only a final one is decided, and a hash proves nothing."""
        posted = await pending_transfers.list_undecided_posted(
            self.database, self.chain, _HINTS_MAX
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
        """Classify what one endpoint has; returns the rest, which another one may have.

        Only a call of our contract is looked up further: anybody may post the hash of a transaction
        with a receipt that is larger than we read.
        """
        found = await self.reader.transactions(
            name, [posted_hash.tx_hash for posted_hash in posted]
        )
        located = [
            (posted_hash, tx)
            for posted_hash, tx in zip(posted, found, strict=True)
            if isinstance(tx, ChainTransaction)
        ]
        ours = [
            posted_hash.tx_hash for posted_hash, tx in located if _is_payment_of(posted_hash, tx)
        ]
        receipts_of = dict(zip(ours, await self.reader.receipts(name, ours), strict=True))
        for posted_hash, tx in located:
            await self._judge(name, cursor, posted_hash, tx, receipts_of.get(posted_hash.tx_hash))
        classified = {posted_hash.tx_hash for posted_hash, _ in located}
        return [posted_hash for posted_hash in posted if posted_hash.tx_hash not in classified]

    async def _judge(
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
            reason = await self._reason(name, tx, receipt) or posted_hash.reason
            state = (
                PostedTransactionState.DUPLICATE
                if reason == _ALREADY_PAID
                else PostedTransactionState.REVERTED
            )
            final = receipt.block_number <= cursor.block and await self._agreed(name, receipt)
        await pending_transfers.set_posted_state(
            self.database, posted_hash.session_id, posted_hash.tx_hash, state, reason, final=final
        )

    async def _reason(self, name: str, tx: ChainTransaction, receipt: TransactionReceipt) -> str:
        """Find the contract's reason, by the same call on the block before."""
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
        return ""  # it would succeed: it ran out of gas, or another one came before it

    async def _agreed(self, name: str, receipt: TransactionReceipt) -> bool:
        """Ask a second endpoint, where there is one, whether a transaction really failed."""
        others = [other for other in self.reader.names if other != name]
        for other in others:
            try:
                [found] = await self.reader.receipts(other, [receipt.tx_hash])
            except ChainUnavailableError:
                continue
            if found is not None:
                return found.status == 0 and found.block_hash == receipt.block_hash
        return not others


def _is_payment_of(posted_hash: PostedHash, tx: ChainTransaction) -> bool:
    """Tell whether a transaction pays the session that it was posted for, at its own contract."""
    call = read_pay(tx.input)
    return tx.to == posted_hash.contract and call is not None and call.uuid == posted_hash.uuid
