"""Operations that list, create and resend refunds."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Annotated, ClassVar
from uuid import UUID

from payintent.cases import store as case_store
from payintent.chains.store import DEPOSIT_PROVIDER
from payintent.core import ids
from payintent.core.access import Role
from payintent.core.errors import ConflictError, NotFoundError, UnprocessableError
from payintent.core.money import parse_amount
from payintent.core.texts import check_text, format_count
from payintent.db.database import Executor, Tx
from payintent.gateway_accounts.accounts import GatewayAccounts
from payintent.gateway_accounts.health import read_unavailable_channels
from payintent.operators.fields import (
    argument,
    check_note,
    option,
    parse_before,
    quote_input,
    to_utc,
)
from payintent.operators.operation import (
    ChangeOperation,
    OperationContext,
    PendingList,
    ReadOperation,
)
from payintent.payments.operations import OrderFilter, PaymentId, describe_payment
from payintent.payments.search_store import find_order_payments
from payintent.payments.store import require_payment
from payintent.refunds import address_store
from payintent.refunds import list_store as refund_lists
from payintent.refunds import store as refund_store
from payintent.refunds.address_links import RefundAddressLinks
from payintent.refunds.address_store import RefundAddressRequest
from payintent.refunds.create import CreateRefundRequest, RefundCreator
from payintent.refunds.list_store import RefundDetails, RefundFilter
from payintent.refunds.model import Refund, RefundStatus, RefundStep
from payintent.refunds.settle import lock_refund

_REASON_MAX = 500
_DESTINATION_MAX = 100
RefundId = Annotated[str, argument("A refund id such as ref_0351NDickobV3yYH8omp8v.")]


class ListRefunds(PendingList[list[RefundDetails]], frozen=True, kw_only=True):
    """List refunds."""

    action: ClassVar[str] = "refund.list"
    columns = (
        *("id", "status", "step", "merchant_id", "payment_id"),
        *("amount_minor", "currency", "requested_by", "created_at"),
    )
    payment_id: Annotated[
        str | None, option("Only this payment and its cases.", name="payment")
    ] = None
    order_id: OrderFilter = None
    status: Annotated[RefundStatus | None, option("The status that the merchant sees.")] = None
    step: Annotated[RefundStep | None, option("`approval`: needs a second operator.")] = None
    currency: Annotated[str | None, option("Only this currency, such as THB.")] = None
    changed_since: Annotated[
        datetime | None,
        option(
            "Updated at or after this time, UTC. An ended refund was last updated when it ended."
        ),
    ] = None
    changed_until: Annotated[datetime | None, option("Updated before this time, UTC.")] = None
    before: Annotated[str | None, option("The last refund on the previous page.")] = None
    after: Annotated[
        str | None, option("The last refund on the previous page, if the order is `oldest`.")
    ] = None

    async def read(self, context: OperationContext) -> list[RefundDetails]:
        times = await self.check_list(context, self.before, self.after)
        criteria = RefundFilter(
            merchant_id=self.merchant_id,
            payment_ids=await self._find_payments(context),
            status=self.status,
            step=self.step,
            currency=self.currency,
            created_from=times.since,
            created_before=times.until,
            updated_from=to_utc("changed_since", self.changed_since),
            updated_before=to_utc("changed_until", self.changed_until),
            oldest_first=self.order == "oldest",
            last=parse_before(ids.REFUND, self.before)
            or parse_before(ids.REFUND, self.after, "after"),
        )
        return await refund_lists.list_refunds(context.read_database, criteria, self.limit)

    async def _find_payments(self, context: OperationContext) -> list[UUID] | None:
        order_payments = await find_order_payments(
            context.database, self.order_id, self.merchant_id
        )
        if self.payment_id is None:
            return order_payments
        payment_id = (await require_payment(context.database, self.payment_id)).payment.id
        return [payment_id] if order_payments is None or payment_id in order_payments else []


class ShowRefund(ReadOperation[RefundDetails], frozen=True, kw_only=True):
    """Show a refund."""

    action: ClassVar[str] = "refund.show"
    refund_id: RefundId

    async def read(self, context: OperationContext) -> RefundDetails:
        return await read_details(context.database, self.refund_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class RefundAddressLink:
    refund_id: str
    merchant_id: int
    link: str


class ShowAddressLink(ChangeOperation[RefundAddressLink], frozen=True, kw_only=True):
    """Show the link to the page where the buyer enters the address for a refund of a deposit.

    A second operator must approve this, because anyone who has the link can enter the address.
    """

    action: ClassVar[str] = "refund.address-link"
    needs_role: ClassVar[Role] = Role.FINANCE
    refund_id: RefundId

    async def needs_approval(self, context: OperationContext) -> bool:
        return True

    async def changes(self, context: OperationContext) -> list[str]:
        refund = await read_details(context.database, self.refund_id)
        return [
            f"the approver sees the buyer's link for refund {self.refund_id} of {refund.goes_back}",
            "anyone who has the link can enter the address to which the refund is sent",
        ]

    async def check(self, context: OperationContext) -> None:
        await self._get_request(context.database)

    async def apply(self, context: OperationContext, tx: Tx) -> RefundAddressLink:
        request = await self._get_request(tx)
        links = RefundAddressLinks(context.encryption, context.settings.pages_base)
        return RefundAddressLink(
            refund_id=self.refund_id,
            merchant_id=request.merchant_id,
            link=links.build_url(request.id),
        )

    async def _get_request(self, database: Executor) -> RefundAddressRequest:
        """Return the refund. Raises `UNPROCESSABLE` or `CONFLICT` if it has no usable link."""
        refund = await _require_refund(database, self.refund_id)
        request = await address_store.get_request(database, refund.id)
        if request is None:
            raise UnprocessableError("only the refund of a deposit waits for the buyer's address")
        if not request.can_enter:
            raise ConflictError("the address of this refund can no longer be entered")
        return request


class RefundPayment(ChangeOperation[RefundDetails], frozen=True, kw_only=True):
    """Refund a payment in full or in part on behalf of its merchant. A worker sends the refund.

    On a chain, a second operator must approve if the refund exceeds the threshold or its
    destination is not the payer's address. A refund of a deposit waits until the buyer enters an
    address, because an exchange may have sent the deposit.
    """

    action: ClassVar[str] = "payment.refund"
    needs_role: ClassVar[Role] = Role.FINANCE
    is_destructive: ClassVar[bool] = True
    payment_id: PaymentId
    amount: Annotated[
        str | None, option("The amount to refund; default: the remaining amount.")
    ] = None
    reason: Annotated[str | None, option("The reason shown to the merchant.")] = None
    destination: Annotated[
        str | None,
        option(
            "On-chain address to refund to; default: the payer's address, or the address that the "
            "buyer enters."
        ),
    ] = None
    key: Annotated[
        UUID | None, option("Idempotency key; repeating a request within 24 hours has no effect.")
    ] = None

    async def changes(self, context: OperationContext) -> list[str]:
        snapshot = await require_payment(context.database, self.payment_id)
        currency = snapshot.payment.currency
        amount = f"{self.amount} {currency}" if self.amount else "the remaining amount"
        session = snapshot.session
        is_deposit = session is not None and session.quote.provider == DEPOSIT_PROVIDER
        source = "the address that the buyer enters" if is_deposit else "the original source"
        destination = self.destination or source
        return [f"{describe_payment(snapshot.payment)}: refund {amount}", f"to {destination}"]

    async def check(self, context: OperationContext) -> None:
        check_text("reason", self.reason, _REASON_MAX)
        check_text("destination", self.destination, _DESTINATION_MAX)
        if self.amount is not None:
            payment = (await require_payment(context.database, self.payment_id)).payment
            parse_amount(self.amount, payment.currency, Decimal(0), Decimal("Infinity"))

    async def apply(self, context: OperationContext, tx: Tx) -> RefundDetails:
        """Reserve and queue the refund. Raises the same errors as the merchant's API."""
        payment = (await require_payment(tx, self.payment_id)).payment
        request = CreateRefundRequest(
            merchant_id=payment.merchant_id,
            payment_id=payment.id,
            key=self.key,
            requested_by=context.actor_name,
            amount=self.amount,
            reason=self.reason,
            destination=self.destination,
        )
        unavailable_channels = await read_unavailable_channels(tx)
        accounts = GatewayAccounts(context.database, context.encryption, context.gateways)
        creator = RefundCreator(database=context.database, accounts=accounts)
        refund = (await creator.create_within(tx, request, unavailable_channels)).refund
        if refund.step is RefundStep.APPROVAL and context.is_approved:
            await refund_store.skip_approval(tx, refund.id)
        return await read_details(tx, ids.format_id(ids.REFUND, refund.id))

    def audit_details(self, result: RefundDetails) -> dict[str, object]:
        return {"refund_id": result.id}


