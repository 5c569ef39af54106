"""Accepts refunds: of payments by merchants, and of cases by operators.

Everything is reserved in the transaction that accepts the refund; a worker sends it later. So no
two refunds, however parallel, can refund more than was captured.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from decimal import ROUND_DOWN, Decimal
from uuid import UUID

from payintent.domain.case import AUTOMATIC, CaseKind
from payintent.domain.currencies import CURRENCIES, TENDER
from payintent.domain.dispute import refundable
from payintent.domain.errors import ErrorCode, RefusedError
from payintent.domain.gateway import GatewayCapabilities, RefundSupport
from payintent.domain.member import member_name
from payintent.domain.money import format_amount, parse_amount, to_smallest_unit, trim_zeros
from payintent.domain.onchain_refund import AUTOMATIC_TRANSFERS_MAX
from payintent.domain.payment import IdempotentRequest, Payment, PaymentStatus
from payintent.domain.refund import (
    AUTO_REFUND,
    Refund,
    RefundableRemainder,
    RefundStatus,
    capture_share,
)
from payintent.payments.gateway_accounts import GatewayAccounts
from payintent.payments.gateway_health import PAUSE_S, GatewayChannel
from payintent.payments.idempotency import claim_or_match, request_fingerprint
from payintent.payments.refund_approval import destination_and_step
from payintent.payments.transitions import lock_payments
from payintent.storage import captures, payments, refunds
from payintent.storage.captures import LockedCapture
from payintent.storage.database import Database, Tx, current_time
from payintent.storage.idempotency import FirstRequest
from payintent.storage.refunds import NewRefund

OPERATION = "refund"
_BY_OPERATOR = "operator_refund"
_REFUNDABLE = (PaymentStatus.PAID, PaymentStatus.PARTIALLY_REFUNDED)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateRefundRequest:
    """A merchant's request, or an operator's; without `amount`, all that is left."""

    merchant_id: int
    payment_id: UUID
    key: UUID | None  # None: an operator's that is not repeated
    requested_by: str | None = None  # the operator; None: the merchant
    api_key_id: str = ""  # the public part of the merchant's key
    member: str = ""  # the e-mail address of the merchant's member, without a key
    amount: str | None = None  # as sent
    reason: str | None = None
    destination: str | None = None  # an address on the chain of the capture

    def under_key(self, key: UUID) -> IdempotentRequest:
        """Return what recognises a repetition of this request under its key."""
        payment = str(self.payment_id)
        return IdempotentRequest(
            merchant_id=self.merchant_id,
            key=key,
            request_hash=request_fingerprint(
                self.operation,
                payment=payment,
                amount=trim_zeros(self.amount),
                reason=self.reason,
                destination=self.destination and self.destination.lower(),
                requested_by=self.requested_by,
            ),
            as_sent=(
                *(OPERATION, payment, self.amount, self.reason, self.destination),
                *(() if self.requested_by is None else (self.requested_by,)),
            ),
        )

    @property
    def operation(self) -> str:
        """Return the operation of its key: operators' keys are none of the merchant's."""
        return OPERATION if self.requested_by is None else _BY_OPERATOR

    @property
    def requester(self) -> str:
        """Return who requests it, as the refund names it: of a merchant the key or the member."""
        if self.requested_by is not None:
            return self.requested_by
        if self.member:
            return member_name(self.merchant_id, self.member)
        return f"merchant:{self.merchant_id}" + (f":{self.api_key_id}" if self.api_key_id else "")


@dataclass(frozen=True, slots=True)
class CreatedRefund:
    """A refund as it was when accepted, by this request or an earlier one."""

    refund: Refund
    replayed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RefundCreator:
    database: Database
    accounts: GatewayAccounts

    async def create(self, ask: CreateRefundRequest) -> CreatedRefund:
        """Accept a refund: one transaction stores the key, reserves and queues.

        Raises `IDEMPOTENCY_CONFLICT`, `INVALID_PAYMENT_STATE` unless something was paid and is
        left, `INVALID_AMOUNT`, `UNPROCESSABLE` (what the gateway cannot refund),
        `REFUND_EXCEEDS_REMAINING`, `REFUND_PROVIDER_UNAVAILABLE`.
        """
        down = await self.accounts.health.unavailable_channels()
        async with self.database.transaction() as tx:
            return await self.create_within(tx, ask, down)

    async def create_within(
        self, tx: Tx, ask: CreateRefundRequest, down: Collection[tuple[int, GatewayChannel]]
    ) -> CreatedRefund:
        """Accept a refund as `create` does, in the caller's transaction."""
        refund_id = tx.id_generator.new_id()
        earlier = await _earlier(tx, ask, ask.key, refund_id) if ask.key is not None else None
        if earlier is not None:
            return CreatedRefund(as_originally_accepted(earlier), replayed=True)
        refund = await self._reserve(tx, ask, refund_id, down)
        return CreatedRefund(refund, replayed=False)

    async def _reserve(
        self,
        tx: Tx,
        ask: CreateRefundRequest,
        refund_id: UUID,
        down: Collection[tuple[int, GatewayChannel]],
    ) -> Refund:
        locked = await lock_payments(tx, [ask.payment_id])
        payment = locked.payments[0]
        if payment.status not in _REFUNDABLE:
            raise RefusedError(
                ErrorCode.INVALID_PAYMENT_STATE,
                f"cannot refund a payment in {payment.status} status",
            )
        capture = await captures.lock_credited(tx, payment.id)
        capabilities = self._capabilities(capture)
        left = payment.amount - payment.refunded_amount
        left -= await payments.get_reserved_amount(tx, payment.id)
        part, text = _part(payment, ask.amount, _undisputed(payment, capture, left, capabilities))
        amount_minor = _minor(payment, capture, part, left, capabilities)
        if capabilities is None or (capture.account_id, GatewayChannel.REFUNDS) in down:
            raise RefusedError(
                ErrorCode.REFUND_PROVIDER_UNAVAILABLE,
                "the provider gives nothing back just now",
                retry_after_s=PAUSE_S,
            )
        destination, step = await destination_and_step(tx, capture, ask.destination, amount_minor)
        return await refunds.add(
            tx,
            NewRefund(
                id=refund_id,
                merchant_id=payment.merchant_id,
                payment_id=payment.id,
                capture_id=capture.id,
                case_id=None,
                amount=part,
                amount_text=text,
                currency=payment.currency,
                amount_minor=amount_minor,
                reason=ask.reason,
                destination=destination,
                step=step,
                requested_by=ask.requester,
                at=locked.now,
            ),
        )

    def _capabilities(self, capture: LockedCapture) -> GatewayCapabilities | None:
        gateway = self.accounts.gateway(capture.provider)
        return gateway.capabilities if gateway else None


