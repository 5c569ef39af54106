"""Send refunds to gateways and poll them until they end.

A refund is marked as sent before the gateway is called, so a crash is followed by an inquiry
instead of a second request. It is sent again only if the gateway has definitely not executed it, or
if the gateway executes each refund id at most once.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from payintent.cases import store as case_store
from payintent.cases.model import CaseKind
from payintent.cases.store import open_case
from payintent.core import ids
from payintent.core.errors import LockTimeoutError, StorageUnavailableError
from payintent.db.database import Database
from payintent.gateway_accounts.accounts import GatewayAccounts
from payintent.gateway_accounts.calls import GatewayCall, GatewayRequestKind
from payintent.gateway_accounts.health import GatewayChannel
from payintent.gateways.port import (
    Capture,
    Gateway,
    GatewayAccount,
    GatewayRefundRequest,
    GatewayRefundState,
    GatewaySessionRef,
    NotContacted,
    OutcomeUnknown,
    RefundReport,
    RefundResult,
)
from payintent.payments import sessions_store as session_store
from payintent.refunds import store as refund_store
from payintent.refunds.model import OUTSIDE_REQUESTER, RefundStep
from payintent.refunds.settle import lock_refund, make_refund_origin, settle_refund
from payintent.refunds.store import DueRefund
from payintent.runtime import tracing
from payintent.runtime.log import get_logger

_log = get_logger("submit_refund")
_RefundCall = Callable[[GatewayAccount, GatewayRefundRequest], Awaitable[RefundResult]]

#: Seconds between inquiries about a pending refund; the last value repeats.
INQUIRY_DELAYS_S = (5.0, 15.0, 30.0, 120.0, 600.0, 3600.0)
#: Maximum delay for unsent refunds, so that they are sent soon after the gateway recovers.
UNSENT_DELAY_MAX_S = 60.0
#: Time until a refund that is unknown to its gateway is treated as never received. Before then, our
#: request may still be in transit.
ABSENT_FINAL_AFTER_S = 600
HAND_OVER_AFTER_S = 7 * 24 * 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class RefundSender:
    database: Database
    accounts: GatewayAccounts
    api_base: str

    async def process(self, due_refund: DueRefund) -> None:
        """Send or poll a refund, apply the result and schedule the next attempt."""
        if due_refund.refund.payment_id is not None:
            tracing.follow_payment(due_refund.refund.payment_id)
        try:
            await self._process(due_refund)
        except (StorageUnavailableError, LockTimeoutError):
            raise
        except Exception as error:  # a bug; the refund is still handed over after a week
            await self._schedule(due_refund, OutcomeUnknown(detail=type(error).__name__))
            raise

    async def _process(self, due_refund: DueRefund) -> None:
        result = await self._contact_gateway(due_refund)
        if result is None:
            return
        if isinstance(result, OutcomeUnknown):
            refund = ids.format_id(ids.REFUND, due_refund.refund.id)
            _log.warning("refund_unanswered", refund=refund, why=result.detail)
        else:
            async with self.database.transaction() as tx:
                await settle_refund(tx, due_refund.refund.id, result)
        await self._schedule(due_refund, result)

    async def _contact_gateway(self, due_refund: DueRefund) -> RefundReport | OutcomeUnknown | None:
        """Send or poll the refund; return None if this is no longer needed."""
        connection = await self.accounts.connect(due_refund.account_id, due_refund.provider)
        if connection is None:
            return OutcomeUnknown(detail="the account or its adapter is missing")
        if due_refund.refund.step is RefundStep.SENT:
            result = await self._call(
                due_refund,
                GatewayRequestKind.INQUIRE_REFUND,
                lambda gateway: gateway.inquire_refund,
            )
            return await self._resolve_absent_refund(due_refund, connection.gateway, result)
        if not await self.accounts.health.allows_request(
            due_refund.account_id, GatewayChannel.REFUNDS
        ):
            return NotContacted(detail="the gateway's circuit is open")
        return await self._send(due_refund)

    async def _call(
        self,
        due_refund: DueRefund,
        kind: GatewayRequestKind,
        operation: Callable[[Gateway], _RefundCall],
    ) -> RefundResult:
        request = await self._build_request(due_refund)
        call = GatewayCall(
            account_id=due_refund.account_id,
            provider=due_refund.provider,
            kind=kind,
            subject_id=due_refund.refund.id,
            payment_id=due_refund.refund.payment_id,
        )
        return await self.accounts.call(
            call, lambda gateway, account: operation(gateway)(account, request)
        )

    async def _send(self, due_refund: DueRefund) -> RefundReport | OutcomeUnknown | None:
        if not await refund_store.mark_sending(self.database, due_refund.refund):
            await self._stop_disputed_refund(due_refund)
            return None
        result = await self._call(
            due_refund, GatewayRequestKind.REFUND, lambda gateway: gateway.refund
        )
        if isinstance(result, NotContacted):
            await refund_store.mark_unsent(
                self.database, due_refund.refund.id, due_refund.refund.sent_at
            )
        return result

    async def _stop_disputed_refund(self, due_refund: DueRefund) -> None:
        """Do not send a queued refund if a dispute is already returning the money.

        A refund that was never sent is declined. Any other refund is only polled.
        """
        async with self.database.transaction() as tx:
            _, refund, _ = await lock_refund(tx, due_refund.refund.id)
            is_queued = refund.step is RefundStep.QUEUED
            if not is_queued or not await refund_store.is_disputed(tx, refund.capture_id):
                return
            if refund.sent_at is not None:
                await refund_store.resume_polling(tx, refund.id)
                return
            report = RefundReport(state=GatewayRefundState.DECLINED, detail="disputed")
            await settle_refund(tx, refund.id, report)
        _log.warning("refund_disputed", refund=ids.format_id(ids.REFUND, due_refund.refund.id))

    async def _resolve_absent_refund(
        self, due_refund: DueRefund, gateway: Gateway, result: RefundResult
    ) -> RefundResult:
        """Requeue an `ABSENT` refund if that is safe; otherwise decline it after ten minutes.

        It is not safe if the money is disputed, because the buyer would receive it twice.
        """
        if not isinstance(result, RefundReport) or result.state is not GatewayRefundState.ABSENT:
            return result
        if (
            result.needs_operator or due_refund.refund.requested_by == OUTSIDE_REQUESTER
        ):  # we did not send it
            return result
        if gateway.capabilities.refund_is_idempotent and not await refund_store.is_disputed(
            self.database, due_refund.refund.capture_id
        ):
            await refund_store.mark_queued(self.database, due_refund.refund.id)
            return result
        sent_at = due_refund.refund.sent_at
        if sent_at is None or (due_refund.now - sent_at).total_seconds() <= ABSENT_FINAL_AFTER_S:
            return result
        return RefundReport(state=GatewayRefundState.DECLINED, detail="never received")

    async def _schedule(self, due_refund: DueRefund, result: RefundResult) -> None:
        refund = due_refund.refund
        needs_operator = isinstance(result, RefundReport) and result.needs_operator
        # Measured from acceptance or approval (`updated_at`), because an approval may take days.
        waiting_s = (due_refund.now - refund.updated_at).total_seconds()
        if needs_operator or waiting_s > HAND_OVER_AFTER_S:
            await self._hand_over_to_operator(due_refund)
        elif refund.step is RefundStep.QUEUED and isinstance(result, RefundReport):
            await refund_store.schedule_inquiry(
                self.database, refund.id, INQUIRY_DELAYS_S[0], inquiries=0
            )
        else:
            delay_s = INQUIRY_DELAYS_S[min(refund.inquiries, len(INQUIRY_DELAYS_S) - 1)]
            if isinstance(result, NotContacted):
                delay_s = min(delay_s, UNSENT_DELAY_MAX_S)
            inquiries = refund.inquiries + 1
            await refund_store.schedule_inquiry(
                self.database, refund.id, delay_s, inquiries=inquiries
            )

    async def _build_request(self, due_refund: DueRefund) -> GatewayRefundRequest:
        refund = due_refund.refund
        return GatewayRefundRequest(
            refund_id=refund.id,
            reference=refund.reference,
            session=await self._get_session(due_refund),
            capture=Capture(
                reference=due_refund.capture_reference,
                amount_minor=due_refund.capture_minor,
                currency=due_refund.capture_currency,
            ),
            amount_minor=refund.amount_minor,
            reason=refund.reason or "",
            destination=refund.destination,
            callback_url=f"{self.api_base}/callbacks/{due_refund.provider}/{due_refund.account_id}",
            was_sent_before=refund.sent_at is not None,
        )

    async def _get_session(self, due_refund: DueRefund) -> GatewaySessionRef | None:
        # Some gateways identify the payment to refund only by its session.
        if due_refund.session_id is not None:
            session = await session_store.get(self.database, due_refund.session_id)
            return session.gateway_ref if session else None
        if due_refund.callback_session_id is None:
            return None
        return GatewaySessionRef(
            session_id=due_refund.callback_session_id,
            reference=None,
            amount_minor=due_refund.capture_minor,
            currency=due_refund.capture_currency,
            opened_at=due_refund.captured_at,
        )

    async def _hand_over_to_operator(self, due_refund: DueRefund) -> None:
        """Stop polling and open a case. The amount remains reserved."""
        refund = due_refund.refund
        async with self.database.transaction() as tx:
            _, locked_refund, _ = await lock_refund(tx, refund.id)
            if locked_refund.step is RefundStep.ENDED:
                return
            case_id = await open_case(
                tx,
                CaseKind.RECONCILIATION,
                make_refund_origin(refund),
                capture_id=refund.capture_id,
                refund_id=refund.id,
            )
            if case_id is None:
                await case_store.reopen_for_refund(
                    tx, refund.id, "handed over to an operator again"
                )
            await refund_store.stop_inquiries(tx, refund.id)
