"""The operation that closes a case or refunds its money."""

from typing import Annotated, ClassVar, Literal

from payintent.accounting import ledger_store
from payintent.cases import store as case_store
from payintent.cases.list_store import CaseDetails
from payintent.cases.operations import CaseId, read_case_details, require_case
from payintent.cases.store import CaseRecord
from payintent.core import ids
from payintent.core.access import Role
from payintent.core.errors import BadRequestError, ConflictError, UnprocessableError
from payintent.db.database import Tx
from payintent.operators.fields import (
    argument,
    check_note,
    option,
)
from payintent.operators.operation import ChangeOperation, OperationContext
from payintent.payments import captures_store as capture_store
from payintent.payments import store as payment_store
from payintent.refunds import store as refund_store
from payintent.refunds.create import refund_case
from payintent.refunds.model import RefundStatus, RefundStep


class ResolveCase(ChangeOperation[CaseDetails], frozen=True, kw_only=True):
    """Close a case or refund its money. No payment is changed, and no event is sent.

    A refunded case stays OPEN until the refund succeeds; it then becomes REFUNDED.
    """

    action: ClassVar[str] = "case.resolve"
    needs_role: ClassVar[Role] = Role.SUPPORT
    is_destructive: ClassVar[bool] = True
    case_id: CaseId
    resolution: Annotated[
        Literal["accept", "dismiss", "refund"],
        argument(
            "`accept`: keep the money; `dismiss`: close the case because there is no money to keep "
            "or refund; `refund`: return the money."
        ),
    ]
    note: Annotated[
        str,
        option("A note to store with the case; defaults to the reason.", defaults_to_reason=True),
    ]
    destination: Annotated[
        str | None, option("On-chain address to refund to; defaults to the payer's address.")
    ] = None

    def required_role(self) -> Role:
        return Role.FINANCE if self.resolution == "refund" else self.needs_role

    async def check(self, context: OperationContext) -> None:
        check_note(self.note)
        if self.destination is not None and self.resolution != "refund":
            raise BadRequestError("`destination` is only allowed when `resolution` is `refund`")

    async def apply(self, context: OperationContext, tx: Tx) -> CaseDetails:
        case = await require_case(tx, self.case_id)
        if self.resolution == "refund":
            await self._refund(context, tx, case)
        else:
            await _lock_open_case(tx, case)
            await case_store.close(
                tx, case.id, _STATUSES[self.resolution], context.actor_name, self.note
            )
            await ledger_store.add_resolution(tx, case.id)
        return await read_case_details(tx, self.case_id)

    async def _refund(self, context: OperationContext, tx: Tx, case: CaseRecord) -> None:
        capture_id = case.capture_id
        if capture_id is None or case.credited or not case.holds_money:
            raise UnprocessableError(_no_money_message(case))
        await _lock_open_case(tx, case)
        refund = await refund_case(tx, case.id, capture_id, context.actor_name, self.destination)
        if refund.step is RefundStep.APPROVAL and context.is_approved:
            await refund_store.skip_approval(tx, refund.id)
        await case_store.add_note(tx, case.id, self.note)


_STATUSES = {"accept": "ACCEPTED", "dismiss": "DISMISSED"}


async def _lock_open_case(tx: Tx, case: CaseRecord) -> None:
    """Lock the payment, the capture and the case, in that order.

    Raises `CONFLICT` if the case is closed or being refunded, or if money has arrived since `case`
    was read.
    """
    if case.payment_id is not None:
        await payment_store.lock(tx, [case.payment_id])
    if case.capture_id is not None:
        await capture_store.lock(tx, case.capture_id)
    await case_store.lock(tx, case.id)
    current_case = await case_store.get(tx, case.id)
    assert current_case is not None  # noqa: S101 - cases are never deleted
    if current_case.status != "OPEN":
        raise ConflictError(f"the case is already {current_case.status}")
    if current_case.refund_id is not None and current_case.refund_status != RefundStatus.FAILED:
        refund_id = ids.format_id(ids.REFUND, current_case.refund_id)
        raise ConflictError(f"this case's money is already being refunded: {refund_id}")
    if current_case.capture_id != case.capture_id:
        raise ConflictError("money has just arrived for this case; review it again")


def _no_money_message(case: CaseRecord) -> str:
    if not case.holds_money:
        return (
            f"a {case.kind} case does not hold funds; resolve it at the provider, "
            "then close the case"
        )
    if case.credited:
        return "this case's money was credited to a payment; refund the payment instead"
    return "no captured money is recorded for this case, so nothing can be refunded"
