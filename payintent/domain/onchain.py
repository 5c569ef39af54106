"""On-chain payments judged: what a finalized receipt is, and how a session without one ends.

Pure: evidence in, decision out. Money moves on finalized blocks alone, and an exact receipt wins.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol
from uuid import UUID

from payintent.domain.case import CaseKind
from payintent.domain.gateway import (
    Capture,
    GatewayRefundRequest,
    GatewaySessionState,
    SessionReport,
)
from payintent.domain.onchain_refund import OnchainRefundFacts
from payintent.domain.payment import TERMINAL, FailureReason, Payment, PaymentTrigger
from payintent.domain.session import Session
from payintent.domain.settlement import SettlementDecision

PROVIDER = "gateway_contract"
#: Another attempt, or the exact payment behind a wrong one, may still come within this time.
SECOND_THOUGHT = timedelta(seconds=120)
#: A posted hash holds up a change of method for this long; then it is no sign of anything.
HINT_HOLDS = timedelta(minutes=10)
#: A payment that waits for its chain for so long is a case; nothing ends it without a block.
OUTAGE_MAX = timedelta(hours=24)


class TransferDisposition(StrEnum):
    """What a finalized `Paid` log is to us."""

    CREDITED = "credited"
    DUPLICATE = "duplicate"
    UNDERPAID = "underpaid"
    OVERPAID = "overpaid"
    WRONG_TOKEN = "wrong_token"  # noqa: S105 - a disposition
    WRONG_RECEIVER = "wrong_receiver"
    LATE = "late"
    CLOSED_SESSION = "closed_session"
    UNKNOWN_UUID = "unknown_uuid"


#: Whatever is not credited is a case: nothing that reached the contract is ever lost.
CASES: Mapping[TransferDisposition, CaseKind] = {
    TransferDisposition.DUPLICATE: CaseKind.DOUBLE_PAYMENT,
    TransferDisposition.UNDERPAID: CaseKind.AMOUNT_MISMATCH,
    TransferDisposition.OVERPAID: CaseKind.AMOUNT_MISMATCH,
    TransferDisposition.WRONG_TOKEN: CaseKind.TOKEN_MISMATCH,
    TransferDisposition.WRONG_RECEIVER: CaseKind.UNKNOWN_REFERENCE,
    TransferDisposition.LATE: CaseKind.LATE_PAYMENT,
    TransferDisposition.CLOSED_SESSION: CaseKind.ORPHAN_CAPTURE,
    TransferDisposition.UNKNOWN_UUID: CaseKind.UNKNOWN_REFERENCE,
}
#: What ends a payment at last, if nothing exact comes.
MISMATCHES: Mapping[TransferDisposition, FailureReason] = {
    TransferDisposition.UNDERPAID: FailureReason.AMOUNT_MISMATCH,
    TransferDisposition.OVERPAID: FailureReason.AMOUNT_MISMATCH,
    TransferDisposition.WRONG_TOKEN: FailureReason.TOKEN_MISMATCH,
}


@dataclass(frozen=True, slots=True)
class TransferDetails:
    """What a finalized log says, of the contract that the session was made with or another."""

    account_id: int  # whose contract wrote it
    token: bytes
    amount: int
    receiver: bytes


@dataclass(frozen=True, slots=True)
class ExpectedTransfer:
    """What a session's log must say to be exact."""

    token: bytes  # 20 zero bytes for the native coin
    amount: int
    receiver: bytes


def classify_transfer(
    paid: TransferDetails,
    bill: ExpectedTransfer | None,
    payment: Payment | None,
    session: Session | None,
) -> TransferDisposition:
    """Judge a finalized log against the locked payment and session that its uuid names."""
    if bill is None or payment is None or session is None or not _is_its(session, paid):
        return TransferDisposition.UNKNOWN_UUID
    if paid.receiver != bill.receiver:
        return TransferDisposition.WRONG_RECEIVER
    if payment.session_id != session.id:
        return TransferDisposition.CLOSED_SESSION
    if payment.paid_at is not None:
        return TransferDisposition.DUPLICATE
    if payment.status in TERMINAL:
        return TransferDisposition.LATE
    return _measure(paid, bill)


