"""Receives verified callbacks: each stored once, in the transaction that applies it."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from uuid import UUID

import msgspec

from payintent import tracing
from payintent.domain import ids
from payintent.domain.card_data import mask_card_data
from payintent.domain.case import CaseKind, MoneyOrigin
from payintent.domain.errors import ErrorCode, RefusedError, StorageUnavailableError
from payintent.domain.gateway import (
    Capture,
    GatewaySessionState,
    SessionReport,
    VerifiedCallback,
)
from payintent.domain.payment import FailureReason
from payintent.log import get_logger
from payintent.payments.cases import open_case
from payintent.payments.record_dispute import take_dispute
from payintent.payments.record_fraud_warning import record_fraud_warning
from payintent.payments.record_outside_refund import (
    RefundUnderWayError,
    open_outside_refund_case,
    record_outside_refund,
)
from payintent.payments.reported_capture import EarlyReportError
from payintent.payments.settle import (
    ReportedSession,
    settle_session,
    settle_sessions,
    verbatim_note,
)
from payintent.payments.settle_refund import settle_refund
from payintent.storage import callbacks, captures, refunds, sessions
from payintent.storage.batcher import LOCK_TIMEOUT_MS, Batcher
from payintent.storage.callbacks import NewCallback, WaitingCallback
from payintent.storage.database import Database, Tx

_log = get_logger("receive")
_LATE_S = 0.1  # of a transaction of many statements


class _Kept(msgspec.Struct):
    """A report as JSON, for a callback that must wait for its session."""

    state: GatewaySessionState
    reason: FailureReason | None
    reference: str | None
    amount_minor: int | None
    currency: str | None
    verbatim: str | None = None
    uncertain: bool = False


@dataclass(frozen=True, slots=True)
class CallbackResult:
    """The result of a callback; each of these is answered with success."""

    fresh: bool
    payment_id: UUID | None


@dataclass(frozen=True, slots=True)
class _Received:
    account_id: int
    callback: VerifiedCallback
    body: bytes

    @property
    def key(self) -> tuple[int, str]:
        return self.account_id, self.callback.id


class _SharedPaymentError(Exception):
    """Two callbacks of a batch are about one payment: each has to see what the other has done."""


class CallbackReceiver:
    """Stores callbacks and applies them; those that arrive together share a transaction.

    A duplicate changes nothing, nor does a callback about nothing of ours.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._settling = Batcher(
            together=self._settle,
            identities=_identities,
            late_s=_LATE_S,
        )

    async def receive(
        self, account_id: int, callback: VerifiedCallback, body: bytes
    ) -> CallbackResult:
        """Store a callback and apply it, in one transaction.

        Money for an unknown session opens a case at once; it pays the session if that appears.
        """
        received = _Received(account_id, callback, body)
        if callback.refund_id is not None and await self._is_ours(received, callback.refund_id):
            return await self._receive_refund(received, callback.refund_id)
        if any([callback.dispute, callback.outside_refund, callback.fraud_warning]):
            return await self._receive_about_capture(received)
        result = await self._settling.run(received)
        if result.payment_id is not None:
            tracing.follow_payment(result.payment_id)
        return result

    async def close(self) -> None:
        await self._settling.close()

    async def _settle(self, batch: Sequence[_Received]) -> list[CallbackResult]:
        patience_ms = LOCK_TIMEOUT_MS if len(batch) > 1 else None
        async with self._database.transaction(patience_ms) as tx:
            return await self._apply(tx, batch)

    async def _apply(self, tx: Tx, batch: Sequence[_Received]) -> list[CallbackResult]:
        """Store callbacks, and settle what those say that are new."""
        payment_ids = await callbacks.add(tx, [_new_callback(received) for received in batch])
        results = [
            CallbackResult(received.key in payment_ids, payment_ids.get(received.key))
            for received in batch
        ]
        fresh = [
            (received, result.payment_id)
            for received, result in zip(batch, results, strict=True)
            if result.fresh
        ]
        await self._settle_known(tx, fresh)
        for received, payment_id in fresh:
            if payment_id is None:
                await _keep_unknown(tx, received)
        return results

    async def _settle_known(self, tx: Tx, fresh: Sequence[tuple[_Received, UUID | None]]) -> None:
        reported = [
            ReportedSession(payment_id, received.callback.session_id, received.callback.report)
            for received, payment_id in fresh
            if payment_id and received.callback.session_id and received.callback.report
        ]
        if len({item.payment_id for item in reported}) < len(reported):
            raise _SharedPaymentError
        if reported:
            await settle_sessions(tx, reported)

    async def _receive_about_capture(self, received: _Received) -> CallbackResult:
        """Store a report about money that was captured, and apply it.

        A report that arrives before its money, or during a refund of the same money, is not
        received (`CONFLICT`): its gateway calls again. Until then the session is inquired about, or
        the refund settled.
        """
        try:
            return await self._apply_about_capture(received)
        except EarlyReportError as early:
            await sessions.request_inquiry(self._database, early.session_id)
            session = ids.format_id(ids.SESSION, early.session_id)
            _log.warning("report_early", account=received.account_id, session=session)
            raise _call_again("this money is not known yet, call again") from None
        except RefundUnderWayError:
            report = received.callback.outside_refund
            assert report is not None  # noqa: S101 - nothing else raises it
            async with self._database.transaction() as tx:
                await open_outside_refund_case(tx, received.account_id, report)
            raise _call_again("a refund of this money is under way, call again") from None

    async def _apply_about_capture(self, received: _Received) -> CallbackResult:
        account_id, callback = received.account_id, received.callback
        async with self._database.transaction() as tx:
            [result] = await self._apply(tx, [received])
            if not result.fresh:
                return result
            payment_id = None
            if callback.dispute is not None:
                payment_id = await take_dispute(tx, account_id, callback.dispute)
            if callback.outside_refund is not None:
                payment_id = await record_outside_refund(tx, account_id, callback.outside_refund)
            if callback.fraud_warning is not None:
                payment_id = await record_fraud_warning(tx, account_id, callback.fraud_warning)
        return CallbackResult(True, result.payment_id or payment_id)

    async def _is_ours(self, received: _Received, refund_id: UUID) -> bool:
        """Tell whether a report is about a refund of this account, or can be about nothing else.

        A refund is stored before its gateway gets it, so no report has to wait for one.
        """
        if received.callback.outside_refund is None:
            return True
        owner = await refunds.find_account_and_payment(self._database, refund_id)
        return owner is not None and owner[0] == received.account_id

    async def _receive_refund(self, received: _Received, refund_id: UUID) -> CallbackResult:
        """Store a report about a refund, and apply it if the refund is of this account."""
        found = await refunds.find_account_and_payment(self._database, refund_id)
        ours = found is not None and found[0] == received.account_id
        report = received.callback.refund
        async with self._database.transaction() as tx:
            fresh = bool(await callbacks.add(tx, [_new_callback(received)]))
            if fresh and ours and report:
                await settle_refund(tx, refund_id, report)
        return CallbackResult(fresh, found[1] if found and ours else None)


