"""Deliver webhooks from the outbox. A failing endpoint must not delay other endpoints."""

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from prometheus_client import Counter, Histogram

from payintent.core.errors import LockTimeoutError, StorageUnavailableError
from payintent.core.ids import get_unix_ms
from payintent.db.database import Database
from payintent.merchants import callback_secrets
from payintent.merchants.model import SIGNING_SECRETS_MAX
from payintent.runtime import tracing
from payintent.runtime.encryption import (
    Encryption,
    EncryptionKeyError,
    make_callback_secret_context,
)
from payintent.runtime.log import get_logger
from payintent.runtime.tracing import SpanKind
from payintent.runtime.waiting import wait_for_event
from payintent.webhooks import endpoints_store as endpoint_store
from payintent.webhooks import outbox_store
from payintent.webhooks.model import AttemptResult, CircuitReport, OutgoingDelivery
from payintent.webhooks.outbox_store import AttemptRecord
from payintent.webhooks.retry_schedule import compute_retry_wait_s
from payintent.webhooks.sender import WebhookSender
from payintent.webhooks.windows import CircuitChange, EndpointWindows, InFlightAttempt

_log = get_logger("dispatcher")
_outbox_log = get_logger("deliver")
#: High enough for all merchants, because the longest-waiting endpoints may have no free sockets.
_MERCHANTS_MAX = 100_000
_RECORD_MAX = 500  # attempts per statement
_CLAIM_MAX = 500  # deliveries per statement

