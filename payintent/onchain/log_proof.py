"""Proof of one endpoint's logs: another endpoint has the same logs in the same block.

It is asked only for the logs of our contracts in that block, so that other contracts' logs cannot
make the answer large. No answer is never proof of absence: that takes two endpoints which have the
block and lack the log.

Logs of many blocks are proven by one search of all these blocks. What such a search leaves out
means nothing: it is asked about block by block.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from payintent.domain.errors import ChainUnavailableError
from payintent.domain.evm import (
    BlockId,
    ChainReader,
    ChainTransaction,
    ContractLog,
    PaidLog,
    Unanswered,
)
from payintent.evm.rpc import WRONG_ANSWERS
from payintent.log import get_logger

_log = get_logger("prove")
_VOICES = 2  # that must agree, where there are so many
_ASKED_ALONE = 3  # times, where there is only one: it may be many machines, some of them late
_BLOCKS_SEARCHED_MIN = 5  # fewer blocks are asked about one by one


@dataclass(frozen=True, slots=True, kw_only=True)
class LogClaim:
    """What is to be proven of the blocks up to `last`, which are final.

    `claimed` are the logs of one endpoint's search, `pending` the transactions of pending
    transfers. Only the denial of an endpoint that has the block counts (`able`).
    """

    supplier: str
    claimed: Sequence[ContractLog]
    pending: Collection[bytes] = ()
    contracts: Collection[bytes]
    last: int
    able: Collection[str]


@dataclass(slots=True)
class LogProof:
    """What two endpoints confirm, or the only one there is."""

    logs: list[ContractLog]  # proven, in final blocks
    absent: set[bytes]  # proven to be in no final block, or without a payment
    unproven: list[ContractLog]  # reported by the supplier, and by no other endpoint
    disputed: list[ContractLog]  # unproven, and denied by fewer than two: they may be true


@dataclass(slots=True)
class _Votes:
    claim: LogClaim
    needed: int
    denials_needed: int
    logs: dict[ContractLog, set[str]] = field(default_factory=dict[ContractLog, set[str]])
    denials: dict[bytes, list[str]] = field(default_factory=dict[bytes, list[str]])

    def hear(self, name: str, tx_hash: bytes, logs: Sequence[ContractLog]) -> None:
        """Count an endpoint's answer about one transaction, in the blocks that it was asked for."""
        for log in logs:
            self.logs.setdefault(log, set()).add(name)
        if tx_hash in self.claim.pending:  # as a payment: a refund beside it is none
            logs = [log for log in logs if isinstance(log, PaidLog)]
        if not logs and name in self.claim.able:
            self.denials.setdefault(tx_hash, []).append(name)

    def proven(self, log: ContractLog) -> bool:
        return len(self.logs.get(log, ())) >= self.needed

    def denied(self, tx_hash: bytes) -> bool:
        return len(self.denials.get(tx_hash, ())) >= self.denials_needed

    def disputed(self, log: ContractLog) -> bool:
        return not self.proven(log) and len(set(self.denials.get(log.tx_hash, ()))) < _VOICES

    def open(self) -> list[bytes]:
        paid = {log.tx_hash for log in self.logs if isinstance(log, PaidLog)}
        settled = paid - self.doubtful()
        wanted = self.doubtful() | set(self.claim.pending) - settled
        return sorted(tx_hash for tx_hash in wanted if not self.denied(tx_hash))

    def doubtful(self) -> set[bytes]:
        return {log.tx_hash for log in self.logs if not self.proven(log)}

    def told_blocks(self, tx_hashes: Iterable[bytes]) -> dict[bytes, set[BlockId]]:
        blocks = {tx_hash: set[BlockId]() for tx_hash in tx_hashes}
        for log in self.logs:
            if log.tx_hash in blocks:
                blocks[log.tx_hash].add(BlockId(log.block_number, log.block_hash))
        return blocks


async def prove_logs(reader: ChainReader, claim: LogClaim) -> LogProof:
    """Check logs at the other endpoints, and where these do not suffice at all of them.

    All logs of our contracts in a transaction's block count, also those that the supplier has left
    out.
    """
    others = [name for name in reader.names if name != claim.supplier]
    votes = _Votes(
        claim=claim,
        needed=_VOICES if others else 1,
        denials_needed=_VOICES if others else _ASKED_ALONE,
    )
    for log in claim.claimed:
        votes.logs[log] = {claim.supplier} if others else set()
    for name in [*others, claim.supplier] if others else [claim.supplier] * _ASKED_ALONE:
        wanted_hashes = votes.open()
        if not wanted_hashes:
            break
        try:
            if name != claim.supplier:
                await _search(reader, name, votes)
            await _ask(reader, name, votes, votes.open())
        except ChainUnavailableError:
            continue
    return _summed(votes)


