"""Decisions about on-chain payments: what a final transfer is, and how a session ends without one.

Pure: evidence in, decision out. Only final blocks settle a payment, and an exact transfer wins.
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
#: Another attempt, or the exact payment after a wrong one, may still come within this time.
SECOND_THOUGHT = timedelta(seconds=120)
#: A posted transaction delays a change of method for this long; then it is ignored.
POSTED_TRANSACTION_HOLDS = timedelta(minutes=10)
#: A payment that waits for its chain for so long becomes a case; only a final block ends it.
OUTAGE_MAX = timedelta(hours=24)


class TransferDisposition(StrEnum):
    CREDITED = "credited"
    DUPLICATE = "duplicate"
    UNDERPAID = "underpaid"
    OVERPAID = "overpaid"
    WRONG_TOKEN = "wrong_token"  # noqa: S105 - a disposition
    WRONG_RECEIVER = "wrong_receiver"
    LATE = "late"
    CLOSED_SESSION = "closed_session"
    UNKNOWN_UUID = "unknown_uuid"


#: Every transfer that is not credited opens a case: nothing the contract took is ever lost.
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
#: The reason with which a payment fails after a mismatch, if no exact transfer follows.
MISMATCHES: Mapping[TransferDisposition, FailureReason] = {
    TransferDisposition.UNDERPAID: FailureReason.AMOUNT_MISMATCH,
    TransferDisposition.OVERPAID: FailureReason.AMOUNT_MISMATCH,
    TransferDisposition.WRONG_TOKEN: FailureReason.TOKEN_MISMATCH,
}


@dataclass(frozen=True, slots=True)
class TransferDetails:
    """A final log, and whether the session was made with the contract that wrote it."""

    account_id: int  # of the contract that wrote it
    token: bytes
    amount: int
    receiver: bytes


@dataclass(frozen=True, slots=True)
class ExpectedTransfer:
    token: bytes  # 20 zero bytes for the native coin
    amount: int
    receiver: bytes


def classify_transfer(
    paid: TransferDetails,
    expected: ExpectedTransfer | None,
    payment: Payment | None,
    session: Session | None,
) -> TransferDisposition:
    if expected is None or payment is None or session is None or not _is_its(session, paid):
        return TransferDisposition.UNKNOWN_UUID
    if paid.receiver != expected.receiver:
        return TransferDisposition.WRONG_RECEIVER
    if payment.session_id != session.id:
        return TransferDisposition.CLOSED_SESSION
    if payment.paid_at is not None:
        return TransferDisposition.DUPLICATE
    if payment.status in TERMINAL:
        return TransferDisposition.LATE
    return _measure(paid, expected)


_CREDIT = SettlementDecision(
    trigger=PaymentTrigger.CONFIRM, outcome=GatewaySessionState.CAPTURED.value, credited=True
)


def decide_transfer(disposition: TransferDisposition) -> SettlementDecision:
    """Say what a final transfer does: it pays its payment, or is a case and changes nothing."""
    if disposition is TransferDisposition.CREDITED:
        return _CREDIT
    return SettlementDecision(case=CASES[disposition])


def _is_its(session: Session, paid: TransferDetails) -> bool:
    return session.quote.account_id == paid.account_id


def is_exact_transfer(paid: TransferDetails, expected: ExpectedTransfer) -> bool:
    return (
        paid.receiver == expected.receiver
        and _measure(paid, expected) is TransferDisposition.CREDITED
    )


def _measure(paid: TransferDetails, expected: ExpectedTransfer) -> TransferDisposition:
    if paid.token != expected.token:
        return TransferDisposition.WRONG_TOKEN
    if paid.amount == expected.amount:
        return TransferDisposition.CREDITED
    return (
        TransferDisposition.UNDERPAID
        if paid.amount < expected.amount
        else TransferDisposition.OVERPAID
    )


class PostedTransactionState(StrEnum):
    """The state of a posted transaction: the page sent its hash, which proves nothing."""

    UNKNOWN = "unknown"  # no endpoint has it
    PENDING = "pending"  # pending, not mined
    MINED = "mined"  # succeeded: its log decides
    REVERTED = "reverted"
    FOREIGN = "foreign"  # not a payment of this session: ignored
    DUPLICATE = "duplicate"  # reverted with "already paid": the buyer clicked twice


@dataclass(frozen=True, slots=True, kw_only=True)
class PostedTransaction:
    state: PostedTransactionState
    reason: str  # of a revert, as the contract gives it
    final: bool
    posted_at: datetime
    settled_at: datetime | None  # when it was first seen final


@dataclass(frozen=True, slots=True, kw_only=True)
class MismatchedTransfer:
    disposition: TransferDisposition
    posted: bool  # its hash was posted for this very session
    final_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class OnchainEvidence:
    """All facts about one session on its chain, at one moment of the database's clock."""

    now: datetime
    deadline: datetime
    window_at: datetime | None  # up to here two endpoints have shown the logs that are not final
    final_at: datetime | None  # of the last block of the final pass
    exact_sighted: bool
    exact_gone: bool  # an exact transfer was pending, and is proven to be gone
    posted: tuple[PostedTransaction, ...] = ()
    mismatches: tuple[MismatchedTransfer, ...] = ()
    captured: Capture | None = None  # a final transfer was credited