_CREDIT = SettlementDecision(
    trigger=PaymentTrigger.CONFIRM, outcome=GatewaySessionState.CAPTURED.value, credited=True
)


def decide_transfer(disposition: TransferDisposition) -> SettlementDecision:
    """Say what a final transfer does: it pays its payment, or is a case and changes nothing."""
    if disposition is TransferDisposition.CREDITED:
        return _CREDIT
    return SettlementDecision(case=CASES[disposition])


def _is_its(session: Session, paid: TransferDetails) -> bool:
    """Tell whether the session's own contract wrote the log."""
    return session.quote.account_id == paid.account_id


def is_exact_transfer(paid: TransferDetails, bill: ExpectedTransfer) -> bool:
    """Tell whether a log says just what its session asked for."""
    return paid.receiver == bill.receiver and _measure(paid, bill) is TransferDisposition.CREDITED


def _measure(paid: TransferDetails, bill: ExpectedTransfer) -> TransferDisposition:
    if paid.token != bill.token:
        return TransferDisposition.WRONG_TOKEN
    if paid.amount == bill.amount:
        return TransferDisposition.CREDITED
    return (
        TransferDisposition.UNDERPAID if paid.amount < bill.amount else TransferDisposition.OVERPAID
    )


class PostedTransactionState(StrEnum):
    """What became of a transaction whose hash the page posted; a hint is never proof."""

    UNKNOWN = "unknown"  # no endpoint has it
    PENDING = "pending"  # known, not mined
    MINED = "mined"  # succeeded: its log tells the rest
    REVERTED = "reverted"
    FOREIGN = "foreign"  # not a payment of this session: means nothing
    DUPLICATE = "duplicate"  # reverted with "already paid": a second click


@dataclass(frozen=True, slots=True, kw_only=True)
class PostedTransaction:
    """A posted transaction, as far as it was looked at."""

    state: PostedTransactionState
    reason: str  # of a revert, in the contract's word
    final: bool
    posted_at: datetime
    settled_at: datetime | None  # when it was first seen final


@dataclass(frozen=True, slots=True, kw_only=True)
class MismatchedTransfer:
    """A finalized log that is not the bill."""

    disposition: TransferDisposition
    posted: bool  # its hash was posted to this very session
    final_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class OnchainEvidence:
    """All that is known of one session on its chain, at one moment of the database's clock."""

    now: datetime
    deadline: datetime
    window_at: datetime | None  # up to here two endpoints have shown the unfinalized logs
    final_at: datetime | None  # of the last block of the final pass
    exact_sighted: bool
    exact_gone: bool  # one was sighted, and is proven to be no more
    hints: tuple[PostedTransaction, ...] = ()
    mismatches: tuple[MismatchedTransfer, ...] = ()
    captured: Capture | None = None  # a final receipt was credited


def decide_onchain_session(evidence: OnchainEvidence) -> SessionReport:
    """Say how a session stands: it was paid, goes on, is under way, or ends.

    Without a credited receipt it is `OPEN` before its deadline, `AUTHORISING` while something may
    still come of it, `DECLINED` with a reason, or `CLOSED` where nothing was ever paid.
    """
    if evidence.captured is not None:
        return SessionReport(state=GatewaySessionState.CAPTURED, capture=evidence.captured)
    if evidence.exact_sighted:
        return _UNDER_WAY  # it waits for finality, however long that takes
    if evidence.now < evidence.deadline:
        return _before_deadline(evidence)
    return _after_deadline(evidence)


_UNDER_WAY = SessionReport(state=GatewaySessionState.AUTHORISING)
_NOTHING = SessionReport(state=GatewaySessionState.CLOSED)