def as_originally_accepted(refund: Refund) -> Refund:
    """Return a refund as its request answered it: only columns that never change are left."""
    return replace(
        refund,
        status=RefundStatus.PENDING,
        failure_reason=None,
        updated_at=refund.created_at,
    )


async def auto_refund_case(
    tx: Tx, kind: CaseKind, case_id: UUID, capture_id: UUID, merchant_id: int | None
) -> None:
    """Refund a case at once if its merchant wants that, its kind allows it, and it is worth gas."""
    if kind not in AUTOMATIC or merchant_id is None:
        return
    if not await captures.has_auto_refund(
        tx, merchant_id, capture_id, transfers_max=AUTOMATIC_TRANSFERS_MAX
    ):
        return
    capture = await captures.lock(tx, capture_id)
    if capture.left_minor > 0:  # a gateway may report that it has taken nothing
        await refund_case(tx, case_id, capture_id, AUTO_REFUND)


async def refund_case(
    tx: Tx, case_id: UUID, capture_id: UUID, who: str, destination: str | None = None
) -> Refund:
    """Reserve all that is left of a capture that belongs to no payment, and queue its refund.

    Raises `CONFLICT` where nothing is left, or where the capture has paid its payment: only the
    payment's own refunds refund that. The case closes when the refund has succeeded. The caller
    has locked the capture's payment, if it has one.
    """
    capture = await captures.lock(tx, capture_id)
    if capture.credited:
        raise RefusedError(
            ErrorCode.CONFLICT, "this money has paid its payment: refund the payment"
        )
    if capture.left_minor == 0:
        raise RefusedError(ErrorCode.CONFLICT, "nothing is left to give back")
    destination, step = await destination_and_step(tx, capture, destination, capture.left_minor)
    return await refunds.add(
        tx,
        NewRefund(
            id=tx.id_generator.new_id(),
            merchant_id=capture.merchant_id,
            payment_id=capture.payment_id,
            capture_id=capture.id,
            case_id=case_id,
            amount=None,
            amount_text=None,
            currency=capture.currency,
            amount_minor=capture.left_minor,
            reason=None,
            destination=destination,
            step=step,
            requested_by=who,
            at=await current_time(tx),
        ),
    )


