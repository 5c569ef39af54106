"""Payments of all merchants: listed by status and age, and found by whatever is known of one."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import Annotated, ClassVar, Literal
from uuid import UUID

from payintent.domain import ids
from payintent.domain.currencies import CURRENCIES
from payintent.domain.errors import BadRequestError
from payintent.domain.payment import PaymentStatus
from payintent.operations.base import OperationContext, ReadOperation
from payintent.operations.fields import ListLimit, OfMerchantId, argument, option
from payintent.operations.list_times import MadeSince, MadeUntil, OlderThan, made_between
from payintent.operations.validation import (
    as_utc,
    check_list_limit,
    check_merchant,
    quote_input,
    require_payment,
)
from payintent.storage import payer_search, payment_search
from payintent.storage.database import Executor
from payintent.storage.payment_search import PaymentRecord, PaymentScope

_TX_HASH = re.compile(r"0x[0-9a-f]{64}", re.ASCII | re.IGNORECASE)
_ADDRESS = re.compile(r"0x[0-9a-f]{40}", re.ASCII | re.IGNORECASE)
_TEXT_MAX = 300
_AMOUNT_END = Decimal(10) ** 20  # more than any amount has
#: Payments that are read to find those of a narrow scope: at once, and for one page.
_LOOKED_AT_ONCE, _LOOKED_MAX = 1_000, 10_000
_COLUMNS = ("id", "merchant_id", "status", "amount", "currency", "order_id", "provider")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedPayment:
    """A payment as a list shows it; `payment show` has what happened to it."""

    id: str
    merchant_id: int
    status: str
    amount: str
    currency: str
    payer_uid: str
    order_id: str | None
    provider: str | None
    chain: str | None
    kind: str | None  # of the method of the current session, as `country` is
    country: str | None
    created_at: datetime
    expires_at: datetime
    updated_at: datetime
    found_by: str | None = None  # of a search: what of it is equal to the text


@dataclass(frozen=True, slots=True, kw_only=True)
class PaymentPage:
    """A page of payments; `following` is the payment before which the next one begins, if any.

    A page of a narrow scope may be short, and have a next one.
    """

    payments: list[ListedPayment]
    following: str | None


_Before = Annotated[
    str | None, option("The next page: payments before this one, the last of a page.")
]


class ListPayments(ReadOperation[list[ListedPayment]], frozen=True, kw_only=True):
    """List payments of all merchants, newest first."""

    action: ClassVar[str] = "payment.list"
    columns = (*_COLUMNS, "created_at")
    merchant_id: OfMerchantId = None
    status: Annotated[PaymentStatus | None, option("Of one status.")] = None
    currency: Annotated[str | None, option("Of one currency, such as THB.")] = None
    provider: Annotated[str | None, option("At one gateway, such as stripe.")] = None
    kind: Annotated[
        Literal["card", "redirect", "qr", "onchain"] | None,
        option("By one kind of method: card, redirect, qr or onchain.", any_text=True),
    ] = None
    country: Annotated[str | None, option("Selected for one country, such as TH.")] = None
    chain: Annotated[str | None, option("Paid on one chain, such as bsc.")] = None
    token: Annotated[str | None, option("Paid in one token, such as USDT.")] = None
    unselected: Annotated[
        bool, option("Those whose buyers selected nothing.", flags="--unselected")
    ] = False
    amount_min: Annotated[Decimal | None, option("Of this amount at least.")] = None
    amount_max: Annotated[Decimal | None, option("Of this amount at most.")] = None
    since: MadeSince = None
    until: MadeUntil = None
    older_than: OlderThan = None
    end: Annotated[
        Literal["PAID", "FAILED", "EXPIRED", "CANCELLED"] | None,
        option("By how it ended: PAID whether it was refunded or not.", any_text=True),
    ] = None
    ended_since: Annotated[datetime | None, option("Ended from this time on, UTC.")] = None
    ended_until: Annotated[datetime | None, option("Ended before this time, UTC.")] = None
    payer_uid: Annotated[str | None, option("Of one payer.", name="payer")] = None
    order_id: Annotated[str | None, option("By `order_id` in the metadata.", name="order")] = None
    reference: Annotated[str | None, option("By a gateway's reference.")] = None
    tx_hash: Annotated[
        str | None, option("By a transaction on a chain, `0x…`.", name="transaction")
    ] = None
    before: _Before = None
    limit: ListLimit = 20

    async def read(self, context: OperationContext) -> list[ListedPayment]:
        """Return the payments that all the fields that are given agree with."""
        return (await self.read_page(context)).payments

    async def read_page(self, context: OperationContext) -> PaymentPage:
        """Return a page, and where the next one begins."""
        await _check(context.database, self.merchant_id, self.limit)
        database, scope = context.database, await self._scope(context.database)
        candidates = await self._candidates(database, scope)
        if candidates is None:
            return await _look_through(database, scope, self.payer_uid)
        records = await payment_search.list_records(database, candidates, scope)
        return _page(records, records[-1].id if len(records) == self.limit else None)

    async def _scope(self, database: Executor) -> PaymentScope:
        if self.currency is not None and self.currency not in CURRENCIES:
            raise BadRequestError(f"currency {quote_input(self.currency)} is not known")
        for name, amount in (("amount_min", self.amount_min), ("amount_max", self.amount_max)):
            if amount is not None and not (amount.is_finite() and abs(amount) < _AMOUNT_END):
                raise BadRequestError(f"{name} is no amount")
        made = await made_between(database, self.since, self.until, self.older_than)
        return PaymentScope(
            merchant_id=self.merchant_id,
            statuses=tuple(PaymentStatus) if self.status is None else (self.status,),
            currencies=tuple(CURRENCIES) if self.currency is None else (self.currency,),
            created_from=made.since,
            created_before=made.until,
            end=self.end,
            ended_from=as_utc("ended_since", self.ended_since),
            ended_before=as_utc("ended_until", self.ended_until),
            amount_min=self.amount_min,
            amount_max=self.amount_max,
            provider=self.provider,
            kind=self.kind,
            country=self.country,
            chain=self.chain,
            token=self.token,
            unselected=self.unselected,
            before=await _before(database, self.before),
            limit=self.limit,
        )

    async def _candidates(self, database: Executor, scope: PaymentScope) -> Sequence[UUID] | None:
        """Return the payments of an order, a reference or a transaction; None if none is given.

        `list_records` leaves out what is not in the scope.
        """
        sets: list[Sequence[UUID]] = []
        if self.order_id is not None:
            sets.append(await payer_search.find_by_order(database, self.order_id, self.merchant_id))
        if self.reference is not None:
            sets.append(await payment_search.find_by_reference(database, self.reference))
        if self.tx_hash is not None:
            if (tx_hash := _read_tx_hash(self.tx_hash)) is None:
                raise BadRequestError("tx_hash must be 0x and 64 hexadecimal digits")
            sets.append(await payment_search.find_by_transaction(database, tx_hash))
        if not sets:
            return None
        found = set(sets[0]).intersection(*sets[1:])
        if self.payer_uid is None:
            return list(found)
        records = await payment_search.list_records(
            database, list(found), replace(scope, limit=len(found))
        )
        return [record.id for record in records if record.payer_uid == self.payer_uid]


class SearchPayments(ReadOperation[list[ListedPayment]], frozen=True, kw_only=True):
    """Find payments by whatever is known: any id, an order, a payer, a reference, a transaction.

    The text is compared whole, with the ids of a payment, its checkout, sessions, refunds, cases
    and event; else with the order's number, the payer, the payer's e-mail and address on a chain,
    references of gateways and transactions.
    """

    action: ClassVar[str] = "payment.search"
    columns = (*_COLUMNS, "created_at", "found_by")
    text: Annotated[
        str, argument("Such as pay_0351NDickobV3yYH8omp8v, A-1001, 0x…, or a gateway's own.")
    ]
    merchant_id: OfMerchantId = None
    before: _Before = None
    limit: ListLimit = 20

    async def read(self, context: OperationContext) -> list[ListedPayment]:
        text = self.text.strip()
        await _check(context.database, self.merchant_id, self.limit)
        if not 1 <= len(text) <= _TEXT_MAX or "\x00" in text:
            raise BadRequestError(f"text has 1 to {_TEXT_MAX} characters")
        scope = PaymentScope(
            merchant_id=self.merchant_id,
            before=await _before(context.database, self.before),
            limit=self.limit,
        )
        matches = await _search(context.database, text, scope)
        return [_listed(record, how) for record, how in matches]


async def _search(
    database: Executor, text: str, scope: PaymentScope
) -> list[tuple[PaymentRecord, str]]:
    """Find the payments that a text is about, newest first, and what of each it is."""
    found: dict[UUID, str] = {}
    for how, payment_ids in await _find(database, text, scope):
        for payment_id in payment_ids:
            found.setdefault(payment_id, how)
    records = await payment_search.list_records(database, list(found), scope)
    return [(record, found[record.id]) for record in records]


async def _find(
    database: Executor, text: str, scope: PaymentScope
) -> list[tuple[str, Sequence[UUID]]]:
    """Look a text up as what it can be; an id is nothing else."""
    if ids.is_checkout_id(text):
        return [("checkout", await payment_search.find_by_checkout(database, text))]
    for name, prefix in _PREFIXES.items():
        if (parsed := ids.parse_id(prefix, text)) is not None:
            return [(name, await payment_search.find_by_id(database, parsed))]
    if (event_id := _read_uuid(text)) is not None:
        by_event = await payment_search.find_by_id(database, event_id)
        if by_event:
            return [("event", by_event)]
    owner = scope.merchant_id
    found: list[tuple[str, Sequence[UUID]]] = []
    if (tx_hash := _read_tx_hash(text)) is not None:
        found.append(("transaction", await payment_search.find_by_transaction(database, tx_hash)))
    if (address := _read_address(text)) is not None:
        found.append(("address", await payment_search.find_by_address(database, address, owner)))
    if "@" in text:
        found.append(("e-mail", await payer_search.find_by_email(database, text, owner)))
    found += [
        ("reference", await payment_search.find_by_reference(database, text)),
        ("order", await payer_search.find_by_order(database, text, owner)),
        ("payer", await payment_search.list_ids(database, scope, text)),
    ]
    return found


_PREFIXES = {
    "payment": ids.PAYMENT,
    "session": ids.SESSION,
    "refund": ids.REFUND,
    "case": ids.CASE,
}


def _read_tx_hash(text: str) -> bytes | None:
    return bytes.fromhex(text[2:]) if _TX_HASH.fullmatch(text) else None


def _read_address(text: str) -> bytes | None:
    return bytes.fromhex(text[2:]) if _ADDRESS.fullmatch(text) else None


def _read_uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


async def _look_through(
    database: Executor, scope: PaymentScope, payer_uid: str | None
) -> PaymentPage:
    """Read a page; if the scope is narrow, look through a limited number of payments for it."""
    at_once = _LOOKED_AT_ONCE if scope.is_narrow else scope.limit
    rest = replace(scope, limit=at_once)
    records: list[PaymentRecord] = []
    for _ in range(_LOOKED_MAX // _LOOKED_AT_ONCE):
        positions = await payment_search.list_positions(database, rest, payer_uid)
        payment_ids = [payment_id for _, payment_id in positions]
        records += await payment_search.list_records(database, payment_ids, scope)
        if len(records) >= scope.limit:
            return _page(records[: scope.limit], records[scope.limit - 1].id)
        if len(positions) < at_once:
            return _page(records, None)
        rest = replace(rest, before=positions[-1])
    return _page(records, rest.before and rest.before[1])


def _page(records: Sequence[PaymentRecord], following: UUID | None) -> PaymentPage:
    return PaymentPage(
        payments=list(map(_listed, records)),
        following=following and ids.format_id(ids.PAYMENT, following),
    )


async def _check(database: Executor, merchant_id: int | None, limit: int) -> None:
    check_list_limit(limit)
    await check_merchant(database, merchant_id)


async def _before(database: Executor, payment_id: str | None) -> tuple[datetime, UUID] | None:
    """Return where the last page ended; raise `NOT_FOUND` for an unknown payment."""
    if payment_id is None:
        return None
    last = (await require_payment(database, payment_id)).payment
    return last.created_at, last.id


def _listed(record: PaymentRecord, found_by: str | None = None) -> ListedPayment:
    return ListedPayment(
        id=ids.format_id(ids.PAYMENT, record.id),
        merchant_id=record.merchant_id,
        status=record.status,
        amount=record.amount,
        currency=record.currency,
        payer_uid=record.payer_uid,
        order_id=record.order_id,
        provider=record.provider,
        chain=record.chain,
        kind=record.kind,
        country=record.country,
        created_at=record.created_at,
        expires_at=record.expires_at,
        updated_at=record.updated_at,
        found_by=found_by,
    )
