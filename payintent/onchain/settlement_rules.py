"""Decides whether a transfer pays its session, or opens a case because it is late or wrong.

Only transfers in final blocks settle a payment. An exact transfer takes precedence over all other
evidence.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from payintent.cases.model import CaseKind
from payintent.gateways.port import Capture, FailureReason, GatewaySessionState, SessionReport
from payintent.payment_sessions.settlement_rules import SettlementDecision
from payintent.payments.model import RETRY_GRACE, TERMINAL, Payment, PaymentTrigger, Session

#: A posted transaction delays a change of the payment method for this long.
POSTED_TRANSACTION_HOLD = timedelta(minutes=10)
#: If a payment waits this long for its chain, a case is opened. The payment stays open.
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


#: Every transfer that is not credited opens a case, so that no received money is lost.
CASE_KINDS: Mapping[TransferDisposition, CaseKind] = {
    TransferDisposition.DUPLICATE: CaseKind.DOUBLE_PAYMENT,
    TransferDisposition.UNDERPAID: CaseKind.AMOUNT_MISMATCH,
    TransferDisposition.OVERPAID: CaseKind.AMOUNT_MISMATCH,
    TransferDisposition.WRONG_TOKEN: CaseKind.TOKEN_MISMATCH,
    TransferDisposition.WRONG_RECEIVER: CaseKind.UNKNOWN_REFERENCE,
    TransferDisposition.LATE: CaseKind.LATE_PAYMENT,
    TransferDisposition.CLOSED_SESSION: CaseKind.ORPHAN_CAPTURE,
    TransferDisposition.UNKNOWN_UUID: CaseKind.UNKNOWN_REFERENCE,
}
#: Failure reason of a payment after a mismatch, if no exact transfer follows.
MISMATCH_REASONS: Mapping[TransferDisposition, FailureReason] = {
    TransferDisposition.UNDERPAID: FailureReason.AMOUNT_MISMATCH,
    TransferDisposition.OVERPAID: FailureReason.AMOUNT_MISMATCH,
    TransferDisposition.WRONG_TOKEN: FailureReason.TOKEN_MISMATCH,
}


@dataclass(frozen=True, slots=True)
class TransferDetails:
    account_id: int  # of the contract that emitted the log
    token: bytes
    amount: int
    receiver: bytes


@dataclass(frozen=True, slots=True)
class ExpectedTransfer:
    token: bytes  # 20 zero bytes for the native coin
    amount: int
    receiver: bytes


def classify_transfer(
    transfer: TransferDetails,
    expected: ExpectedTransfer | None,
    payment: Payment | None,
    session: Session | None,
) -> TransferDisposition:
    if (
        expected is None
        or payment is None
        or session is None
        or session.quote.account_id != transfer.account_id
    ):
        return TransferDisposition.UNKNOWN_UUID
    if transfer.receiver != expected.receiver:
        return TransferDisposition.WRONG_RECEIVER
    if payment.session_id != session.id:
        return TransferDisposition.CLOSED_SESSION
    if payment.paid_at is not None:
        return TransferDisposition.DUPLICATE
    if payment.status in TERMINAL:
        return TransferDisposition.LATE
    return _compare_with_expected(transfer, expected)


_CREDIT = SettlementDecision(
    trigger=PaymentTrigger.CONFIRM, outcome=GatewaySessionState.CAPTURED.value, credited=True
)


def decide_transfer(disposition: TransferDisposition) -> SettlementDecision:
    if disposition is TransferDisposition.CREDITED:
        return _CREDIT
    return SettlementDecision(case=CASE_KINDS[disposition])


def is_exact_transfer(transfer: TransferDetails, expected: ExpectedTransfer) -> bool:
    return (
        transfer.receiver == expected.receiver
        and _compare_with_expected(transfer, expected) is TransferDisposition.CREDITED
    )


def _compare_with_expected(
    transfer: TransferDetails, expected: ExpectedTransfer
) -> TransferDisposition:
    if transfer.token != expected.token:
        return TransferDisposition.WRONG_TOKEN
    if transfer.amount == expected.amount:
        return TransferDisposition.CREDITED
    return (
        TransferDisposition.UNDERPAID
        if transfer.amount < expected.amount
        else TransferDisposition.OVERPAID
    )


class PostedTransactionState(StrEnum):
    """The state of a transaction whose hash was posted by the checkout page.

    A posted hash is not treated as proof of payment.
    """

    UNKNOWN = "unknown"  # not known to any endpoint
    PENDING = "pending"  # not mined
    MINED = "mined"  # mined successfully; the log decides
    REVERTED = "reverted"
    FOREIGN = "foreign"  # does not pay this session; ignored
    DUPLICATE = "duplicate"  # reverted with "already paid", because the buyer paid twice


@dataclass(frozen=True, slots=True, kw_only=True)
class PostedTransaction:
    state: PostedTransactionState
    reason: str  # the contract's revert reason
    final: bool
    posted_at: datetime
    settled_at: datetime | None  # when it was first seen as final


@dataclass(frozen=True, slots=True, kw_only=True)
class MismatchedTransfer:
    disposition: TransferDisposition
    was_posted: bool  # its hash was posted for this session
    final_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class OnchainEvidence:
    """Facts about an on-chain session at `now`, the database's time."""

    now: datetime
    deadline: datetime
    window_at: datetime | None  # two endpoints have returned all logs up to this time
    final_at: datetime | None  # time of the last final block read
    is_exact_pending: bool
    is_exact_gone: bool  # a pending exact transfer is proven to be gone
    posted_transactions: tuple[PostedTransaction, ...] = ()
    mismatches: tuple[MismatchedTransfer, ...] = ()
    capture: Capture | None = None  # of the credited transfer