async def _search(reader: ChainReader, name: str, votes: _Votes) -> None:
    """Let one endpoint search all blocks of unproven logs, where these are many.

    Only what it finds is a vote: a search may be refused, and leaves out what an endpoint has not
    indexed yet.
    """
    claim = votes.claim
    unproven = [log for log in claim.claimed if not votes.proven(log)]
    numbers = {log.block_number for log in unproven}
    if len(numbers) < _BLOCKS_SEARCHED_MIN:
        return
    try:
        found = await reader.chunk(
            name, min(numbers), max(numbers), sorted(claim.contracts), before=None
        )
    except ChainUnavailableError:
        return
    logs_of: dict[bytes, list[ContractLog]] = {log.tx_hash: [] for log in unproven}
    for log in (*found.logs, *found.refunds):
        if log.tx_hash in logs_of:
            logs_of[log.tx_hash].append(log)
    for tx_hash, logs in logs_of.items():
        if logs and tx_hash not in claim.pending:
            votes.hear(name, tx_hash, logs)


async def _ask(reader: ChainReader, name: str, votes: _Votes, tx_hashes: Sequence[bytes]) -> None:
    """Ask one endpoint about transactions; without an answer it has no vote."""
    if not tx_hashes:
        return
    claim = votes.claim
    lost = [tx_hash for tx_hash in tx_hashes if tx_hash in claim.pending]
    found = await reader.transactions(name, lost) if lost else []
    located = dict(zip(lost, found, strict=True))
    wanted = {
        tx_hash: blocks | _block_of(located.get(tx_hash))
        for tx_hash, blocks in votes.told_blocks(tx_hashes).items()
    }
    blocks = sorted(
        {block for ids in wanted.values() for block in ids}, key=lambda block: block.number
    )
    answers = await reader.block_logs(name, blocks, sorted(claim.contracts)) if blocks else []
    logs_of = dict(zip(blocks, answers, strict=True))
    for tx_hash, ids in wanted.items():
        if _is_unsettled(located.get(tx_hash), claim.last):
            continue
        if (logs := _logs_in(tx_hash, ids, logs_of)) is not None:
            votes.hear(name, tx_hash, logs)


def _logs_in(
    tx_hash: bytes,
    blocks: Iterable[BlockId],
    logs_of: Mapping[BlockId, Sequence[ContractLog] | Unanswered],
) -> list[ContractLog] | None:
    """Return a transaction's logs in some blocks; None where one of them was not answered."""
    found: list[ContractLog] = []
    for block in blocks:
        logs = logs_of[block]
        if isinstance(logs, Unanswered):
            return None
        found += [log for log in logs if log.tx_hash == tx_hash]
    return found


def _block_of(tx: ChainTransaction | Unanswered | None) -> set[BlockId]:
    if not isinstance(tx, ChainTransaction) or tx.block_number is None or tx.block_hash is None:
        return set()
    return {BlockId(tx.block_number, tx.block_hash)}


def _is_unsettled(tx: ChainTransaction | Unanswered | None, last: int) -> bool:
    """Tell whether it is still unknown which final block has a transaction, or that none has."""
    if tx is None or isinstance(tx, Unanswered):
        return tx is not None
    return tx.block_number is not None and tx.block_number > last


def _summed(votes: _Votes) -> LogProof:
    proven = [log for log in votes.logs if votes.proven(log)]
    found_transactions = {log.tx_hash for log in proven if isinstance(log, PaidLog)}
    return LogProof(
        logs=[log for log in proven if log.block_number <= votes.claim.last],
        absent={
            tx_hash
            for tx_hash in votes.claim.pending
            if votes.denied(tx_hash) and tx_hash not in found_transactions
        },
        unproven=[log for log in votes.claim.claimed if not votes.proven(log)],
        disputed=[log for log in votes.claim.claimed if votes.disputed(log)],
    )


def report_unproven_logs(chain: str, proof: LogProof) -> None:
    """Count logs that one endpoint reported and no other one has."""
    for log in proof.unproven:
        WRONG_ANSWERS.labels(chain, "unproven_log").inc()
        _log.warning("unproven_log", chain=chain, tx=log.tx_hash.hex(), block=log.block_number)
