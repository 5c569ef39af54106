"""Verify gateway callbacks, and store and apply each callback once in a single transaction."""

from collections.abc import Hashable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any
from uuid import UUID

import msgspec
from prometheus_client import Counter

from payintent.callbacks import store as callback_store
from payintent.callbacks.store import DeferredCallback, NewCallback
from payintent.cases.model import CaseKind
from payintent.cases.store import open_case
from payintent.core import ids
from payintent.core.errors import BadRequestError, ErrorCode, RefusedError, StorageUnavailableError
from payintent.core.texts import mask_card_data
from payintent.db.batcher import LOCK_TIMEOUT_MS, Batcher
from payintent.db.database import Database, Tx
from payintent.disputes.record import EarlyReportError, record_dispute, record_fraud_warning
from payintent.gateway_accounts.accounts import GatewayConnection
from payintent.gateways.port import (
    CallbackRequest,
    CallbackResponse,
    DisputeReport,
    GatewayAccount,
    InvalidCallbackError,
    SessionReport,
    UnusableCallbackError,
    VerifiedCallback,
)
from payintent.payment_sessions.settle import (
    ReportedSession,
    make_reported_amount_note,
    settle_session,
    settle_sessions,
)
from payintent.payments import captures_store as capture_store
from payintent.payments import sessions_store as session_store
from payintent.refunds import store as refund_store
from payintent.refunds.record_outside import (
    RefundInProgressError,
    open_outside_refund_case,
    record_outside_refund,
)
from payintent.refunds.settle import settle_refund
from payintent.runtime import tracing
from payintent.runtime.log import get_logger

_log = get_logger("receive")
_LATE_S = 0.1  # higher than the default, because the transaction has many statements


@dataclass(frozen=True, slots=True)
class CallbackResult:
    is_new: bool
    payment_id: UUID | None


@dataclass(frozen=True, slots=True)
class _CallbackDelivery:
    account_id: int
    callback: VerifiedCallback
    body: bytes

    @property
    def key(self) -> tuple[int, str]:
        return self.account_id, self.callback.id


class _SharedPaymentError(Exception):
    """Two callbacks in a batch concern the same payment and must be applied separately."""