def decide_onchain_session(evidence: OnchainEvidence) -> SessionReport:
    """Decide a session's state.

    Without a credited transfer, the state is `OPEN` before the deadline, `AUTHORISING` while a
    transfer may still be credited, `DECLINED` with a reason, or `CLOSED` if nothing was ever paid.
    """
    if evidence.capture is not None:
        return SessionReport(state=GatewaySessionState.CAPTURED, capture=evidence.capture)
    if evidence.is_exact_pending:
        return _IN_PROGRESS  # waits for finality without a time limit
    if evidence.now < evidence.deadline:
        return _decide_before_deadline(evidence)
    return _decide_after_deadline(evidence)


_IN_PROGRESS = SessionReport(state=GatewaySessionState.AUTHORISING)
_UNPAID = SessionReport(state=GatewaySessionState.CLOSED)


def _decline(reason: FailureReason) -> SessionReport:
    return SessionReport(state=GatewaySessionState.DECLINED, reason=reason)


def _decide_before_deadline(evidence: OnchainEvidence) -> SessionReport:
    """Decline early only because of transactions that the checkout page has posted."""
    reverts = _list_final_reverts(evidence)
    if any(revert.reason == "expired" for revert in reverts) or _is_retry_over(evidence, reverts):
        return _decline(FailureReason.TX_REVERTED)
    mismatches = [
        mismatch
        for mismatch in evidence.mismatches
        if mismatch.was_posted and evidence.now - mismatch.final_at >= RETRY_GRACE
    ]
    if mismatches:
        return _decline(MISMATCH_REASONS[mismatches[-1].disposition])
    has_recent_post = any(
        evidence.now - transaction.posted_at < POSTED_TRANSACTION_HOLD
        for transaction in _list_undecided(evidence)
    )
    return _IN_PROGRESS if has_recent_post else SessionReport(state=GatewaySessionState.OPEN)


def _decide_after_deadline(evidence: OnchainEvidence) -> SessionReport:
    if evidence.final_at is not None and evidence.final_at > evidence.deadline:
        return _decide_after_final_deadline(evidence)
    has_evidence = evidence.posted_transactions or evidence.mismatches or evidence.is_exact_gone
    # Not `>=`, because many chains produce several blocks per second.
    is_window_over = evidence.window_at is not None and evidence.window_at > evidence.deadline
    return _UNPAID if is_window_over and not has_evidence else _IN_PROGRESS


def _decide_after_final_deadline(evidence: OnchainEvidence) -> SessionReport:
    """Decide once all blocks up to the deadline are final."""
    if evidence.mismatches:
        return _decline(MISMATCH_REASONS[evidence.mismatches[-1].disposition])
    if _list_final_reverts(evidence):
        return _decline(FailureReason.TX_REVERTED)
    if evidence.is_exact_gone or _list_undecided(evidence):
        return _decline(FailureReason.ONCHAIN_TIMEOUT)
    return _UNPAID


def _list_final_reverts(evidence: OnchainEvidence) -> list[PostedTransaction]:
    return [
        transaction
        for transaction in evidence.posted_transactions
        if transaction.state is PostedTransactionState.REVERTED and transaction.final
    ]


def _list_undecided(evidence: OnchainEvidence) -> list[PostedTransaction]:
    ignored = {PostedTransactionState.FOREIGN, PostedTransactionState.DUPLICATE}
    return [
        transaction
        for transaction in evidence.posted_transactions
        if not transaction.final and transaction.state not in ignored
    ]


def _is_retry_over(evidence: OnchainEvidence, reverts: list[PostedTransaction]) -> bool:
    """Return whether the buyer's time to retry after a revert is over."""
    if not reverts or _list_undecided(evidence):
        return False
    times = [revert.settled_at for revert in reverts if revert.settled_at is not None]
    return bool(times) and evidence.now - max(times) >= RETRY_GRACE
