"""Operations that show a payment and its history."""

from typing import Annotated, Any, ClassVar, Literal

from payintent.cases import list_store as case_lists
from payintent.cases.list_store import PaymentCase
from payintent.core import ids
from payintent.core.errors import BadRequestError
from payintent.db.database import Executor
from payintent.evm.abi import to_checksum_address
from payintent.onchain import transfers_store
from payintent.onchain.deposit_status_store import list_deposits
from payintent.onchain.transfers_store import TransferRecord
from payintent.operators.fields import option
from payintent.operators.operation import OperationContext, ReadOperation
from payintent.payment_history.timeline import TimelinePage, read_timeline, read_timeline_page
from payintent.payments import sessions_store as session_store
from payintent.payments.model import Session
from payintent.payments.operations import PaymentId
from payintent.payments.serialization import make_payment_fields
from payintent.payments.store import require_payment
from payintent.runtime.json_format import format_timestamp

_PAGE_MAX = 10_000


class ShowPayment(ReadOperation[dict[str, Any]], frozen=True, kw_only=True):
    """Show a payment and everything that happened to it, in chronological order."""

    action: ClassVar[str] = "payment.show"
    payment_id: PaymentId

    async def read(self, context: OperationContext) -> dict[str, Any]:
        database = context.database
        payment = (await require_payment(database, self.payment_id)).payment
        summary = await summarize_payment(database, self.payment_id)
        return summary | {"timeline": await read_timeline(database, payment)}


class ShowTimeline(ReadOperation[TimelinePage], frozen=True, kw_only=True):
    """Show a page of a payment's timeline, with requests and responses."""

    action: ClassVar[str] = "payment.timeline"
    payment_id: PaymentId
    of: Annotated[
        Literal["payment", "gateway", "chain", "events", "refunds", "cases", "operators"] | None,
        option(
            "Only entries about this subject: payment, gateway, chain, events, refunds, cases or "
            "operators.",
            any_text=True,
        ),
    ] = None
    page: Annotated[int, option("Page number, starting at 1.")] = 1

    async def read(self, context: OperationContext) -> TimelinePage:
        if not 1 <= self.page <= _PAGE_MAX:
            raise BadRequestError(f"page must be from 1 to {_PAGE_MAX}")
        payment = (await require_payment(context.database, self.payment_id)).payment
        return await read_timeline_page(context.database, payment, self.of, self.page)


async def summarize_payment(database: Executor, payment_id: str) -> dict[str, Any]:
    """Return a payment with sessions, transfers, deposits and cases, but without its timeline.

    The checkout id is masked, because anyone who has it can use the checkout. Raises `NOT_FOUND`.
    """
    snapshot = await require_payment(database, payment_id)
    payment = snapshot.payment
    details = {
        "checkout_id": ids.mask_checkout_id(payment.checkout_id),
        "sessions": [
            _session_fields(session)
            for session in await session_store.list_for_payment(database, payment.id)
        ],
        "receipts": [
            _receipt_fields(transfer)
            for transfer in await transfers_store.list_for_payment(database, payment.id)
        ],
        "deposits": await list_deposits(database, payment.id),
        "cases": [
            _case_fields(case) for case in await case_lists.list_for_payment(database, payment.id)
        ],
    }
    return make_payment_fields(payment, snapshot.session) | details


def _session_fields(session: Session) -> dict[str, Any]:
    quote = session.quote
    fields: dict[str, Any] = {
        "id": ids.format_id(ids.SESSION, session.id),
        "account_id": quote.account_id,
        "provider": quote.provider,
        "chain": quote.chain,
        "token": quote.token,
        "amount_smallest_unit": str(quote.total_minor),
        "reference": session.reference,
        "life": session.status,
        "outcome": session.outcome,
        "opened_at": format_timestamp(session.opened_at),
    }
    return {name: value for name, value in fields.items() if value is not None}


def _receipt_fields(receipt: TransferRecord) -> dict[str, Any]:
    return {
        "session_id": ids.format_id(ids.SESSION, receipt.session_id),
        "disposition": receipt.disposition,
        "chain": receipt.chain,
        "block": receipt.block,
        "tx_hash": f"0x{receipt.tx_hash.hex()}",
        "log_index": receipt.log_index,
        "payer": receipt.payer and to_checksum_address(receipt.payer),
        "token": to_checksum_address(receipt.token),
        "amount_smallest_unit": receipt.amount,
        "final_at": format_timestamp(receipt.final_at),
    }


def _case_fields(case: PaymentCase) -> dict[str, Any]:
    return {
        "id": ids.format_id(ids.CASE, case.id),
        "kind": case.kind,
        "status": case.status,
        "opened_at": format_timestamp(case.opened_at),
    }