class CallbackReceiver:
    """Stores and applies callbacks; ignores duplicates. Concurrent callbacks share transactions."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._batches = Batcher(
            process_batch=self._receive_batch,
            identities=_list_identities,
            late_s=_LATE_S,
        )

    async def receive(
        self, account_id: int, callback: VerifiedCallback, body: bytes
    ) -> CallbackResult:
        """Store a callback and apply it in the same transaction.

        A capture for an unknown session opens a case immediately. If the session is stored later,
        the capture is assigned to it.
        """
        delivery = _CallbackDelivery(account_id, callback, body)
        if callback.refund_id is not None:
            owner = await refund_store.find_account_and_payment(self._database, callback.refund_id)
            payment_id = owner[1] if owner and owner[0] == account_id else None
            is_own = owner is not None and owner[0] == account_id
            # Refunds are stored before they are sent, so a refund report never arrives too early.
            if is_own or callback.outside_refund is None:
                return await self._receive_refund(delivery, payment_id, is_own=is_own)
        if any([callback.dispute, callback.outside_refund, callback.fraud_warning]):
            return await self._receive_capture_report(delivery)
        result = await self._batches.run(delivery)
        if result.payment_id is not None:
            tracing.follow_payment(result.payment_id)
        return result

    async def close(self) -> None:
        await self._batches.close()

    async def _receive_batch(self, batch: Sequence[_CallbackDelivery]) -> list[CallbackResult]:
        lock_timeout_ms = LOCK_TIMEOUT_MS if len(batch) > 1 else None
        async with self._database.transaction(lock_timeout_ms) as tx:
            return await self._apply_batch(tx, batch)

    async def _apply_batch(
        self, tx: Tx, batch: Sequence[_CallbackDelivery]
    ) -> list[CallbackResult]:
        """Store callbacks, then settle the sessions that the new callbacks report on."""
        callbacks = [_make_new_callback(delivery) for delivery in batch]
        payment_ids = await callback_store.add(tx, callbacks)
        results = [
            CallbackResult(delivery.key in payment_ids, payment_ids.get(delivery.key))
            for delivery in batch
        ]
        new_callbacks = [
            (delivery, result.payment_id)
            for delivery, result in zip(batch, results, strict=True)
            if result.is_new
        ]
        await self._settle_sessions(tx, new_callbacks)
        for delivery, payment_id in new_callbacks:
            if payment_id is None:
                await _add_unknown_capture(tx, delivery)
        return results

    async def _settle_sessions(
        self, tx: Tx, new_callbacks: Sequence[tuple[_CallbackDelivery, UUID | None]]
    ) -> None:
        reports = [
            ReportedSession(payment_id, delivery.callback.session_id, delivery.callback.report)
            for delivery, payment_id in new_callbacks
            if payment_id and delivery.callback.session_id and delivery.callback.report
        ]
        if len({report.payment_id for report in reports}) < len(reports):
            raise _SharedPaymentError
        if reports:
            await settle_sessions(tx, reports)

    async def _receive_capture_report(self, delivery: _CallbackDelivery) -> CallbackResult:
        """Store and apply a report about a capture, such as a dispute.

        If the capture is not stored yet, an inquiry is requested. If a refund of the capture is in
        progress, a case is opened. In both situations, `CONFLICT` is raised so that the gateway
        retries the callback.
        """
        try:
            return await self._apply_capture_report(delivery)
        except EarlyReportError as error:
            await self._request_inquiry(delivery, error.session_id)
            raise _make_retry_error("the capture is not recorded yet; try again later") from None
        except RefundInProgressError:
            report = delivery.callback.outside_refund
            assert report is not None  # noqa: S101 - only an outside refund raises this error
            async with self._database.transaction() as tx:
                await open_outside_refund_case(tx, delivery.account_id, report)
            raise _make_retry_error(
                "a refund of the capture is in progress; try again later"
            ) from None

    async def _request_inquiry(self, delivery: _CallbackDelivery, session_id: UUID) -> None:
        await session_store.request_inquiry(self._database, session_id)
        session = ids.format_id(ids.SESSION, session_id)
        _log.warning("report_early", account=delivery.account_id, session=session)

    async def _apply_capture_report(self, delivery: _CallbackDelivery) -> CallbackResult:
        account_id, callback = delivery.account_id, delivery.callback
        async with self._database.transaction() as tx:
            [result] = await self._apply_batch(tx, [delivery])
            if not result.is_new:
                return result
            payment_id = None
            if callback.dispute is not None:
                dispute = await _complete_dispute(tx, callback.dispute, callback, result)
                payment_id = await record_dispute(tx, account_id, dispute)
            if callback.outside_refund is not None:
                payment_id = await record_outside_refund(tx, account_id, callback.outside_refund)
            if callback.fraud_warning is not None:
                payment_id = await record_fraud_warning(tx, account_id, callback.fraud_warning)
        return CallbackResult(True, result.payment_id or payment_id)

    async def _receive_refund(
        self, delivery: _CallbackDelivery, payment_id: UUID | None, *, is_own: bool
    ) -> CallbackResult:
        """Store a refund report, and apply it if the refund belongs to the callback's account."""
        refund_id, report = delivery.callback.refund_id, delivery.callback.refund
        async with self._database.transaction() as tx:
            is_new = bool(await callback_store.add(tx, [_make_new_callback(delivery)]))
            if is_new and is_own and refund_id and report:
                await settle_refund(tx, refund_id, report)
        return CallbackResult(is_new, payment_id)


async def _complete_dispute(
    tx: Tx, dispute: DisputeReport, callback: VerifiedCallback, result: CallbackResult
) -> DisputeReport:
    """Complete the reference of the disputed capture if the callback also reports its session."""
    if callback.session_id is None or result.payment_id is None:
        return dispute
    capture = await capture_store.get_stored_reference(
        tx, result.payment_id, callback.session_id, dispute.capture
    )
    return replace(dispute, capture=capture)


def _make_retry_error(message: str) -> RefusedError:
    return RefusedError(ErrorCode.CONFLICT, message, retry_after_s=60)


def _list_identities(delivery: _CallbackDelivery) -> list[Hashable]:
    """Return the callback's key, session and capture.

    Callbacks in a batch must not share any of them. Otherwise, the same capture could be credited
    twice.
    """
    callback = delivery.callback
    identities: list[Hashable] = [("key", delivery.key)]
    if callback.session_id is not None:
        identities.append(("session", callback.session_id))
    if callback.report is not None and callback.report.capture is not None:
        identities.append(("capture", delivery.account_id, callback.report.capture.reference))
    return identities


def _make_new_callback(delivery: _CallbackDelivery) -> NewCallback:
    callback = delivery.callback
    return NewCallback(
        account_id=delivery.account_id,
        callback_id=callback.id,
        # A refund report does not concern a session, even if it contains a session id.
        session_id=callback.session_id if callback.refund_id is None else None,
        refund_id=callback.refund_id,
        report=_encode_report(callback),
        body=mask_card_data(callback.stored_body or delivery.body),
    )