async def _earlier(tx: Tx, ask: CreateRefundRequest, key: UUID, refund_id: UUID) -> Refund | None:
    """Claim the key, or give the refund that this request has made before."""
    request = ask.under_key(key)
    new = FirstRequest(
        request_hash=request.request_hash,
        payment_id=ask.payment_id,
        country=None,
        refund_id=refund_id,
    )
    first = await claim_or_match(tx, ask.operation, request, new)
    if first is None:
        return None
    assert first.refund_id is not None  # noqa: S101 - a refund's key is written with its refund
    return await refunds.get(tx, first.refund_id)


def _part(payment: Payment, raw: str | None, left: Decimal) -> tuple[Decimal, str]:
    """Read the requested amount; refuse zero, and more than is left."""
    if raw is None:
        if left == 0:
            raise _exceeds(payment, left)
        return left, _text(payment, left)
    # What is left is the upper bound, and has an error code of its own.
    part = parse_amount(raw, payment.currency, Decimal(0), Decimal("Infinity"))
    if part > left:
        raise _exceeds(payment, left)
    return part, raw


def _undisputed(
    payment: Payment,
    capture: LockedCapture,
    left: Decimal,
    capabilities: GatewayCapabilities | None,
) -> Decimal:
    """Return what is left of a payment and not disputed, in whole units of the gateway."""
    if capture.left_minor == capture.remaining_minor:
        return left
    free = refundable(payment.amount, left, capture.amount_minor, capture.left_minor)
    decimals = (capabilities.decimals if capabilities else None) or {}
    currency = CURRENCIES[payment.currency]
    places = min(currency.amount_decimals, decimals.get(capture.currency, currency.amount_decimals))
    return free.quantize(Decimal(1).scaleb(-places), ROUND_DOWN)


def _exceeds(payment: Payment, left: Decimal) -> RefusedError:
    return RefusedError(
        ErrorCode.REFUND_EXCEEDS_REMAINING,
        f"amount exceeds what is left to refund, {_text(payment, left)} {payment.currency}",
    )


def _text(payment: Payment, value: Decimal) -> str:
    currency = CURRENCIES[payment.currency]
    return format_amount(value, currency.amount_decimals, trim=currency.crypto)


def _minor(
    payment: Payment,
    capture: LockedCapture,
    part: Decimal,
    left: Decimal,
    capabilities: GatewayCapabilities | None,
) -> int:
    """Return what the gateway refunds, in minor units; `UNPROCESSABLE` for what it cannot."""
    unit = 1
    if capabilities is not None:
        whole = part == payment.amount
        if capabilities.refunds is RefundSupport.NONE:
            raise RefusedError(
                ErrorCode.UNPROCESSABLE, "the provider of this payment gives no refunds"
            )
        if capabilities.refunds is RefundSupport.WHOLE and not whole:
            raise RefusedError(
                ErrorCode.UNPROCESSABLE, "the provider of this payment refunds it whole only"
            )
        decimals = (capabilities.decimals or {}).get(capture.currency)
        if decimals is not None:
            # All that is left can be refunded, in whatever units: it was collected.
            if part != left and to_smallest_unit(part, decimals) is None:
                raise RefusedError(
                    ErrorCode.UNPROCESSABLE,
                    f"the provider of this payment gives back {capture.currency} with "
                    f"{decimals} decimals only",
                )
            unit = 10 ** (TENDER[capture.currency].amount_decimals - decimals)
    remainder = RefundableRemainder(
        amount=payment.amount,
        left=left,
        capture_minor=capture.amount_minor,
        capture_left=capture.remaining_minor,
    )
    amount_minor = capture_share(part, remainder, unit)
    if amount_minor > capture.left_minor:  # the rest is disputed
        amount_minor = capture.left_minor // unit * unit
    if amount_minor == 0:
        raise RefusedError(
            ErrorCode.UNPROCESSABLE, "the amount is too small for the provider to give back"
        )
    return amount_minor