class ResendRefund(ChangeOperation[RefundDetails], frozen=True, kw_only=True):
    """Retry a refund that was handed over to an operator. A second operator must approve this.

    If the refund may have been sent, a worker first queries the gateway or the chain. It sends the
    refund again only if the gateway executes each refund at most once. At any other gateway, the
    refund fails if nothing was refunded.
    """

    action: ClassVar[str] = "refund.resend"
    needs_role: ClassVar[Role] = Role.FINANCE
    is_destructive: ClassVar[bool] = True
    refund_id: RefundId
    note: Annotated[
        str,
        option("A note to store with the case; defaults to the reason.", defaults_to_reason=True),
    ]

    async def needs_approval(self, context: OperationContext) -> bool:
        return True  # the day whose limit includes this refund may have passed

    async def changes(self, context: OperationContext) -> list[str]:
        refund = await read_details(context.database, self.refund_id)
        units = format_count(int(refund.amount_minor), "smallest unit")
        amount = refund.goes_back or f"{units} of an unknown token"
        destination = refund.destination or "the payer"
        return [
            f"refund {self.refund_id} of merchant {refund.merchant_id} is retried",
            f"{amount} is refunded to {destination}, unless it was refunded before",
            f"note: {self.note}",
        ]

    async def check(self, context: OperationContext) -> None:
        check_note(self.note)
        refund = await _require_refund(context.database, self.refund_id)
        await _check_resendable(context.database, refund.id)

    async def apply(self, context: OperationContext, tx: Tx) -> RefundDetails:
        refund, _ = await lock_by_id(tx, self.refund_id)
        await _check_resendable(tx, refund.id)
        await refund_store.resume(tx, refund.id, context.approved_by or context.actor_name)
        note = f"resent by {context.actor_name}: {self.note}"
        await case_store.reopen_for_refund(tx, refund.id, note)
        return await read_details(tx, self.refund_id)


