"""Proof of what one endpoint says: another one says it too, word for word, in its receipts.

Silence is never proof of absence: that takes two endpoints which have the block, and deny.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from prometheus_client import Counter

from payintent.domain.errors import ChainDown
from payintent.domain.evm import ChainReader, Log, PaidLog, TxReceipt
from payintent.log import get

_log = get("prove")
_VOICES = 2  # that must say the same, where there are so many
_ASKED_ALONE = 3  # times, where there is but one: it may be many machines, and some of them late

LIES = Counter(
    "payintent_chain_lies_total",
    "What an endpoint said and another one disproved",
    ["chain", "what"],
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What is to be proven of the blocks up to `last`, which are final.

    `told` are the logs of one endpoint's search, `sighted` transactions that somebody has shown
    before. Only the denial of an endpoint that has the block counts (`able`).
    """

    supplier: str
    told: Sequence[Log]
    sighted: Collection[bytes] = ()
    contracts: Collection[bytes]
    last: int
    able: Collection[str]


@dataclass(slots=True)
class Proof:
    """What two endpoints say, or the only one there is."""

    logs: list[Log]  # proven, in final blocks
    absent: set[bytes]  # proven to be in no final block, or without a payment
    unproven: list[Log]  # told by the supplier, and by nobody else


@dataclass(slots=True)
class _Votes:
    """Who says what so far."""

    claim: Claim
    needed: int
    denials_needed: int
    logs: dict[Log, set[str]] = field(default_factory=dict[Log, set[str]])
    denials: dict[bytes, int] = field(default_factory=dict[bytes, int])

    def hear(self, name: str, tx_hash: bytes, receipt: TxReceipt | None) -> None:
        """Count what an endpoint says of one transaction."""
        logs = _ours(receipt, self.claim.contracts)
        for log in logs:
            self.logs.setdefault(log, set()).add(name)
        final = receipt is None or receipt.block_number <= self.claim.last
        if tx_hash in self.claim.sighted:  # as a payment: a refund beside it is none
            logs = [log for log in logs if isinstance(log, PaidLog)]
        if not logs and final and name in self.claim.able:
            self.denials[tx_hash] = self.denials.get(tx_hash, 0) + 1

    def proven(self, log: Log) -> bool:
        """Tell whether enough endpoints say it."""
        return len(self.logs.get(log, ())) >= self.needed

    def denied(self, tx_hash: bytes) -> bool:
        """Tell whether enough endpoints know of nothing by it."""
        return self.denials.get(tx_hash, 0) >= self.denials_needed

    def open(self) -> list[bytes]:
        """List the transactions of which more must be heard."""
        paid = {log.tx_hash for log in self.logs if isinstance(log, PaidLog)}
        settled = paid - self.doubtful()
        asked = self.doubtful() | set(self.claim.sighted) - settled
        return sorted(one for one in asked if not self.denied(one))

    def doubtful(self) -> set[bytes]:
        """Name the transactions of which not everything that was said is proven."""
        return {log.tx_hash for log in self.logs if not self.proven(log)}


async def prove(reader: ChainReader, claim: Claim) -> Proof:
    """Look transactions up at the other endpoints, and where these do not suffice at all of them.

    What counts is the receipt, with all its logs of our contracts, also those that the supplier
    has left out.
    """
    others = [name for name in reader.names if name != claim.supplier]
    votes = _Votes(
        claim=claim,
        needed=_VOICES if others else 1,
        denials_needed=_VOICES if others else _ASKED_ALONE,
    )
    for log in claim.told:
        votes.logs[log] = {claim.supplier} if others else set()
    for name in [*others, claim.supplier] if others else [claim.supplier] * _ASKED_ALONE:
        asked = votes.open()
        if not asked:
            break
        try:
            found = await reader.receipts(name, asked)
        except ChainDown:
            continue
        for tx_hash, receipt in zip(asked, found, strict=True):
            votes.hear(name, tx_hash, receipt)
    return _summed(votes)


def _summed(votes: _Votes) -> Proof:
    proven = [log for log in votes.logs if votes.proven(log)]
    spoken = {log.tx_hash for log in proven if isinstance(log, PaidLog)}
    return Proof(
        logs=[log for log in proven if log.block_number <= votes.claim.last],
        absent={one for one in votes.claim.sighted if votes.denied(one) and one not in spoken},
        unproven=[log for log in votes.claim.told if not votes.proven(log)],
    )


def report_lies(chain: str, proof: Proof) -> None:
    """Count logs that one endpoint told and that no other one knows."""
    for log in proof.unproven:
        LIES.labels(chain, "unproven_log").inc()
        _log.warning("unproven_log", chain=chain, tx=log.tx_hash.hex(), block=log.block_number)


def _ours(receipt: TxReceipt | None, contracts: Collection[bytes]) -> list[Log]:
    if receipt is None or receipt.status != 1:
        return []
    return [log for log in (*receipt.logs, *receipt.refunds) if log.contract in contracts]
