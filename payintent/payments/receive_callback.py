"""Receives a verified callback: stored once, in the transaction that applies it."""

from dataclasses import dataclass
from uuid import UUID

import msgspec

from payintent.domain import ids
from payintent.domain.card_data import mask_card_data
from payintent.domain.case import CaseKind, MoneyOrigin
from payintent.domain.gateway import (
    Capture,
    GatewaySessionState,
    SessionReport,
    VerifiedCallback,
)
from payintent.domain.payment import FailureReason
from payintent.id_generator import IdGenerator
from payintent.log import get_logger
from payintent.payments.cases import open_case
from payintent.payments.record_dispute import take_dispute
from payintent.payments.settle import settle_session, verbatim_note
from payintent.payments.settle_refund import settle_refund
from payintent.storage import callbacks, captures, refunds, sessions
from payintent.storage.callbacks import NewCallback
from payintent.storage.database import Database, Tx

_log = get_logger("receive")


class _Kept(msgspec.Struct):
    """A report as JSON, for a callback that must wait for its session."""

    state: GatewaySessionState
    reason: FailureReason | None
    reference: str | None
    amount_minor: int | None
    currency: str | None
    verbatim: str | None = None


@dataclass(frozen=True, slots=True)
class CallbackResult:
    """The result of a callback; each of these is answered with success."""

    fresh: bool
    payment_id: UUID | None


async def receive_callback(
    database: Database,
    id_generator: IdGenerator,
    account_id: int,
    callback: VerifiedCallback,
    body: bytes,
) -> CallbackResult:
    """Store a callback and apply it; a duplicate, or one about nothing of ours, changes nothing.

    Money for an unknown session opens a case at once; it pays the session if that appears.
    """
    if callback.refund_id is not None:
        return await _receive_refund(database, id_generator, account_id, callback, body)
    payment_id = None
    if callback.session_id is not None:
        payment_id = await sessions.find_payment_id(database, callback.session_id, account_id)
    unknown = callback.session_id is not None and payment_id is None
    async with database.transaction() as tx:
        fresh = await callbacks.add(
            tx,
            NewCallback(
                account_id=account_id,
                callback_id=callback.id,
                session_id=callback.session_id,
                refund_id=None,
                report=_kept(callback.report),
                body=mask_card_data(callback.facts or body),
                applied=not unknown,
            ),
        )
        if fresh and callback.report and callback.session_id and payment_id:
            await settle_session(tx, id_generator, payment_id, callback.session_id, callback.report)
        elif fresh:
            await _keep_unknown(tx, id_generator, account_id, callback)
        if fresh and callback.dispute:
            disputed_id = await take_dispute(tx, id_generator, account_id, callback.dispute)
            payment_id = payment_id or disputed_id
    return CallbackResult(fresh, payment_id)


async def _keep_unknown(
    tx: Tx, id_generator: IdGenerator, account_id: int, callback: VerifiedCallback
) -> None:
    """Store a capture of an unknown session, and open a case."""
    if callback.report is None or callback.report.capture is None:
        return
    money = callback.report.capture
    kept = await captures.add_unknown(tx, id_generator.new_id(), account_id, callback.id, money)
    if kept is None:
        return
    origin = MoneyOrigin(merchant_id=kept.merchant_id, payment_id=None, session_id=None)
    named = callback.session_id and ids.format_id(ids.SESSION, callback.session_id)
    note = f"callback {callback.id} names {named or 'no session'}, which is not known"
    case_id = await open_case(
        tx,
        id_generator,
        CaseKind.UNKNOWN_REFERENCE,
        origin,
        capture_id=kept.id,
        note="; ".join(filter(None, [note, verbatim_note(money)])),
    )
    assert case_id is not None  # noqa: S101 - the capture is new
    _log.error("capture_unknown", account=account_id, case=ids.format_id(ids.CASE, case_id))


async def _receive_refund(
    database: Database,
    id_generator: IdGenerator,
    account_id: int,
    callback: VerifiedCallback,
    body: bytes,
) -> CallbackResult:
    """Store a report about a refund, and apply it where the refund is of this account.

    A refund is stored before its gateway gets it, so no report has to wait for one.
    """
    assert callback.refund_id is not None  # noqa: S101 - checked by the caller
    found = await refunds.find_account_and_payment(database, callback.refund_id)
    ours = found is not None and found[0] == account_id
    async with database.transaction() as tx:
        fresh = await callbacks.add(
            tx,
            NewCallback(
                account_id=account_id,
                callback_id=callback.id,
                session_id=None,
                refund_id=callback.refund_id,
                report=None,
                body=mask_card_data(callback.facts or body),
                applied=True,
            ),
        )
        if fresh and ours and callback.refund:
            await settle_refund(tx, id_generator, callback.refund_id, callback.refund)
    return CallbackResult(fresh, found[1] if found and ours else None)


async def apply_waiting_callbacks(database: Database, id_generator: IdGenerator, limit: int) -> int:
    """Apply callbacks whose session was stored after they came; returns how many."""
    done = 0
    for waiting in await callbacks.list_waiting(database, limit):
        payment_id = await sessions.find_payment_id(
            database, waiting.session_id, waiting.account_id
        )
        async with database.transaction() as tx:
            first = await callbacks.mark_applied(tx, waiting.account_id, waiting.callback_id)
            if first and payment_id:
                await settle_session(
                    tx, id_generator, payment_id, waiting.session_id, _report(waiting.report)
                )
                done += 1
    return done


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
        )
    return SessionReport(state=kept.state, capture=capture, reason=kept.reason)