def _failed(reason: FailureReason) -> SessionReport:
    return SessionReport(state=GatewaySessionState.DECLINED, reason=reason)


def _before_deadline(evidence: OnchainEvidence) -> SessionReport:
    """End early only on what nobody else can bring about: the buyer's own posted transactions."""
    reverts = _reverts(evidence)
    if any(revert.reason == "expired" for revert in reverts) or _has_waited(evidence, reverts):
        return _failed(FailureReason.TX_REVERTED)
    posted = [
        mismatch
        for mismatch in evidence.mismatches
        if mismatch.posted and evidence.now - mismatch.final_at >= SECOND_THOUGHT
    ]
    if posted:
        return _failed(MISMATCHES[posted[-1].disposition])
    fresh = [
        transaction
        for transaction in _undecided(evidence)
        if evidence.now - transaction.posted_at < HINT_HOLDS
    ]
    return _UNDER_WAY if fresh else SessionReport(state=GatewaySessionState.OPEN)


def _after_deadline(evidence: OnchainEvidence) -> SessionReport:
    if evidence.final_at is not None and evidence.final_at > evidence.deadline:
        return _at_last(evidence)
    traces = evidence.hints or evidence.mismatches or evidence.exact_gone
    # Blocks of the deadline's own second may still come: many chains make several in one.
    quiet = evidence.window_at is not None and evidence.window_at > evidence.deadline
    return _NOTHING if quiet and not traces else _UNDER_WAY


def _at_last(evidence: OnchainEvidence) -> SessionReport:
    """Decide: no block before the deadline can come any more."""
    if evidence.mismatches:
        return _failed(MISMATCHES[evidence.mismatches[-1].disposition])
    if _reverts(evidence):
        return _failed(FailureReason.TX_REVERTED)
    if evidence.exact_gone or _undecided(evidence):
        return _failed(FailureReason.ONCHAIN_TIMEOUT)
    return _NOTHING


def _reverts(evidence: OnchainEvidence) -> list[PostedTransaction]:
    return [
        transaction
        for transaction in evidence.hints
        if transaction.state is PostedTransactionState.REVERTED and transaction.final
    ]


def _undecided(evidence: OnchainEvidence) -> list[PostedTransaction]:
    undecided = {PostedTransactionState.UNKNOWN, PostedTransactionState.PENDING}
    return [
        transaction
        for transaction in evidence.hints
        if transaction.state in undecided
        or (
            transaction.state in {PostedTransactionState.MINED, PostedTransactionState.REVERTED}
            and not transaction.final
        )
    ]


def _has_waited(evidence: OnchainEvidence, reverts: list[PostedTransaction]) -> bool:
    """Tell whether the buyer has left a revert behind, without trying again."""
    if not reverts or _undecided(evidence):
        return False
    settled = [revert.settled_at for revert in reverts if revert.settled_at is not None]
    return bool(settled) and evidence.now - max(settled) >= SECOND_THOUGHT


class OnchainRecords(Protocol):
    """What is known of sessions and refunds on their chains, and what signers were asked for."""

    async def evidence(self, session_id: UUID) -> OnchainEvidence | None:
        """Give what is known of a session; None where it is not an on-chain one."""
        ...

    async def get_refund_facts(
        self, account_id: int, request: GatewayRefundRequest
    ) -> OnchainRefundFacts | None:
        """Give what is known of a refund; None where its money did not come by a chain."""
        ...

    async def claim_for_sender(self, refund_id: UUID, sender: bytes) -> bool:
        """Note that a signer is about to be asked; False where another sender was asked before."""
        ...

    async def set_transaction_hash(self, refund_id: UUID, tx_hash: bytes) -> None:
        """Keep the transaction that a signer told."""
        ...

    async def note_reverted(self, refund_id: UUID, tx_hash: bytes) -> int:
        """Count a transaction whose revert is final, once; gives how many of the refund were."""
        ...
