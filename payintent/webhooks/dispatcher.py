"""Delivers the outbox: fast to endpoints that answer, slowly to failing ones, delayed by none."""

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from prometheus_client import Counter, Histogram

from payintent import tracing
from payintent.domain.delivery import CircuitReport, DeliveryResult, Outbox, OutgoingDelivery
from payintent.domain.errors import LockTimeoutError, StorageUnavailableError
from payintent.domain.ids import unix_ms_of_timed
from payintent.log import get_logger
from payintent.tracing import SpanKind
from payintent.webhooks.endpoint_windows import (
    CircuitChange,
    EndpointWindows,
    InFlightAttempt,
)
from payintent.webhooks.retry_schedule import next_retry_wait_s
from payintent.webhooks.sender import AttemptResult, WebhookRequest, WebhookSender

_log = get_logger("dispatcher")
_RECORD_MAX = 500  # attempts in one statement
_TAKE_MAX = 500  # deliveries that one statement claims

ATTEMPTS = Counter("payintent_webhook_attempts_total", "Attempts at deliveries", ["outcome"])
DURATION = Histogram("payintent_webhook_attempt_seconds", "How long an attempt took")
DELAY = Histogram(
    "payintent_webhook_delay_seconds",
    "How long after its event a delivery arrived",
    buckets=(0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60, 300, 1_800, 7_200, 43_200, 172_800),
)


@dataclass(frozen=True, slots=True)
class _FinishedAttempt:
    delivery: OutgoingDelivery
    attempt: AttemptResult
    change: CircuitChange | None