def decide_onchain_session(evidence: OnchainEvidence) -> SessionReport:
    """Decide how a session stands: paid, open, authorising, or ended.

    Without a credited transfer it is `OPEN` before its deadline, `AUTHORISING` while something may
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
    """End early only on what the buyer alone can cause: transactions posted by the page."""
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
        if evidence.now - transaction.posted_at < POSTED_TRANSACTION_HOLDS
    ]
    return _UNDER_WAY if fresh else SessionReport(state=GatewaySessionState.OPEN)


def _after_deadline(evidence: OnchainEvidence) -> SessionReport:
    if evidence.final_at is not None and evidence.final_at > evidence.deadline:
        return _at_last(evidence)
    traces = evidence.posted or evidence.mismatches or evidence.exact_gone
    # Blocks of the deadline's own second may still come: many chains make several in one second.
    quiet = evidence.window_at is not None and evidence.window_at > evidence.deadline
    return _NOTHING if quiet and not traces else _UNDER_WAY


def _at_last(evidence: OnchainEvidence) -> SessionReport:
    """Decide when no block before the deadline can come any more."""
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
        for transaction in evidence.posted
        if transaction.state is PostedTransactionState.REVERTED and transaction.final
    ]


def _undecided(evidence: OnchainEvidence) -> list[PostedTransaction]:
    undecided = {PostedTransactionState.UNKNOWN, PostedTransactionState.PENDING}
    return [
        transaction
        for transaction in evidence.posted
        if transaction.state in undecided
        or (
            transaction.state in {PostedTransactionState.MINED, PostedTransactionState.REVERTED}
            and not transaction.final
        )
    ]


def _has_waited(evidence: OnchainEvidence, reverts: list[PostedTransaction]) -> bool:
    """Tell whether a revert is older than the time in which the buyer may try again."""
    if not reverts or _undecided(evidence):
        return False
    settled = [revert.settled_at for revert in reverts if revert.settled_at is not None]
    return bool(settled) and evidence.now - max(settled) >= SECOND_THOUGHT


class OnchainRecords(Protocol):
    """The stored facts of sessions and refunds on chains, and the requests made to signers."""

    async def evidence(self, session_id: UUID) -> OnchainEvidence | None:
        """Return the facts of a session; None where it is not an on-chain one."""
        ...

    async def get_refund_facts(
        self, account_id: int, request: GatewayRefundRequest
    ) -> OnchainRefundFacts | None:
        """Return the facts of a refund; None where its money did not come by a chain."""
        ...

    async def claim_for_sender(self, refund_id: UUID, sender: bytes) -> bool:
        """Record that a signer is about to be asked; False where another sender was before."""
        ...

    async def spend_automatic_gas(self, chain: str, gas: int) -> bool:
        """Count gas of an automatic refund; False, and nothing is counted, beyond the day's."""
        ...

    async def set_transaction_hash(self, refund_id: UUID, tx_hash: bytes) -> None: ...

    async def note_reverted(self, refund_id: UUID, tx_hash: bytes) -> int:
        """Count a transaction whose revert is final, once; returns the refund's count of them."""
        ...