@dataclass(frozen=True, slots=True)
class QueuedRefundCount:
    refunds: int


class CheckQueuedRefunds(ChangeOperation[QueuedRefundCount], frozen=True, kw_only=True):
    """Query the gateway for every queued refund before sending it; run this after a restore.

    It must run before any worker starts. A refund that was queued in the backup may have been sent
    since, so it is marked as sent and a worker first queries its gateway or chain. It is sent again
    only if the gateway executes each refund at most once, or if the contract has not executed it.
    """

    action: ClassVar[str] = "refund.ask-first"
    needs_role: ClassVar[Role] = Role.FINANCE
    is_destructive: ClassVar[bool] = True

    async def changes(self, context: OperationContext) -> list[str]:
        return [
            "the gateway is queried for every queued refund before the refund is sent",
            "a refund unknown to its gateway fails after ten minutes, unless resending is safe",
        ]

    async def apply(self, context: OperationContext, tx: Tx) -> QueuedRefundCount:
        return QueuedRefundCount(await refund_store.mark_queued_as_sent(tx))

    def audit_details(self, result: QueuedRefundCount) -> Mapping[str, object]:
        return {"refunds": result.refunds}


async def read_details(database: Executor, refund_id: str) -> RefundDetails:
    refund = await _require_refund(database, refund_id)
    details = await refund_lists.get(database, refund.id)
    assert details is not None  # noqa: S101 - refunds are never deleted
    return details


async def _require_refund(database: Executor, refund_id: str) -> Refund:
    refund_uuid = ids.parse_id(ids.REFUND, refund_id)
    refund = await refund_store.get(database, refund_uuid) if refund_uuid else None
    if refund is None:
        raise NotFoundError(f"no refund {quote_input(refund_id)}")
    return refund


async def lock_by_id(tx: Tx, refund_id: str) -> tuple[Refund, datetime]:
    """Lock the payment, the capture and the refund, in this order; also return the time."""
    _, refund, now = await lock_refund(tx, (await _require_refund(tx, refund_id)).id)
    return refund, now


async def _check_resendable(database: Executor, refund_id: UUID) -> None:
    """Raise `CONFLICT` unless the refund can be resent."""
    refund = await refund_store.get_resend_state(database, refund_id)
    if not refund.was_handed_over:
        state = refund.status if refund.step == RefundStep.ENDED else refund.step
        raise ConflictError(f"the refund was not handed over to an operator: it is {state}")
    if refund.has_transfer:
        raise ConflictError("the chain already contains a transfer with this refund's id")
    if refund.is_disputed:
        raise ConflictError("this refund's money is held for a dispute")


def describe_refund(refund: Refund) -> str:
    """Return the failure reason or the step, with a warning if the refund may have been sent."""
    if refund.step is RefundStep.QUEUED and refund.sent_at is not None:
        return "queued, and may have been sent before"
    return refund.failure_reason or refund.step
