"""Operations that list, search and cancel payments."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import Annotated, ClassVar, Literal
from uuid import UUID

from payintent.core import ids
from payintent.core.access import Role
from payintent.core.errors import BadRequestError, quote_input
from payintent.core.money import CURRENCIES
from payintent.core.texts import check_text
from payintent.db.database import Executor, Tx
from payintent.operators import fields
from payintent.operators.fields import argument, option
from payintent.operators.operation import ChangeOperation, OperationContext, ReadOperation
from payintent.payments import search_store
from payintent.payments.cancel import cancel
from payintent.payments.list_store import PaymentFilter, Position
from payintent.payments.model import Payment, PaymentStatus
from payintent.payments.search_store import PaymentRecord
from payintent.payments.store import require_payment

_TX_HASH = re.compile(r"0x[0-9a-f]{64}", re.ASCII | re.IGNORECASE)
_ADDRESS = re.compile(r"0x[0-9a-f]{40}", re.ASCII | re.IGNORECASE)
_TEXT_MAX = 300
_AMOUNT_END = Decimal(10) ** 20  # greater than any possible amount
#: Maximum number of payments that are read to apply an unindexed filter, per statement and page.
_BATCH_SIZE, _SCANNED_MAX = 1_000, 10_000
_COLUMNS = ("id", "merchant_id", "status", "amount", "currency", "order_id", "provider")

OrderFilter = Annotated[str | None, option("The `order_id` in the payment's metadata.")]
PaymentId = Annotated[str, argument("A payment id such as pay_0351NDickobV3yYH8omp8v.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class PaymentPage:
    """A page of payments. With unindexed filters, a page may be short even if more pages follow."""

    payments: list[PaymentRecord]
    next_before: str | None  # `before` of the next page; None on the last page


_Before = Annotated[str | None, option("The id of the last payment on the previous page.")]


class ListPayments(ReadOperation[list[PaymentRecord]], frozen=True, kw_only=True):
    """List payments of all merchants, newest first."""

    action: ClassVar[str] = "payment.list"
    columns = (*_COLUMNS, "created_at")
    merchant_id: fields.MerchantFilter = None
    status: Annotated[PaymentStatus | None, option("Only payments with this status.")] = None
    currency: Annotated[str | None, option("Only payments in this currency, such as THB.")] = None
    provider: Annotated[
        str | None, option("Only payments through this gateway, such as stripe.")
    ] = None
    kind: Annotated[
        Literal["card", "redirect", "qr", "onchain"] | None,
        option("Only this kind of payment method: card, redirect, qr or onchain.", any_text=True),
    ] = None
    country: Annotated[
        str | None, option("Only payments with this selected country, such as TH.")
    ] = None
    chain: Annotated[str | None, option("Only payments on this chain, such as bsc.")] = None
    token: Annotated[str | None, option("Only payments in this token, such as USDT.")] = None
    unselected: Annotated[
        bool, option("Only payments without a selected method.", flags="--unselected")
    ] = False
    amount_min: Annotated[Decimal | None, option("Minimum amount.")] = None
    amount_max: Annotated[Decimal | None, option("Maximum amount.")] = None
    since: fields.CreatedSince = None
    until: fields.CreatedBefore = None
    older_than: fields.OlderThan = None
    end: Annotated[
        Literal["PAID", "FAILED", "EXPIRED", "CANCELLED"] | None,
        option("Only this final status; PAID includes refunded payments.", any_text=True),
    ] = None
    ended_since: Annotated[datetime | None, option("Ended at or after this time (UTC).")] = None
    ended_until: Annotated[datetime | None, option("Ended before this time (UTC).")] = None
    payer_uid: Annotated[str | None, option("Only payments by this payer.", name="payer")] = None
    order_id: Annotated[str | None, option("The `order_id` in the metadata.", name="order")] = None
    reference: Annotated[str | None, option("The gateway's reference.")] = None
    tx_hash: Annotated[
        str | None, option("The transaction hash on a chain, `0x…`.", name="transaction")
    ] = None
    before: _Before = None
    limit: fields.ListLimit = 20

    async def read(self, context: OperationContext) -> list[PaymentRecord]:
        return (await self.read_page(context)).payments

    async def read_page(self, context: OperationContext) -> PaymentPage:
        fields.check_list_limit(self.limit)
        await fields.check_merchant(context.database, self.merchant_id)
        database, payment_filter = context.database, await self._build_filter(context.database)
        candidate_ids = await self._find_candidates(database, payment_filter)
        if candidate_ids is None:
            return await _read_page(database, payment_filter)
        records = await search_store.list_records(database, candidate_ids, payment_filter)
        return PaymentPage(
            payments=records, next_before=records[-1].id if len(records) == self.limit else None
        )

    async def _build_filter(self, database: Executor) -> PaymentFilter:
        if self.currency is not None and self.currency not in CURRENCIES:
            raise BadRequestError(f"currency {quote_input(self.currency)} is not supported")
        for name, amount in (("amount_min", self.amount_min), ("amount_max", self.amount_max)):
            if amount is not None and not (amount.is_finite() and abs(amount) < _AMOUNT_END):
                raise BadRequestError(f"{name} must be a number below 10^20")
        creation_range = await fields.parse_time_range(
            database, self.since, self.until, self.older_than
        )
        return PaymentFilter(
            merchant_id=self.merchant_id,
            statuses=tuple(PaymentStatus) if self.status is None else (self.status,),
            currencies=tuple(CURRENCIES) if self.currency is None else (self.currency,),
            payer_uid=self.payer_uid,
            created_from=creation_range.since,
            created_before=creation_range.until,
            end=self.end,
            ended_from=fields.to_utc("ended_since", self.ended_since),
            ended_before=fields.to_utc("ended_until", self.ended_until),
            amount_min=self.amount_min,
            amount_max=self.amount_max,
            provider=self.provider,
            kind=self.kind,
            country=self.country,
            chain=self.chain,
            token=self.token,
            unselected=self.unselected,
            before=await _read_position(database, self.before),
            limit=self.limit,
        )

    async def _find_candidates(
        self, database: Executor, payment_filter: PaymentFilter
    ) -> Sequence[UUID] | None:
        """Return the payments with the given order, reference and transaction.

        Returns None if none of these filters is set. `list_records` applies the other filters.
        """
        matches: list[Sequence[UUID]] = []
        if self.order_id is not None:
            order_id, merchant_id = self.order_id, self.merchant_id
            matches.append(await search_store.find_by_order(database, order_id, merchant_id))
        if self.reference is not None:
            matches.append(await search_store.find_by_reference(database, self.reference))
        if self.tx_hash is not None:
            if (tx_hash := _parse_hex(_TX_HASH, self.tx_hash)) is None:
                raise BadRequestError("tx_hash must be 0x followed by 64 hexadecimal digits")
            matches.append(await search_store.find_by_transaction(database, tx_hash))
        if not matches:
            return None
        return list(set(matches[0]).intersection(*matches[1:]))


class SearchPayments(ReadOperation[list[PaymentRecord]], frozen=True, kw_only=True):
    """Find payments by any id, order, payer, reference or transaction.

    The text can be the id of a payment, checkout, session, refund, case or event; an order id; the
    payer's id, email address or chain address; a gateway's reference; or a transaction hash. It
    must match exactly.
    """

    action: ClassVar[str] = "payment.search"
    columns = (*_COLUMNS, "created_at", "found_by")
    text: Annotated[
        str, argument("An id, order id, payer, hash or gateway reference, such as A-1001.")
    ]
    merchant_id: fields.MerchantFilter = None
    before: _Before = None
    limit: fields.ListLimit = 20

    async def read(self, context: OperationContext) -> list[PaymentRecord]:
        text = self.text.strip()
        fields.check_list_limit(self.limit)
        await fields.check_merchant(context.database, self.merchant_id)
        check_text("text", text, _TEXT_MAX)
        payment_filter = PaymentFilter(
            merchant_id=self.merchant_id,
            before=await _read_position(context.database, self.before),
            limit=self.limit,
        )
        matched_properties: dict[UUID, str] = {}
        for found_by, payment_ids in await _find_matches(context.database, text, payment_filter):
            for payment_id in payment_ids:
                matched_properties.setdefault(payment_id, found_by)
        return await _list_matches(context.database, matched_properties, payment_filter)


async def _list_matches(
    database: Executor, matched_properties: Mapping[UUID, str], payment_filter: PaymentFilter
) -> list[PaymentRecord]:
    records = await search_store.list_records(database, list(matched_properties), payment_filter)
    found_by = {ids.format_id(ids.PAYMENT, key): name for key, name in matched_properties.items()}
    return [replace(record, found_by=found_by[record.id]) for record in records]


async def _find_matches(
    database: Executor, text: str, payment_filter: PaymentFilter
) -> list[tuple[str, Sequence[UUID]]]:
    """Search each property that the text could match. An id is searched for only as an id."""
    if ids.is_checkout_id(text):
        return [("checkout", await search_store.find_by_checkout(database, text))]
    for name, prefix in _PREFIXES.items():
        if (object_id := ids.parse_id(prefix, text)) is not None:
            return [(name, await search_store.find_by_id(database, object_id))]
    if (event_id := _parse_uuid(text)) is not None:
        event_payments = await search_store.find_by_id(database, event_id)
        if event_payments:
            return [("event", event_payments)]
    merchant_id = payment_filter.merchant_id
    matches: list[tuple[str, Sequence[UUID]]] = []
    if (tx_hash := _parse_hex(_TX_HASH, text)) is not None:
        matches.append(("transaction", await search_store.find_by_transaction(database, tx_hash)))
    if (address := _parse_hex(_ADDRESS, text)) is not None:
        matches.append(
            ("address", await search_store.find_by_address(database, address, merchant_id))
        )
    if "@" in text:
        matches.append(("email", await search_store.find_by_email(database, text, merchant_id)))
    payer_positions = await search_store.list_positions(
        database, replace(payment_filter, payer_uid=text)
    )
    matches += [
        ("reference", await search_store.find_by_reference(database, text)),
        ("order", await search_store.find_by_order(database, text, merchant_id)),
        ("payer", [payment_id for _, payment_id in payer_positions]),
    ]
    return matches


_PREFIXES = {
    "payment": ids.PAYMENT,
    "session": ids.SESSION,
    "refund": ids.REFUND,
    "case": ids.CASE,
}


def _parse_hex(pattern: re.Pattern[str], text: str) -> bytes | None:
    return bytes.fromhex(text[2:]) if pattern.fullmatch(text) else None


def _parse_uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


async def _read_page(database: Executor, payment_filter: PaymentFilter) -> PaymentPage:
    """Read a page. With unindexed filters, up to `_SCANNED_MAX` payments are read to fill it."""
    batch_size = _BATCH_SIZE if payment_filter.has_unindexed_filters else payment_filter.limit
    batch_filter = replace(payment_filter, limit=batch_size)
    records: list[PaymentRecord] = []
    for _ in range(_SCANNED_MAX // _BATCH_SIZE):
        positions = await search_store.list_positions(database, batch_filter)
        payment_ids = [payment_id for _, payment_id in positions]
        records += await search_store.list_records(database, payment_ids, payment_filter)
        if len(records) >= payment_filter.limit:
            return PaymentPage(
                payments=records[: payment_filter.limit],
                next_before=records[payment_filter.limit - 1].id,
            )
        if len(positions) < batch_size:
            return PaymentPage(payments=records, next_before=None)
        batch_filter = replace(batch_filter, before=positions[-1])
    next_id = batch_filter.before and ids.format_id(ids.PAYMENT, batch_filter.before[1])
    return PaymentPage(payments=records, next_before=next_id)


async def _read_position(database: Executor, payment_id: str | None) -> Position | None:
    """Return a payment's position in the list. Raises `NOT_FOUND` if it does not exist."""
    if payment_id is None:
        return None
    payment = (await require_payment(database, payment_id)).payment
    return payment.created_at, payment.id


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelledPayment:
    id: str
    merchant_id: int
    status: str
    cancelled_at: datetime | None


class CancelPayment(ChangeOperation[CancelledPayment], frozen=True, kw_only=True):
    """Cancel a PENDING payment on behalf of its merchant, and send the event."""

    action: ClassVar[str] = "payment.cancel"
    needs_role: ClassVar[Role] = Role.SUPPORT
    is_destructive: ClassVar[bool] = True
    payment_id: PaymentId

    async def changes(self, context: OperationContext) -> list[str]:
        payment = (await require_payment(context.database, self.payment_id)).payment
        return [f"{describe_payment(payment)}, changes from {payment.status} to CANCELLED"]

    async def apply(self, context: OperationContext, tx: Tx) -> CancelledPayment:
        payment = (await require_payment(tx, self.payment_id)).payment
        await cancel(tx, payment.id)
        payment = (await require_payment(tx, self.payment_id)).payment
        return CancelledPayment(
            id=self.payment_id,
            merchant_id=payment.merchant_id,
            status=payment.status,
            cancelled_at=payment.cancelled_at,
        )


def describe_payment(payment: Payment) -> str:
    payment_id = ids.format_id(ids.PAYMENT, payment.id)
    amount = f"{payment.amount_text} {payment.currency}"
    return f"payment {payment_id} of merchant {payment.merchant_id}, {amount}"
