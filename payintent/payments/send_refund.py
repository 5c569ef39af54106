"""Sends refunds to their gateways: sent once, then inquired about until they have ended.

A refund is marked as sent before its gateway gets it, so that after a crash it is inquired about
first. It is sent again only where surely nothing was done, or where the gateway does it once per
id.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from payintent import tracing
from payintent.domain import ids
from payintent.domain.case import CaseKind
from payintent.domain.errors import LockTimeoutError, StorageUnavailableError
from payintent.domain.gateway import (
    Capture,
    Gateway,
    GatewayAccount,
    GatewayRefundRequest,
    GatewayRefundState,
    GatewaySessionRef,
    NotContacted,
    OutcomeUnknown,
    RefundReport,
)
from payintent.domain.refund import OUTSIDE, RefundStep
from payintent.log import get_logger
from payintent.payments.cases import open_case, refund_origin
from payintent.payments.gateway_accounts import GatewayAccounts
from payintent.payments.gateway_calls import GatewayCall, GatewayRequestKind
from payintent.payments.gateway_health import GatewayChannel
from payintent.payments.settle_refund import lock_refund, settle_refund
from payintent.storage import cases, refunds, sessions
from payintent.storage.database import Database
from payintent.storage.refunds import DueRefund

_log = get_logger("submit_refund")
_RefundCall = Callable[
    [GatewayAccount, GatewayRefundRequest], Awaitable[RefundReport | OutcomeUnknown]
]

#: Seconds between inquiries about a refund that has not ended, the last one repeated.
WAITS_S = (5.0, 15.0, 30.0, 120.0, 600.0, 3600.0)
#: A refund that was never sent is not delayed for long once its gateway answers again.
UNSENT_WAIT_MAX_S = 60.0
#: A request of ours may still be on its way when a gateway answers that it does not know a refund.
ABSENT_PROVES_AFTER_S = 600
GIVE_UP_AFTER_S = 7 * 24 * 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class RefundSender:
    database: Database
    accounts: GatewayAccounts
    api_base: str

    async def process(self, due: DueRefund) -> None:
        """Send one refund, or ask about it, and apply the answer."""
        if due.refund.payment_id is not None:
            tracing.follow_payment(due.refund.payment_id)
        try:
            await self._process(due)
        except (StorageUnavailableError, LockTimeoutError):
            raise
        except Exception as error:  # a bug: after a week a person hears of it all the same
            await self._next(due, OutcomeUnknown(detail=type(error).__name__))
            raise

    async def _process(self, due: DueRefund) -> None:
        answer = await self._turn(due)
        if answer is None:
            return
        if isinstance(answer, OutcomeUnknown):
            refund = ids.format_id(ids.REFUND, due.refund.id)
            _log.warning("refund_unanswered", refund=refund, why=answer.detail)
        else:
            async with self.database.transaction() as tx:
                await settle_refund(tx, due.refund.id, answer)
        await self._next(due, answer)

    async def _turn(self, due: DueRefund) -> RefundReport | OutcomeUnknown | None:
        """Ask the gateway what is next to be asked; None where another process did."""
        connection = await self.accounts.connect(due.account_id, due.provider)
        if connection is None:
            return OutcomeUnknown(detail="no account or adapter")
        if due.refund.step is RefundStep.SENT:
            answer = await self._call(
                due, GatewayRequestKind.INQUIRE_REFUND, lambda gateway: gateway.inquire_refund
            )
            return await self._read(due, connection.gateway, answer)
        if not await self.accounts.health.allows(due.account_id, GatewayChannel.REFUNDS):
            return NotContacted(detail="the gateway is given a rest")
        return await self._send(due)

    async def _call(
        self, due: DueRefund, kind: GatewayRequestKind, operation: Callable[[Gateway], _RefundCall]
    ) -> RefundReport | OutcomeUnknown:
        request = await self._request(due)
        call = GatewayCall(
            account_id=due.account_id,
            provider=due.provider,
            kind=kind,
            subject_id=due.refund.id,
            payment_id=due.refund.payment_id,
        )
        return await self.accounts.call(
            call,
            lambda gateway, account: operation(gateway)(account, request),
        )

    async def _send(self, due: DueRefund) -> RefundReport | OutcomeUnknown | None:
        if not await refunds.mark_sending(self.database, due.refund.id):
            await self._decline_disputed(due)
            return None
        answer = await self._call(due, GatewayRequestKind.REFUND, lambda gateway: gateway.refund)
        if isinstance(answer, NotContacted):
            await refunds.mark_unsent(self.database, due.refund.id, due.refund.sent_at)
        return answer

    async def _decline_disputed(self, due: DueRefund) -> None:
        """End a refund that was never sent where a dispute gives the buyer its money already."""
        async with self.database.transaction() as tx:
            _, refund, _ = await lock_refund(tx, due.refund.id)
            unsent = refund.step is RefundStep.QUEUED and refund.sent_at is None
            if not unsent or not await refunds.is_disputed(tx, refund.capture_id):
                return
            report = RefundReport(state=GatewayRefundState.DECLINED, detail="disputed")
            await settle_refund(tx, refund.id, report)
        _log.warning("refund_disputed", refund=ids.format_id(ids.REFUND, due.refund.id))

    async def _read(
        self, due: DueRefund, gateway: Gateway, answer: RefundReport | OutcomeUnknown
    ) -> RefundReport | OutcomeUnknown:
        """Decide what an answer of `ABSENT` proves: to be sent again, or not done."""
        if not isinstance(answer, RefundReport) or answer.state is not GatewayRefundState.ABSENT:
            return answer
        if answer.hopeless or due.refund.requested_by == OUTSIDE:  # it was not ours to send
            return answer
        if gateway.capabilities.refund_is_idempotent:
            await refunds.mark_queued(self.database, due.refund.id)
            return answer
        sent_at = due.refund.sent_at
        long_ago = sent_at and (due.now - sent_at).total_seconds() > ABSENT_PROVES_AFTER_S
        return (
            RefundReport(state=GatewayRefundState.DECLINED, detail="never seen")
            if long_ago
            else answer
        )

    async def _next(self, due: DueRefund, answer: RefundReport | OutcomeUnknown) -> None:
        refund = due.refund
        hopeless = isinstance(answer, RefundReport) and answer.hopeless
        # Since it was accepted or approved: an approval may have taken long.
        if hopeless or (due.now - refund.updated_at).total_seconds() > GIVE_UP_AFTER_S:
            await self._hand_over(due)
        elif refund.step is RefundStep.QUEUED and isinstance(answer, RefundReport):
            await refunds.schedule_inquiry(self.database, refund.id, WAITS_S[0], inquiries=0)
        else:
            unsent = isinstance(answer, NotContacted)
            wait_s = min(_wait_s(due), UNSENT_WAIT_MAX_S) if unsent else _wait_s(due)
            inquiries = refund.inquiries + 1
            await refunds.schedule_inquiry(self.database, refund.id, wait_s, inquiries=inquiries)

    async def _request(self, due: DueRefund) -> GatewayRefundRequest:
        refund = due.refund
        return GatewayRefundRequest(
            refund_id=refund.id,
            reference=refund.reference,
            session=await self._session(due),
            capture=Capture(
                reference=due.capture_reference,
                amount_minor=due.capture_minor,
                currency=due.capture_currency,
            ),
            amount_minor=refund.amount_minor,
            reason=refund.reason or "",
            destination=refund.destination,
            callback_url=f"{self.api_base}/callbacks/{due.provider}/{due.account_id}",
            sent_before=refund.sent_at is not None,
        )

    async def _session(self, due: DueRefund) -> GatewaySessionRef | None:
        """Return the session of the capture; some gateways refund by it alone."""
        if due.session_id is not None:
            session = await sessions.get(self.database, due.session_id)
            return session.gateway_ref if session else None
        if due.named_session_id is None:
            return None
        return GatewaySessionRef(
            session_id=due.named_session_id,
            reference=None,
            amount_minor=due.capture_minor,
            currency=due.capture_currency,
            opened_at=due.captured_at,
        )

    async def _hand_over(self, due: DueRefund) -> None:
        """After a week, or where nothing can come of it, open a case; the amount stays reserved."""
        refund = due.refund
        async with self.database.transaction() as tx:
            _, present, _ = await lock_refund(tx, refund.id)
            if present.step is RefundStep.ENDED:
                return
            opened = await open_case(
                tx,
                CaseKind.RECONCILIATION,
                refund_origin(refund),
                capture_id=refund.capture_id,
                refund_id=refund.id,
            )
            if opened is None:
                await cases.reopen_for_refund(tx, refund.id, "it rests again")
            await refunds.stop_inquiries(tx, refund.id)


def _wait_s(due: DueRefund) -> float:
    return WAITS_S[min(due.refund.inquiries, len(WAITS_S) - 1)]