def _call_again(message: str) -> RefusedError:
    return RefusedError(ErrorCode.CONFLICT, message, retry_after_s=60)


def _identities(received: _Received) -> list[Hashable]:
    """Name what two callbacks of one batch may not share: a key, a session, a capture.

    Two that claim one capture would each be settled as if it were theirs.
    """
    callback = received.callback
    identities: list[Hashable] = [("key", received.key)]
    if callback.session_id is not None:
        identities.append(("session", callback.session_id))
    if callback.report is not None and callback.report.capture is not None:
        identities.append(("capture", received.account_id, callback.report.capture.reference))
    return identities


def _new_callback(received: _Received) -> NewCallback:
    callback = received.callback
    return NewCallback(
        account_id=received.account_id,
        callback_id=callback.id,
        # A report about a refund is about no session, whatever else it names.
        session_id=callback.session_id if callback.refund_id is None else None,
        refund_id=callback.refund_id,
        report=_kept(callback.report) if callback.refund_id is None else None,
        body=mask_card_data(callback.facts or received.body),
    )


async def _keep_unknown(tx: Tx, received: _Received) -> None:
    """Store a capture of an unknown session, and open a case."""
    account_id, callback = received.account_id, received.callback
    if callback.report is None or callback.report.capture is None:
        return
    money = callback.report.capture
    kept = await captures.add_unknown(tx, tx.id_generator.new_id(), account_id, callback.id, money)
    if kept is None:
        return
    origin = MoneyOrigin(merchant_id=kept.merchant_id, payment_id=None, session_id=None)
    note = f"callback {callback.id} names {await _name_session(tx, callback)}"
    case_id = await open_case(
        tx,
        CaseKind.UNKNOWN_REFERENCE,
        origin,
        capture_id=kept.id,
        note="; ".join(filter(None, [note, verbatim_note(money)])),
    )
    assert case_id is not None  # noqa: S101 - the capture is new
    _log.error("capture_unknown", account=account_id, case=ids.format_id(ids.CASE, case_id))


async def _name_session(tx: Tx, callback: VerifiedCallback) -> str:
    """Name the session of a callback that is not its account's, for who looks at its money."""
    if callback.session_id is None:
        return "no session, which is not known"
    named = ids.format_id(ids.SESSION, callback.session_id)
    account_id = await sessions.find_account_id(tx, callback.session_id)
    if account_id is None:
        return f"{named}, which is not known"
    return (
        f"{named} of account {account_id}: if both have the same credentials, this is its "
        "payment's money, told twice, and must not be refunded here"
    )


async def apply_waiting_callbacks(database: Database, limit: int) -> int:
    """Apply callbacks whose session was stored after they came; returns how many.

    One that fails holds up no other; what it raised is raised after all of them.
    """
    done = 0
    failure: Exception | None = None
    for waiting in await callbacks.list_waiting(database, limit):
        try:
            done += await _apply_waiting(database, waiting)
        except StorageUnavailableError:
            raise
        except Exception as error:  # noqa: BLE001 - it is raised below
            failure = error
    if failure is not None:
        raise failure
    return done


async def _apply_waiting(database: Database, waiting: WaitingCallback) -> bool:
    """Apply a callback that waited; False where another process did so first."""
    report = _report(waiting.report)
    async with database.transaction() as tx:
        if not await callbacks.mark_applied(tx, waiting.account_id, waiting.callback_id):
            return False
        await settle_session(tx, waiting.payment_id, waiting.session_id, report)
    return True


def _kept(report: SessionReport | None) -> str | None:
    if report is None:
        return None
    capture = report.capture
    kept = _Kept(
        state=report.state,
        reason=report.reason,
        reference=capture.reference if capture else None,
        amount_minor=capture.amount_minor if capture else None,
        currency=capture.currency if capture else None,
        verbatim=capture.verbatim if capture else None,
        uncertain=capture is not None and capture.uncertain,
    )
    return msgspec.json.encode(kept).decode()


def _report(text: str) -> SessionReport:
    kept = msgspec.json.decode(text, type=_Kept)
    capture = None
    if kept.reference is not None and kept.amount_minor is not None and kept.currency is not None:
        capture = Capture(
            reference=kept.reference,
            amount_minor=kept.amount_minor,
            currency=kept.currency,
            verbatim=kept.verbatim,
            uncertain=kept.uncertain,
        )
    return SessionReport(state=kept.state, capture=capture, reason=kept.reason)