ATTEMPTS = Counter("payintent_webhook_attempts_total", "Delivery attempts", ["outcome"])
DURATION = Histogram("payintent_webhook_attempt_seconds", "Duration of a delivery attempt")
DELAY = Histogram(
    "payintent_webhook_delay_seconds",
    "Time from an event to its successful delivery",
    buckets=(0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60, 300, 1_800, 7_200, 43_200, 172_800),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseOutbox:
    """Claims deliveries from the database, adds their signing secrets, and records attempts."""

    database: Database
    encryption: Encryption
    lease_s: float

    async def list_due_endpoints(self) -> list[tuple[int, str | None]]:
        return await outbox_store.list_due_endpoints(self.database, _MERCHANTS_MAX)

    async def claim(self, limits: Sequence[tuple[int, int]]) -> list[OutgoingDelivery]:
        """Claim due deliveries; `limits` are `(merchant_id, limit)` pairs."""
        deliveries = await outbox_store.claim_due(self.database, limits, self.lease_s)
        keys = await self._decrypt_keys({delivery.merchant_id for delivery in deliveries})
        return [
            replace(delivery, secrets=keys[delivery.merchant_id])
            for delivery in deliveries
            if delivery.merchant_id in keys
        ]

    async def record(self, attempts: Sequence[AttemptRecord]) -> None:
        await outbox_store.record(self.database, attempts)

    async def release(self, merchant_id: int) -> None:
        """Make all delayed retries of a merchant due now, because its endpoint has recovered."""
        while await outbox_store.release(self.database, merchant_id):
            pass

    async def store_circuits(self, reports: Sequence[CircuitReport]) -> None:
        """Store the latest change of each circuit for display to operators."""
        last_reports = {report.merchant_id: report for report in reports}
        for report in last_reports.values():
            if report.open_s > 0:
                await endpoint_store.open_circuit(self.database, report)
            else:
                await endpoint_store.close_circuit(self.database, report.merchant_id)

    async def _decrypt_keys(self, merchant_ids: set[int]) -> dict[int, list[bytes]]:
        """Decrypt signing keys. Merchants with an undecryptable key are logged and omitted."""
        if not merchant_ids:
            return {}
        sealed_secrets = await callback_secrets.list_secrets(
            self.database, list(merchant_ids), SIGNING_SECRETS_MAX
        )
        keys: dict[int, list[bytes]] = {}
        for merchant_id in merchant_ids:
            try:
                keys[merchant_id] = [
                    self.encryption.decrypt(
                        secret.sealed, make_callback_secret_context(merchant_id, secret.id)
                    )
                    for secret in sealed_secrets.get(merchant_id, [])
                ]
            except EncryptionKeyError as error:
                _outbox_log.error("secret_unusable", merchant=merchant_id, why=str(error))
        return keys


def to_record(
    attempt_id: UUID, delivery: OutgoingDelivery, attempt: AttemptResult, next_wait_s: float | None
) -> AttemptRecord:
    return AttemptRecord(
        id=attempt_id,
        event_id=delivery.event_id,
        number=delivery.attempts + 1,
        url=delivery.url,
        outcome=attempt.outcome,
        status=attempt.status,
        detail=attempt.detail,
        answer=attempt.answer,
        duration_ms=attempt.duration_ms,
        delivered=attempt.succeeded,
        next_wait_s=next_wait_s,
    )


@dataclass(frozen=True, slots=True)
class _FinishedAttempt:
    delivery: OutgoingDelivery
    attempt: AttemptResult
    change: CircuitChange | None


class Dispatcher:
    """Polls the outbox and sends due deliveries; `wake` triggers an immediate poll."""

    def __init__(
        self,
        outbox: DatabaseOutbox,
        sender: WebhookSender,
        windows: EndpointWindows,
        poll_s: float,
        random_value: Callable[[], float] = random.random,
    ) -> None:
        self._outbox = outbox
        self._sender = sender
        self._windows = windows
        self._poll_s = poll_s
        self._random_value = random_value
        self._wake = asyncio.Event()
        self._finished_attempts: asyncio.Queue[_FinishedAttempt] = asyncio.Queue()
        self._tasks: set[asyncio.Task[None]] = set()

    def wake(self) -> None:
        self._wake.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Send deliveries until `stop` is set, then finish the deliveries in progress."""
        recorder = asyncio.create_task(self._record_forever())
        while not stop.is_set():
            await self._send_due()
            await wait_for_event(self._wake, self._poll_s)
            self._wake.clear()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._finished_attempts.join()
        recorder.cancel()
        await asyncio.gather(recorder, return_exceptions=True)

    async def _send_due(self) -> None:
        try:
            while (count := await self._claim_and_send()) >= _CLAIM_MAX:
                _log.debug("backlog", taken=count)
        except Exception as error:  # noqa: BLE001 - a failed poll must not end all deliveries
            _log_failure("outbox_away", error)

    async def _claim_and_send(self) -> int:
        """Claim as many deliveries as the limits allow, and send each in a separate task."""
        endpoints = await self._outbox.list_due_endpoints()
        limits = self._windows.distribute_sockets(endpoints, _CLAIM_MAX)
        if not limits:
            return 0
        deliveries = await self._outbox.claim(limits)
        for delivery in deliveries:
            # Register the attempt before its task runs, so that the next claim counts it.
            in_flight = self._windows.start(delivery.merchant_id, delivery.url)
            task = asyncio.create_task(self._send(delivery, in_flight))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return len(deliveries)

    async def _send(self, delivery: OutgoingDelivery, in_flight: InFlightAttempt) -> None:
        succeeded = False
        tracing.follow_payment(delivery.payment_id)
        try:
            attempt = await self._sender.send(delivery)
            succeeded = attempt.succeeded
            if attempt.retry_after_s is not None:
                self._windows.pause(in_flight, attempt.retry_after_s)
        finally:
            change = self._windows.finish(in_flight, succeeded)
        _trace(delivery, attempt)
        ATTEMPTS.labels(attempt.outcome).inc()
        DURATION.observe(attempt.duration_ms / 1000)
        if attempt.succeeded:
            DELAY.observe(max(0.0, time.time() - get_unix_ms(delivery.event_id) / 1000))
        await self._finished_attempts.put(_FinishedAttempt(delivery, attempt, change))
        if change is not None and attempt.succeeded:
            await self._release(delivery.merchant_id)
        self._wake.set()  # a socket has become free

    async def _release(self, merchant_id: int) -> None:
        try:
            await self._outbox.release(merchant_id)
        except (StorageUnavailableError, LockTimeoutError) as error:
            _log_failure("outbox_away", error)

    async def _record_forever(self) -> None:
        while True:
            batch = [await self._finished_attempts.get()]
            while len(batch) < _RECORD_MAX and not self._finished_attempts.empty():
                batch.append(self._finished_attempts.get_nowait())
            await self._record(
                [self._to_attempt_record(finished_attempt) for finished_attempt in batch]
            )
            await self._store_circuits(batch)
            for _ in batch:
                self._finished_attempts.task_done()

    async def _record(self, attempts: Sequence[AttemptRecord]) -> None:
        """Store a batch of attempts, or each attempt separately if the batch fails.

        Delivery is at-least-once: if an attempt cannot be stored, the event is sent again when the
        lease expires.
        """
        try:
            await self._outbox.record(attempts)
        except Exception as error:  # noqa: BLE001 - an invalid record must not end all deliveries
            if len(attempts) == 1 or isinstance(error, StorageUnavailableError):
                # If the database is unavailable, the attempts may already have been stored.
                _log_failure("attempts_lost", error)
                return
            for attempt in attempts:
                await self._record([attempt])

    async def _store_circuits(self, batch: Sequence[_FinishedAttempt]) -> None:
        """Store circuit changes for operators. The dispatcher itself never reads them."""
        reports = [
            CircuitReport(
                merchant_id=finished_attempt.delivery.merchant_id,
                open_s=finished_attempt.change.open_s,
                detail=_describe_attempt(finished_attempt.attempt),
            )
            for finished_attempt in batch
            if finished_attempt.change is not None
        ]
        try:
            if reports:
                await self._outbox.store_circuits(reports)
        except Exception as error:  # noqa: BLE001 - deliveries do not depend on stored circuits
            _log_failure("outbox_away", error)

    def _to_attempt_record(self, finished_attempt: _FinishedAttempt) -> AttemptRecord:
        delivery, attempt = finished_attempt.delivery, finished_attempt.attempt
        is_last = attempt.succeeded or attempt.is_gone
        wait_s = compute_retry_wait_s(
            delivery.attempts + 1, attempt.retry_after_s, self._random_value()
        )
        attempt_id = self._outbox.database.id_generator.new_id()
        return to_record(attempt_id, delivery, attempt, None if is_last else wait_s)


def _describe_attempt(attempt: AttemptResult) -> str:
    return f"{attempt.outcome}: {attempt.detail}".removesuffix(": ")


def _trace(delivery: OutgoingDelivery, attempt: AttemptResult) -> None:
    attributes: dict[str, str | int] = {
        "payintent.attempt": delivery.attempts + 1,
        "payintent.outcome": attempt.outcome,
    }
    tracing.record(
        "deliver webhook",
        delivery.payment_id,
        attempt.duration_ms / 1000,
        attributes,
        kind=SpanKind.CLIENT,
        failed=not attempt.succeeded,
    )


def _log_failure(event: str, error: Exception) -> None:
    if isinstance(error, StorageUnavailableError | LockTimeoutError):
        _log.warning(event, why=str(error) or type(error).__name__)
    else:
        _log.error(event, exc_info=error)
