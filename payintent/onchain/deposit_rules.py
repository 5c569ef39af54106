"""Decide whether the transfers to a deposit address settle its session.

A deposit session has its own address, and any number of transfers may arrive there. Only final
transfers count, and a transfer is on time if its block's timestamp is not after the deadline.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from payintent.gateways.port import Capture, FailureReason, GatewaySessionState, SessionReport


@dataclass(frozen=True, slots=True)
class FinalDeposit:
    """A final transfer to a session's address, not yet included in a capture."""

    id: UUID
    reference: str  # `0x`, the transaction hash, `:` and the log index
    currency: str  # the token's symbol or, if the token is not supported, its address
    amount: int  # in the token's smallest unit
    mined_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class DepositEvidence:
    """Facts about a deposit session at `now` (database time). Amounts are in the smallest unit."""

    now: datetime
    deadline: datetime
    currency: str
    amount: int
    tolerance: int  # the largest shortfall that is accepted
    surplus_min: int  # a smaller surplus stays part of the payment's capture
    is_current: bool  # its payment is PROCESSING and uses this session
    #: The time of the last final block read for this address; None until its first blocks are read.
    read_until: datetime | None
    has_pending: bool  # a transfer in a block that is not final, or an unproven transfer
    has_unproven: bool  # a transfer in a final block that too few endpoints report
    was_pending: bool  # a pending transfer was found, but has been proven to be gone
    deposits: tuple[FinalDeposit, ...] = ()  # in chain order


@dataclass(frozen=True, slots=True)
class DepositCapture:
    """A capture, the deposit that completed it, and the deposits that it includes.

    A surplus does not include any deposits, because they are part of the payment's capture.
    """

    report: SessionReport
    last_id: UUID
    deposit_ids: tuple[UUID, ...] = ()


_OPEN = SessionReport(state=GatewaySessionState.OPEN)
_IN_PROGRESS = SessionReport(state=GatewaySessionState.AUTHORISING)
_UNPAID = SessionReport(state=GatewaySessionState.CLOSED)
_NEVER_FINAL = SessionReport(
    state=GatewaySessionState.DECLINED, reason=FailureReason.ONCHAIN_TIMEOUT
)


def decide_captures(evidence: DepositEvidence) -> list[DepositCapture]:
    """Return the captures of the final transfers, in the order in which to apply them.

    A session that can still be paid collects transfers until they reach the amount, or until all
    transfers up to its deadline are known. A session that can no longer be paid reports its
    transfers as they arrive. These are added up per token, so that many small transfers do not each
    open a case.
    """
    if not evidence.is_current:
        return _capture_per_token(evidence.deposits)
    timely = [item for item in evidence.deposits if item.mined_at <= evidence.deadline]
    matching = [item for item in timely if item.currency == evidence.currency]
    total = sum(item.amount for item in matching)
    if matching and total >= evidence.amount - evidence.tolerance:
        return _pay(evidence, matching, total)
    if not _is_deadline_final(evidence):
        return []
    if matching:
        return [_capture(matching)]
    return _capture_per_token(timely)


def decide_deposit_session(evidence: DepositEvidence) -> SessionReport:
    """Decide the state of a session whose transfers do not result in a capture.

    Captures are reported only by `decide_captures`. A session with transfers stays in progress
    until they are captured.
    """
    if not _is_deadline_final(evidence):
        is_waiting = evidence.has_pending or evidence.deposits or evidence.now >= evidence.deadline
        return _IN_PROGRESS if is_waiting else _OPEN
    timely = [item for item in evidence.deposits if item.mined_at <= evidence.deadline]
    if evidence.is_current and timely:
        return _IN_PROGRESS
    return _NEVER_FINAL if evidence.was_pending else _UNPAID


def _is_deadline_final(evidence: DepositEvidence) -> bool:
    """Return whether all transfers up to the deadline are known."""
    is_read = evidence.read_until is not None and evidence.read_until > evidence.deadline
    return is_read and not evidence.has_unproven


def _pay(
    evidence: DepositEvidence, matching: Sequence[FinalDeposit], total: int
) -> list[DepositCapture]:
    """Capture the matching transfers. A surplus of `surplus_min` or more is captured separately."""
    surplus = total - evidence.amount
    if surplus < max(evidence.surplus_min, 1):
        return [_capture(matching, total, difference_max=abs(surplus))]
    last = matching[-1]
    surplus_capture = Capture(
        reference=f"surplus:{last.reference}",
        amount_minor=surplus,
        currency=last.currency,
        is_surplus=True,
    )
    return [
        _capture(matching, evidence.amount),
        DepositCapture(
            SessionReport(state=GatewaySessionState.CAPTURED, capture=surplus_capture), last.id
        ),
    ]


def _capture_per_token(deposits: Sequence[FinalDeposit]) -> list[DepositCapture]:
    by_currency: dict[str, list[FinalDeposit]] = {}
    for item in deposits:
        by_currency.setdefault(item.currency, []).append(item)
    return [_capture(items) for items in by_currency.values()]


def _capture(
    deposits: Sequence[FinalDeposit], amount: int | None = None, difference_max: int = 0
) -> DepositCapture:
    """Build a capture of transfers in one token. It has the last transfer's reference."""
    last = deposits[-1]
    capture = Capture(
        reference=last.reference,
        amount_minor=sum(item.amount for item in deposits) if amount is None else amount,
        currency=last.currency,
        difference_max=difference_max,
    )
    return DepositCapture(
        SessionReport(state=GatewaySessionState.CAPTURED, capture=capture),
        last.id,
        tuple(item.id for item in deposits),
    )