class Dispatcher:
    """One process's dispatcher. `wake` makes it look at once; it polls all the same."""

    def __init__(
        self,
        outbox: Outbox,
        sender: WebhookSender,
        windows: EndpointWindows,
        poll_s: float,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._outbox = outbox
        self._sender = sender
        self._windows = windows
        self._poll_s = poll_s
        self._chance = chance
        self._woken = asyncio.Event()
        self._done: asyncio.Queue[_FinishedAttempt] = asyncio.Queue()
        self._sending: set[asyncio.Task[None]] = set()

    def wake(self) -> None:
        self._woken.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Deliver until `stop` is set, then finish what is under way."""
        recorder = asyncio.create_task(self._record_forever())
        while not stop.is_set():
            await self._round()
            await self._rest()
        await asyncio.gather(*self._sending, return_exceptions=True)
        await self._done.join()
        recorder.cancel()
        await asyncio.gather(recorder, return_exceptions=True)

    async def _rest(self) -> None:
        try:
            async with asyncio.timeout(self._poll_s):
                await self._woken.wait()
        except TimeoutError:
            pass
        self._woken.clear()

    async def _round(self) -> None:
        """Claim as much as the limits allow, and send each delivery in a task of its own."""
        try:
            while (taken := await self._take()) >= _TAKE_MAX:
                _log.debug("backlog", taken=taken)
        except Exception as error:  # noqa: BLE001 - one bad round must not end all deliveries
            _complain("outbox_away", error)

    async def _take(self) -> int:
        merchants = await self._outbox.due_merchants()
        limits = self._windows.share(merchants, _TAKE_MAX)
        if not limits:
            return 0
        deliveries = await self._outbox.claim(limits)
        for delivery in deliveries:
            # Counted before its task runs, so that the next claim takes it into account.
            flight = self._windows.started(delivery.merchant_id)
            task = asyncio.create_task(self._send(delivery, flight))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)
        return len(deliveries)

    async def _send(self, delivery: OutgoingDelivery, flight: InFlightAttempt) -> None:
        ok = False
        tracing.follow_payment(delivery.payment_id)
        try:
            attempt = await self._sender.send(
                WebhookRequest(
                    url=delivery.url,
                    webhook_id=str(delivery.event_id),
                    body=delivery.body,
                    secrets=delivery.secrets,
                )
            )
            ok = attempt.ok
        finally:
            change = self._windows.finished(flight, ok)
        self._pause(delivery.merchant_id, attempt)
        _trace(delivery, attempt)
        ATTEMPTS.labels(attempt.outcome).inc()
        DURATION.observe(attempt.duration_ms / 1000)
        if attempt.ok:
            DELAY.observe(max(0.0, time.time() - unix_ms_of_timed(delivery.event_id) / 1000))
        await self._done.put(_FinishedAttempt(delivery, attempt, change))
        if change is not None and attempt.ok:
            await self._release(delivery.merchant_id)
        self._woken.set()  # a slot is free again

    def _pause(self, merchant_id: int, attempt: AttemptResult) -> None:
        if attempt.retry_after_s is not None:
            self._windows.pause(merchant_id, attempt.retry_after_s)

    async def _release(self, merchant_id: int) -> None:
        """Make due at once what was held back from an endpoint whose circuit has closed."""
        try:
            await self._outbox.release(merchant_id)
        except (StorageUnavailableError, LockTimeoutError) as error:
            _complain("outbox_away", error)

    async def _record_forever(self) -> None:
        """Store attempts, in batches of all that are finished."""
        while True:
            done = [await self._done.get()]
            while len(done) < _RECORD_MAX and not self._done.empty():
                done.append(self._done.get_nowait())
            await self._record([self._outcome(result) for result in done])
            await self._show_circuits(done)
            for _ in done:
                self._done.task_done()

    async def _record(self, results: Sequence[DeliveryResult]) -> None:
        """Store attempts; a batch that fails has stored nothing, and each is then stored alone.

        What cannot be stored is sent again when its lease has ended: at least once, as promised.
        """
        try:
            await self._outbox.record(results)
        except Exception as error:  # noqa: BLE001 - nor one bad record
            if len(results) == 1 or isinstance(error, StorageUnavailableError):
                # Where the database has not answered nobody knows whether they are stored.
                _complain("attempts_lost", error)
                return
            for result in results:
                await self._record([result])

    async def _show_circuits(self, done: Sequence[_FinishedAttempt]) -> None:
        """Store which circuits have opened or closed, for people; nothing else reads it."""
        changes = [
            CircuitReport(
                merchant_id=result.delivery.merchant_id,
                open_s=result.change.open_s,
                detail=f"{result.attempt.outcome}: {result.attempt.detail}".removesuffix(": "),
            )
            for result in done
            if result.change is not None
        ]
        try:
            if changes:
                await self._outbox.show_circuits(changes)
        except Exception as error:  # noqa: BLE001 - deliveries go on without it
            _complain("outbox_away", error)

    def _outcome(self, done: _FinishedAttempt) -> DeliveryResult:
        delivery, attempt = done.delivery, done.attempt
        ends = attempt.ok or attempt.gone
        wait = next_retry_wait_s(delivery.attempts + 1, attempt.retry_after_s, self._chance())
        return DeliveryResult(
            delivery=delivery,
            outcome=attempt.outcome,
            status=attempt.status,
            detail=attempt.detail,
            answer=attempt.answer,
            duration_ms=attempt.duration_ms,
            delivered=attempt.ok,
            next_wait_s=None if ends else wait,
        )


def _trace(delivery: OutgoingDelivery, attempt: AttemptResult) -> None:
    facts: dict[str, str | int] = {
        "payintent.attempt": delivery.attempts + 1,
        "payintent.outcome": attempt.outcome,
    }
    tracing.record(
        "deliver webhook",
        delivery.payment_id,
        attempt.duration_ms / 1000,
        facts,
        kind=SpanKind.CLIENT,
        failed=not attempt.ok,
    )


def _complain(what: str, error: Exception) -> None:
    if isinstance(error, StorageUnavailableError | LockTimeoutError):
        _log.warning(what, why=str(error) or type(error).__name__)
    else:
        _log.error(what, exc_info=error)
