"""Refunds: listed, shown, and approved or rejected by a second operator."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, ClassVar
from uuid import UUID

from payintent.domain import ids
from payintent.domain.errors import ConflictError, NotFoundError, UnprocessableError
from payintent.domain.operator import Role
from payintent.domain.refund import Refund, RefundFailureReason, RefundStatus, RefundStep
from payintent.operations.base import ChangeOperation, OperationContext, ReadOperation
from payintent.operations.fields import ListLimit, OfMerchantId, argument, option
from payintent.operations.json_values import to_hex_or_none
from payintent.operations.list_order import ListOrder, check_order, check_pages
from payintent.operations.list_times import MadeSince, MadeUntil, OlderThan, made_between
from payintent.operations.refund_views import RefundView, refund_view
from payintent.operations.validation import (
    as_utc,
    check_list_limit,
    check_merchant,
    check_note,
    parse_before,
    quote_input,
    require_payment,
)
from payintent.payments.transitions import lock_payments
from payintent.storage import captures, cases, refund_reviews, refunds, resting_refunds
from payintent.storage.database import Executor, Tx, current_time
from payintent.storage.refund_reviews import RefundFilter, RefundReview

_RefundId = Annotated[str, argument("Such as ref_0351NDickobV3yYH8omp8v.")]


class ListRefunds(ReadOperation[list[RefundView]], frozen=True, kw_only=True):
    """List refunds, newest first; of those that wait for a person also the oldest first."""

    action: ClassVar[str] = "refund.list"
    columns = (
        *("id", "status", "step", "merchant_id", "payment_id"),
        *("amount_minor", "currency", "requested_by", "created_at"),
    )
    merchant_id: OfMerchantId = None
    payment_id: Annotated[str | None, option("Of one payment, its cases' too.", name="payment")] = (
        None
    )
    status: Annotated[RefundStatus | None, option("The status that the merchant sees.")] = None
    step: Annotated[RefundStep | None, option("How far; `approval` waits for a person.")] = None
    currency: Annotated[str | None, option("Of one currency, such as THB.")] = None
    since: MadeSince = None
    until: MadeUntil = None
    older_than: OlderThan = None
    changed_since: Annotated[
        datetime | None, option("Changed last from this time on, UTC; an ended one has ended then.")
    ] = None
    changed_until: Annotated[datetime | None, option("Changed last before this time, UTC.")] = None
    before: Annotated[
        str | None, option("The next page: refunds before this one, the last of a page.")
    ] = None
    order: ListOrder = "newest"
    after: Annotated[str | None, option("The next page where the oldest come first.")] = None
    limit: ListLimit = 20

    async def read(self, context: OperationContext) -> list[RefundView]:
        check_list_limit(self.limit)
        check_order(self.order, "step approval", self.step == RefundStep.APPROVAL)
        check_pages(self.order, self.before, self.after)
        await check_merchant(context.database, self.merchant_id)
        made = await made_between(context.database, self.since, self.until, self.older_than)
        wanted = RefundFilter(
            merchant_id=self.merchant_id,
            payment_id=await self._payment(context),
            status=self.status,
            step=self.step,
            currency=self.currency,
            created_from=made.since,
            created_before=made.until,
            updated_from=as_utc("changed_since", self.changed_since),
            updated_before=as_utc("changed_until", self.changed_until),
            oldest_first=self.order == "oldest",
            last=parse_before(ids.REFUND, self.before)
            or parse_before(ids.REFUND, self.after, "after"),
        )
        records = await refund_reviews.list_refunds(context.reading, wanted, self.limit)
        return list(map(refund_view, records))

    async def _payment(self, context: OperationContext) -> UUID | None:
        if self.payment_id is None:
            return None
        return (await require_payment(context.database, self.payment_id)).payment.id


class ShowRefund(ReadOperation[RefundView], frozen=True, kw_only=True):
    """Show one refund, and the money that it gives back."""

    action: ClassVar[str] = "refund.show"
    refund_id: _RefundId

    async def read(self, context: OperationContext) -> RefundView:
        return await read_refund_view(context.database, self.refund_id)


class ApproveRefund(ChangeOperation[RefundView], frozen=True, kw_only=True):
    """Let a refund be sent that waits for a person; who asked for it cannot."""

    action: ClassVar[str] = "refund.approve"
    needs_role: ClassVar[Role] = Role.FINANCE
    is_destructive: ClassVar[bool] = True
    refund_id: _RefundId
    note: Annotated[str, option("Needed where the money goes to another than its payer.")] = ""

    async def check(self, context: OperationContext) -> None:
        check_note(self.note, needed=False)

    async def apply(self, context: OperationContext, tx: Tx) -> RefundView:
        review = await _known(tx, self.refund_id)
        refund, at = await _waiting(tx, review)
        _check_second_person(context, refund)
        if refund.destination != to_hex_or_none(review.payer):
            check_note(self.note)
        await refund_reviews.approve(tx, refund.id, context.who, self.note, at)
        return await read_refund_view(tx, self.refund_id)


class RejectRefund(ChangeOperation[RefundView], frozen=True, kw_only=True):
    """End a refund that waits for a person, or was never sent; what it reserved is free again."""

    action: ClassVar[str] = "refund.reject"
    needs_role: ClassVar[Role] = Role.FINANCE
    is_destructive: ClassVar[bool] = True
    refund_id: _RefundId
    note: Annotated[str, option("Kept with the refund; left out: the reason.", or_reason=True)]

    async def check(self, context: OperationContext) -> None:
        check_note(self.note)

    async def apply(self, context: OperationContext, tx: Tx) -> RefundView:
        """End the refund; its requester may withdraw it this way too."""
        refund = await _lock(tx, await _known(tx, self.refund_id))
        at = await current_time(tx)
        unsent = refund.step is RefundStep.QUEUED and refund.sent_at is None
        if not unsent and refund.step is not RefundStep.APPROVAL:
            raise ConflictError(f"the refund cannot be rejected: it is {_how_far(refund)}")
        await refunds.mark_failed(tx, refund, RefundFailureReason.REJECTED, None, at)
        await refund_reviews.add_note(tx, refund.id, self.note)
        return await read_refund_view(tx, self.refund_id)


class ResendRefund(ChangeOperation[RefundView], frozen=True, kw_only=True):
    """Send a refund again that rests with a case and was surely not done; needs two people.

    A worker asks the gateway, or the chain, before it sends anything: a refund is sent again only
    where nothing was refunded, or where the gateway does it once however often it is sent.
    """

    action: ClassVar[str] = "refund.resend"
    needs_role: ClassVar[Role] = Role.FINANCE
    is_destructive: ClassVar[bool] = True
    refund_id: _RefundId
    note: Annotated[str, option("Kept with its case; left out: the reason.", or_reason=True)]

    async def needs_approval(self, context: OperationContext) -> bool:
        """Return True: it moves money, on a later day than the one it was counted for."""
        return True

    async def changes(self, context: OperationContext) -> list[str]:
        refund = await _known(context.database, self.refund_id)
        amount = f"{refund.amount_minor} smallest units of {refund.capture_currency}"
        destination = refund.destination or "the way that it came"
        return [
            f"refund {self.refund_id} of merchant {refund.merchant_id} is taken up again",
            f"{amount} go back to {destination}, unless they have gone back before",
            f"note: {self.note}",
        ]

    async def check(self, context: OperationContext) -> None:
        """Refuse a refund that is still polled, or may have been done."""
        check_note(self.note)
        await _check_resting(
            context, context.database, await _known(context.database, self.refund_id)
        )

    async def apply(self, context: OperationContext, tx: Tx) -> RefundView:
        """Resume polling the refund; its case stays open, or is reopened."""
        found = await _known(tx, self.refund_id)
        await _lock(tx, found)
        await _check_resting(context, tx, found)
        await resting_refunds.resume(tx, found.id, context.approved_by or context.who)
        note = f"sent again by {context.who}: {self.note}"
        await cases.reopen_for_refund(tx, found.id, note)
        return await read_refund_view(tx, self.refund_id)


@dataclass(frozen=True, slots=True)
class RefundsAskedFirst:
    """How many refunds their gateways are asked about before anything is sent."""

    refunds: int


class AskRefundsFirst(ChangeOperation[RefundsAskedFirst], frozen=True, kw_only=True):
    """After a restore, before a worker runs: ask about every refund before it is sent.

    What was queued at the moment that was restored may have been sent since. Until it is known what
    became of it, each counts as sent now: a worker asks its gateway, or its chain. It is sent only
    where the gateway does a refund once per id, or where the contract has not done it.
    """

    action: ClassVar[str] = "refund.ask-first"
    needs_role: ClassVar[Role] = Role.FINANCE
    is_destructive: ClassVar[bool] = True

    async def changes(self, context: OperationContext) -> list[str]:
        harm = "one that its gateway does not know fails after ten minutes"
        return [
            "every refund that waits to be sent is asked about first",
            f"{harm}, unless it can be sent twice without harm",
        ]

    async def apply(self, context: OperationContext, tx: Tx) -> RefundsAskedFirst:
        """Mark every queued refund as sent now, to be asked about; a resting one keeps resting."""
        return RefundsAskedFirst(await resting_refunds.mark_queued_as_sent(tx))

    def audit_details(self, result: RefundsAskedFirst) -> Mapping[str, object]:
        return {"refunds": result.refunds}


async def read_refund_view(database: Executor, refund_id: str) -> RefundView:
    return refund_view(await _known(database, refund_id))


async def _check_resting(
    context: OperationContext, database: Executor, refund: RefundReview
) -> None:
    """Raise `CONFLICT` or `UNPROCESSABLE` if it is still polled, or may have been done."""
    found = await resting_refunds.get(database, refund.id)
    if not found.resting:
        state = found.status if found.step == RefundStep.ENDED else found.step
        raise ConflictError(f"the refund does not rest with a case: it is {state}")
    if found.logged:
        raise ConflictError("the chain shows that money went back under this refund's id")
    if found.disputed:
        raise ConflictError("a dispute holds the money that it would give back")
    capabilities = context.capabilities(found.provider)
    is_repeatable = capabilities is not None and capabilities.refund_is_idempotent
    if found.step == RefundStep.SENT and not is_repeatable:
        raise UnprocessableError(
            f"{found.provider} may have done this refund, and might do it twice if it is sent "
            "again: settle it at the gateway"
        )


async def _known(database: Executor, refund_id: str) -> RefundReview:
    parsed = ids.parse_id(ids.REFUND, refund_id)
    found = await refund_reviews.get(database, parsed) if parsed else None
    if found is None:
        raise NotFoundError(f"no refund {quote_input(refund_id)}")
    return found


async def _waiting(tx: Tx, review: RefundReview) -> tuple[Refund, datetime]:
    """Lock payment, capture and refund; raise `CONFLICT` if it does not wait for approval."""
    refund = await _lock(tx, review)
    if refund.step is not RefundStep.APPROVAL:
        raise ConflictError(f"the refund does not wait for approval: it is {_how_far(refund)}")
    return refund, await current_time(tx)


def _how_far(refund: Refund) -> str:
    """Say how a refund has ended, or its step: one that may have been sent before is not unsent."""
    if refund.step is RefundStep.QUEUED and refund.sent_at is not None:
        return "queued, and may have been sent before"
    return refund.failure_reason or refund.step


async def _lock(tx: Tx, review: RefundReview) -> Refund:
    """Lock payment, capture and refund, in this order."""
    if review.payment_id is not None:
        await lock_payments(tx, [review.payment_id])
    await captures.lock(tx, review.capture_id)
    return await refunds.lock(tx, review.id)


def _check_second_person(context: OperationContext, refund: Refund) -> None:
    """Refuse (`CONFLICT`) the requester; a merchant's refund needs only one operator."""
    requester = refund.requested_by
    if requester == context.who:
        raise ConflictError(
            f"another operator than {quote_input(requester)}, who asked, must approve"
        )
