"""Proves an endpoint's logs by finding the same logs in the same block at a second endpoint.

Only logs of our contracts are queried, so that logs of foreign contracts cannot make the response
too large. A missing response never proves that a log is absent. Absence is proven only if two
endpoints have the block without the log.

If logs in many blocks need proof, a single search covers all of these blocks. Logs that are missing
from its result are then queried block by block.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from payintent.core.errors import ChainUnavailableError
from payintent.evm.chain_reader import RpcChainReader
from payintent.evm.endpoint_votes import VOTES_NEEDED
from payintent.evm.port import (
    BlockId,
    ChainTransaction,
    ContractLog,
    MissingReason,
    PaidLog,
)
from payintent.evm.rpc import WRONG_RESPONSES
from payintent.runtime.log import get_logger

_log = get_logger("prove")
_SINGLE_ENDPOINT_QUERIES = 3  # the servers of a single endpoint may be out of sync
_SEARCH_BLOCKS_MIN = 5  # fewer blocks are queried one by one


@dataclass(frozen=True, slots=True, kw_only=True)
class LogClaim:
    """Logs and pending transactions to prove in the final blocks up to `last`."""

    supplier: str  # the endpoint that reported `claimed_logs`
    claimed_logs: Sequence[ContractLog]
    pending: Collection[bytes] = ()  # transaction hashes
    contracts: Collection[bytes]
    last: int
    current_endpoints: Collection[str]  # endpoints that have block `last`; only their denials count


@dataclass(slots=True)
class LogProof:
    logs: list[ContractLog]  # proven, in final blocks
    absent: set[bytes]  # pending transactions proven not to pay in any final block
    unproven: list[ContractLog]  # only reported by the supplier
    disputed: list[ContractLog]  # unproven, and denied by fewer than two endpoints


@dataclass(slots=True)
class _Votes:
    claim: LogClaim
    needed: int
    denials_needed: int
    logs: dict[ContractLog, set[str]] = field(default_factory=dict[ContractLog, set[str]])
    denials: dict[bytes, list[str]] = field(default_factory=dict[bytes, list[str]])

    def count_vote(self, name: str, tx_hash: bytes, logs: Sequence[ContractLog]) -> None:
        """Count an endpoint's vote for a transaction's logs, or for their absence."""
        for log in logs:
            self.logs.setdefault(log, set()).add(name)
        if tx_hash in self.claim.pending:  # only a payment confirms a pending transfer
            logs = [log for log in logs if isinstance(log, PaidLog)]
        if not logs and name in self.claim.current_endpoints:
            self.denials.setdefault(tx_hash, []).append(name)

    def is_proven(self, log: ContractLog) -> bool:
        return len(self.logs.get(log, ())) >= self.needed

    def is_denied(self, tx_hash: bytes) -> bool:
        return len(self.denials.get(tx_hash, ())) >= self.denials_needed

    def is_disputed(self, log: ContractLog) -> bool:
        denials = set(self.denials.get(log.tx_hash, ()))
        return not self.is_proven(log) and len(denials) < VOTES_NEEDED

    def undecided_transactions(self) -> list[bytes]:
        unproven = {log.tx_hash for log in self.logs if not self.is_proven(log)}
        paid_hashes = {log.tx_hash for log in self.logs if isinstance(log, PaidLog)} - unproven
        candidates = unproven | set(self.claim.pending) - paid_hashes
        return sorted(tx_hash for tx_hash in candidates if not self.is_denied(tx_hash))

    def reported_blocks(self, tx_hashes: Iterable[bytes]) -> dict[bytes, set[BlockId]]:
        blocks = {tx_hash: set[BlockId]() for tx_hash in tx_hashes}
        for log in self.logs:
            if log.tx_hash in blocks:
                blocks[log.tx_hash].add(BlockId(log.block_number, log.block_hash))
        return blocks

    def to_proof(self) -> LogProof:
        proven_logs = [log for log in self.logs if self.is_proven(log)]
        paid_hashes = {log.tx_hash for log in proven_logs if isinstance(log, PaidLog)}
        return LogProof(
            logs=[log for log in proven_logs if log.block_number <= self.claim.last],
            absent={
                tx for tx in self.claim.pending if self.is_denied(tx) and tx not in paid_hashes
            },
            unproven=[log for log in self.claim.claimed_logs if not self.is_proven(log)],
            disputed=[log for log in self.claim.claimed_logs if self.is_disputed(log)],
        )


async def prove_logs(reader: RpcChainReader, claim: LogClaim) -> LogProof:
    """Query the other endpoints, and then the supplier again if votes are missing.

    The result includes logs of the queried transactions that the supplier omitted.
    """
    others = [name for name in reader.names if name != claim.supplier]
    votes = _Votes(
        claim=claim,
        needed=VOTES_NEEDED if others else 1,
        denials_needed=VOTES_NEEDED if others else _SINGLE_ENDPOINT_QUERIES,
    )
    for log in claim.claimed_logs:
        votes.logs[log] = {claim.supplier} if others else set()
    for name in (
        [*others, claim.supplier] if others else [claim.supplier] * _SINGLE_ENDPOINT_QUERIES
    ):
        if not votes.undecided_transactions():
            break
        try:
            if name != claim.supplier:
                await _search_blocks(reader, name, votes)
            await _query_transactions(reader, name, votes)
        except ChainUnavailableError:
            continue
    return votes.to_proof()


async def _search_blocks(reader: RpcChainReader, name: str, votes: _Votes) -> None:
    """Search all blocks with unproven logs at once, if there are many.

    A missing log does not count as a denial, because an endpoint may reject the search or omit logs
    that it has not indexed yet.
    """
    claim = votes.claim
    unproven_logs = [log for log in claim.claimed_logs if not votes.is_proven(log)]
    numbers = {log.block_number for log in unproven_logs}
    if len(numbers) < _SEARCH_BLOCKS_MIN:
        return
    try:
        batch = await reader.search_logs(
            name, min(numbers), max(numbers), sorted(claim.contracts), before=None
        )
    except ChainUnavailableError:
        return
    logs_of: dict[bytes, list[ContractLog]] = {log.tx_hash: [] for log in unproven_logs}
    for log in (*batch.logs, *batch.refunds):
        if log.tx_hash in logs_of:
            logs_of[log.tx_hash].append(log)
    for tx_hash, logs in logs_of.items():
        if logs and tx_hash not in claim.pending:
            votes.count_vote(name, tx_hash, logs)


async def _query_transactions(reader: RpcChainReader, name: str, votes: _Votes) -> None:
    """Query an endpoint for undecided transactions. Unanswered queries do not count as votes."""
    tx_hashes = votes.undecided_transactions()
    if not tx_hashes:
        return
    claim = votes.claim
    pending = [tx_hash for tx_hash in tx_hashes if tx_hash in claim.pending]
    answers = await reader.fetch_transactions(name, pending) if pending else []
    transaction_of = dict(zip(pending, answers, strict=True))
    blocks_of = {
        tx_hash: blocks | _block_of(transaction_of.get(tx_hash))
        for tx_hash, blocks in votes.reported_blocks(tx_hashes).items()
    }
    blocks = sorted(
        {block for tx_blocks in blocks_of.values() for block in tx_blocks},
        key=lambda block: block.number,
    )
    block_logs = (
        await reader.fetch_block_logs(name, blocks, sorted(claim.contracts)) if blocks else []
    )
    logs_of = dict(zip(blocks, block_logs, strict=True))
    for tx_hash, tx_blocks in blocks_of.items():
        if _may_become_final(transaction_of.get(tx_hash), claim.last):
            continue
        if (logs := _logs_in(tx_hash, tx_blocks, logs_of)) is not None:
            votes.count_vote(name, tx_hash, logs)


def _logs_in(
    tx_hash: bytes,
    blocks: Iterable[BlockId],
    logs_of: Mapping[BlockId, Sequence[ContractLog] | MissingReason],
) -> list[ContractLog] | None:
    """Return a transaction's logs in these blocks, or None if a query was not answered."""
    tx_logs: list[ContractLog] = []
    for block in blocks:
        logs = logs_of[block]
        if isinstance(logs, MissingReason):
            return None
        tx_logs += [log for log in logs if log.tx_hash == tx_hash]
    return tx_logs


def _block_of(tx: ChainTransaction | MissingReason | None) -> set[BlockId]:
    if not isinstance(tx, ChainTransaction) or tx.block_number is None or tx.block_hash is None:
        return set()
    return {BlockId(tx.block_number, tx.block_hash)}


def _may_become_final(tx: ChainTransaction | MissingReason | None, last: int) -> bool:
    """Return whether the transaction may still be in, or move to, a final block."""
    if tx is None or isinstance(tx, MissingReason):
        return tx is not None
    return tx.block_number is not None and tx.block_number > last


def report_unproven_logs(chain: str, proof: LogProof) -> None:
    """Report unproven logs as metrics and log events."""
    for log in proof.unproven:
        WRONG_RESPONSES.labels(chain, "unproven_log").inc()
        _log.warning("unproven_log", chain=chain, tx=log.tx_hash.hex(), block=log.block_number)