def _encode_report(callback: VerifiedCallback) -> str | None:
    """Encode the report as JSON, in case the callback arrived before its session was stored."""
    report = callback.report
    if report is None or callback.refund_id is not None:
        return None
    capture = asdict(report.capture) if report.capture else {}
    return msgspec.json.encode({"state": report.state, "reason": report.reason, **capture}).decode()


def _decode_report(encoded: str) -> SessionReport:
    fields = msgspec.json.decode(encoded, type=dict[str, Any])
    capture = fields if fields.get("reference") is not None else None
    return msgspec.convert(fields | {"capture": capture}, SessionReport)


async def _add_unknown_capture(tx: Tx, delivery: _CallbackDelivery) -> None:
    """Store the callback's capture, if any, and open a case for the unknown session."""
    account_id, callback = delivery.account_id, delivery.callback
    if callback.report is None or callback.report.capture is None:
        return
    money = callback.report.capture
    capture_id = tx.id_generator.new_id()
    origin = await capture_store.add_without_session(tx, capture_id, account_id, callback.id, money)
    if origin is None:
        return
    note = f"callback {callback.id} {await _describe_session(tx, callback)}"
    case_id = await open_case(
        tx,
        CaseKind.UNKNOWN_REFERENCE,
        origin,
        capture_id=capture_id,
        note="; ".join(filter(None, [note, make_reported_amount_note(money)])),
    )
    assert case_id is not None  # noqa: S101 - the capture is new
    _log.error("capture_unknown", account=account_id, case=ids.format_id(ids.CASE, case_id))


async def _describe_session(tx: Tx, callback: VerifiedCallback) -> str:
    """Describe the callback's session, which does not belong to its account, for a case's note."""
    if callback.session_id is None:
        return "has no session id"
    session = ids.format_id(ids.SESSION, callback.session_id)
    account_id = await session_store.find_account_id(tx, callback.session_id)
    if account_id is None:
        return f"refers to {session}, which does not exist"
    return (
        f"refers to {session} of account {account_id}. If both accounts have the same credentials, "
        "the capture was reported twice and belongs to that session; do not refund it here"
    )


async def apply_deferred_callbacks(database: Database, limit: int) -> int:
    """Apply callbacks that arrived before their session was stored, and return their count.

    If a callback fails, the others are still applied. The last error is raised at the end.
    """
    count = 0
    failure: Exception | None = None
    for callback in await callback_store.list_deferred(database, limit):
        try:
            count += await _apply_deferred_callback(database, callback)
        except StorageUnavailableError:
            raise
        except Exception as error:  # noqa: BLE001 - raised below
            failure = error
    if failure is not None:
        raise failure
    return count


async def _apply_deferred_callback(database: Database, callback: DeferredCallback) -> bool:
    """Apply a deferred callback; return False if it has already been applied."""
    report = _decode_report(callback.report)
    async with database.transaction() as tx:
        if not await callback_store.mark_applied(tx, callback.account_id, callback.callback_id):
            return False
        await settle_session(tx, callback.payment_id, callback.session_id, report)
    return True


_refusal_log = get_logger("callbacks")
REFUSED = Counter("payintent_callbacks_refused_total", "Rejected gateway callbacks", ["provider"])


async def handle_callback(
    receiver: CallbackReceiver, connection: GatewayConnection, request: CallbackRequest
) -> CallbackResponse:
    """Verify a callback, apply it, and return the response that the gateway expects.

    Raises `UNAUTHORIZED` if the callback cannot be verified with the account's credentials, and
    `BAD_REQUEST` for a callback type that must be disabled at the gateway.
    """
    account, gateway = connection.account, connection.gateway
    try:
        callback = gateway.parse_callback(account, request)
    except InvalidCallbackError as error:
        _record_refusal(account, error)
        if isinstance(error, UnusableCallbackError):
            raise BadRequestError(str(error)) from error
        raise RefusedError(ErrorCode.UNAUTHORIZED, "the callback could not be verified") from error
    await receiver.receive(account.id, callback, request.body)
    return gateway.acknowledge(callback)


def _record_refusal(account: GatewayAccount, error: InvalidCallbackError) -> None:
    REFUSED.labels(account.provider).inc()
    _refusal_log.warning(
        "callback_refused", provider=account.provider, account=account.id, why=str(error)
    )
