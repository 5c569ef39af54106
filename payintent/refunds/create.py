"""Create refunds of payments and cases.

The transaction that accepts a refund also reserves its amount, so concurrent refunds cannot exceed
the captured amount. A worker sends the refund later.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from decimal import ROUND_DOWN, Decimal
from uuid import UUID

from payintent.cases.model import AUTO_REFUND_KINDS, CaseKind
from payintent.core.errors import ConflictError, ErrorCode, RefusedError, UnprocessableError
from payintent.core.money import CURRENCIES, TENDER, parse_amount, to_smallest_unit, trim_zeros
from payintent.db.database import Database, Tx, get_current_time
from payintent.disputes import store as dispute_store
from payintent.disputes.model import compute_undisputed_amount
from payintent.gateway_accounts.accounts import GatewayAccounts
from payintent.gateway_accounts.health import PAUSE_S, GatewayChannel
from payintent.gateways.port import GatewayCapabilities, RefundSupport
from payintent.members.model import member_name
from payintent.payments import captures_store as capture_store
from payintent.payments import store as payment_store
from payintent.payments.captures_store import LockedCapture
from payintent.payments.idempotency_store import claim_or_match, compute_request_fingerprint
from payintent.payments.model import IdempotentRequest, Payment, PaymentStatus
from payintent.refunds import store as refund_store
from payintent.refunds.destination import choose_destination_and_step
from payintent.refunds.model import (
    AUTO_REFUND,
    AUTOMATIC_TRANSFERS_MAX,
    Refund,
    RefundableRemainder,
    RefundStatus,
    convert_to_capture_units,
    format_payment_amount,
)
from payintent.refunds.store import NewRefund

OPERATION = "refund"
_OPERATOR_OPERATION = "operator_refund"
_REFUNDABLE = (PaymentStatus.PAID, PaymentStatus.PARTIALLY_REFUNDED)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateRefundRequest:
    merchant_id: int
    payment_id: UUID
    key: UUID | None  # None for operators' requests without an idempotency key
    requested_by: str | None = None  # the operator; None for the merchant
    api_key_id: str = ""  # the public part of the merchant's key
    member: str = ""  # the member's email address, if no API key was used
    amount: str | None = None  # as received; None refunds the full remainder
    reason: str | None = None
    destination: str | None = None  # an address on the capture's chain

    def to_idempotent_request(self, key: UUID) -> IdempotentRequest:
        payment_id = str(self.payment_id)
        return IdempotentRequest(
            merchant_id=self.merchant_id,
            key=key,
            request_hash=compute_request_fingerprint(
                self.operation,
                payment=payment_id,
                amount=trim_zeros(self.amount),
                reason=self.reason,
                destination=self.destination and self.destination.lower(),
                requested_by=self.requested_by,
            ),
            raw_fields=(
                *(OPERATION, payment_id, self.amount, self.reason, self.destination),
                *(() if self.requested_by is None else (self.requested_by,)),
            ),
        )

    @property
    def operation(self) -> str:
        # Operators' keys must not collide with the merchant's.
        return OPERATION if self.requested_by is None else _OPERATOR_OPERATION

    @property
    def requester(self) -> str:
        if self.requested_by is not None:
            return self.requested_by
        if self.member:
            return member_name(self.merchant_id, self.member)
        return f"merchant:{self.merchant_id}" + (f":{self.api_key_id}" if self.api_key_id else "")


@dataclass(frozen=True, slots=True)
class CreatedRefund:
    """An accepted refund. If `replayed`, an earlier request with the same key created it."""

    refund: Refund
    replayed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RefundCreator:
    database: Database
    accounts: GatewayAccounts

    async def create(self, request: CreateRefundRequest) -> CreatedRefund:
        """Store the idempotency key, reserve the amount and queue the refund in one transaction.

        Raises `IDEMPOTENCY_CONFLICT`, `INVALID_PAYMENT_STATE` if the payment is not paid or is
        fully refunded, `INVALID_AMOUNT`, `UNPROCESSABLE` if the gateway cannot refund the amount,
        `REFUND_EXCEEDS_REMAINING`, and `REFUND_PROVIDER_UNAVAILABLE`.
        """
        unavailable_channels = await self.accounts.health.get_unavailable_channels()
        async with self.database.transaction() as tx:
            return await self.create_within(tx, request, unavailable_channels)

    async def create_within(
        self,
        tx: Tx,
        request: CreateRefundRequest,
        unavailable_channels: Collection[tuple[int, GatewayChannel]],
    ) -> CreatedRefund:
        """Create a refund as `create` does, in the caller's transaction."""
        refund_id = tx.id_generator.new_id()
        if request.key is not None:
            existing_refund = await _claim_key(tx, request, request.key, refund_id)
            if existing_refund is not None:
                return CreatedRefund(
                    reconstruct_accepted_refund(existing_refund, request), replayed=True
                )
        refund = await self._reserve_amount(tx, request, refund_id, unavailable_channels)
        return CreatedRefund(refund, replayed=False)

    async def _reserve_amount(
        self,
        tx: Tx,
        request: CreateRefundRequest,
        refund_id: UUID,
        unavailable_channels: Collection[tuple[int, GatewayChannel]],
    ) -> Refund:
        payment, now = await payment_store.lock_payment(tx, request.payment_id)
        if payment.status not in _REFUNDABLE:
            raise RefusedError(
                ErrorCode.INVALID_PAYMENT_STATE,
                f"cannot refund a payment in {payment.status} status",
            )
        capture = await capture_store.lock_credited(tx, payment.id)
        gateway = self.accounts.gateway(capture.provider)
        capabilities = gateway.capabilities if gateway else None
        remainder = payment.amount - payment.refunded_amount
        remainder -= await payment_store.get_reserved_amount(tx, payment.id)
        refundable_amount = _find_undisputed_remainder(payment, capture, remainder, capabilities)
        amount, amount_text = _parse_refund_amount(payment, request.amount, refundable_amount)
        amount_minor = _to_gateway_units(payment, capture, amount, remainder, capabilities)
        channel = (capture.account_id, GatewayChannel.REFUNDS)
        if capabilities is None or channel in unavailable_channels:
            raise RefusedError(
                ErrorCode.REFUND_PROVIDER_UNAVAILABLE,
                "refunds at this provider are temporarily unavailable",
                retry_after_s=PAUSE_S,
            )
        destination, step = await choose_destination_and_step(
            tx, capture, request.destination, amount_minor
        )
        return await refund_store.add(
            tx,
            NewRefund(
                id=refund_id,
                merchant_id=payment.merchant_id,
                payment_id=payment.id,
                capture_id=capture.id,
                amount=amount,
                amount_text=amount_text,
                currency=payment.currency,
                amount_minor=amount_minor,
                reason=request.reason,
                destination=destination,
                step=step,
                requested_by=request.requester,
                at=now,
            ),
        )


def reconstruct_accepted_refund(refund: Refund, request: CreateRefundRequest) -> Refund:
    """Return a refund as it was when its request was accepted."""
    destination = refund.destination
    if refund.address_entries:  # the buyer has entered it since
        destination = request.destination and request.destination.lower()
    return replace(
        refund,
        destination=destination,
        status=RefundStatus.PENDING,
        failure_reason=None,
        updated_at=refund.created_at,
    )


async def auto_refund_case(
    tx: Tx, kind: CaseKind, case_id: UUID, capture_id: UUID, merchant_id: int | None
) -> None:
    """Refund the money in a case immediately if its kind and the merchant's settings allow it."""
    if kind not in AUTO_REFUND_KINDS or merchant_id is None:
        return
    if not await capture_store.qualifies_for_auto_refund(
        tx, merchant_id, capture_id, transfers_max=AUTOMATIC_TRANSFERS_MAX
    ):
        return
    capture = await capture_store.lock(tx, capture_id)
    # A gateway may report a capture of zero.
    if capture.undisputed_minor == capture.remaining_minor > 0:
        await refund_case(tx, case_id, capture_id, AUTO_REFUND)


async def refund_case(
    tx: Tx, case_id: UUID, capture_id: UUID, requested_by: str, destination: str | None = None
) -> Refund:
    """Queue a refund of a case's remaining money, which was not credited to a payment.

    Raises `CONFLICT` if no money remains, if a dispute of some of the money is undecided, or if the
    capture was credited, because its payment must be refunded instead. The case is closed when the
    refund succeeds. If the capture has a payment, it must be locked.
    """
    capture = await capture_store.lock(tx, capture_id)
    if capture.credited:
        raise ConflictError("this money was credited to a payment; refund the payment instead")
    if capture.undisputed_minor == 0:
        raise ConflictError("no refundable money remains")
    if await dispute_store.has_undecided(tx, capture.id):
        raise ConflictError(
            "some of this money is disputed; refund it after the dispute has been decided"
        )
    destination, step = await choose_destination_and_step(
        tx, capture, destination, capture.undisputed_minor
    )
    return await refund_store.add(
        tx,
        NewRefund(
            id=tx.id_generator.new_id(),
            merchant_id=capture.merchant_id,
            payment_id=capture.payment_id,
            capture_id=capture.id,
            case_id=case_id,
            currency=capture.currency,
            amount_minor=capture.undisputed_minor,
            destination=destination,
            step=step,
            requested_by=requested_by,
            at=await get_current_time(tx),
        ),
    )


async def _claim_key(
    tx: Tx, request: CreateRefundRequest, key: UUID, refund_id: UUID
) -> Refund | None:
    """Claim the key for this request, or return the refund that was created with it."""
    idempotent_request = request.to_idempotent_request(key)
    payment_id = request.payment_id
    first_request = await claim_or_match(
        tx, request.operation, idempotent_request, payment_id, refund_id
    )
    if first_request is None:
        return None
    assert first_request.refund_id is not None  # noqa: S101 - the key is stored with its refund
    return await refund_store.get(tx, first_request.refund_id)


def _parse_refund_amount(
    payment: Payment, raw: str | None, refundable_amount: Decimal
) -> tuple[Decimal, str]:
    """Return the requested amount as a number and as text, by default the full remainder."""
    if raw is None:
        if refundable_amount == 0:
            raise _make_remainder_error(payment, refundable_amount)
        return refundable_amount, format_payment_amount(refundable_amount, payment.currency)
    # Amounts above the remainder have a separate error code.
    amount = parse_amount(raw, payment.currency, Decimal(0), Decimal("Infinity"))
    if amount > refundable_amount:
        raise _make_remainder_error(payment, refundable_amount)
    return amount, raw


def _make_remainder_error(payment: Payment, remainder: Decimal) -> RefusedError:
    text = format_payment_amount(remainder, payment.currency)
    return RefusedError(
        ErrorCode.REFUND_EXCEEDS_REMAINING,
        f"the amount exceeds the refundable remainder of {text} {payment.currency}",
    )


def _find_undisputed_remainder(
    payment: Payment,
    capture: LockedCapture,
    remainder: Decimal,
    capabilities: GatewayCapabilities | None,
) -> Decimal:
    """Return the undisputed part of the remainder, rounded down to the gateway's decimals."""
    if capture.undisputed_minor == capture.remaining_minor:
        return remainder
    undisputed_amount = compute_undisputed_amount(
        payment.amount, remainder, capture.amount_minor, capture.undisputed_minor
    )
    decimals = (capabilities.decimals if capabilities else None) or {}
    currency = CURRENCIES[payment.currency]
    decimal_places = min(
        currency.amount_decimals, decimals.get(capture.currency, currency.amount_decimals)
    )
    return undisputed_amount.quantize(Decimal(1).scaleb(-decimal_places), ROUND_DOWN)


def _to_gateway_units(
    payment: Payment,
    capture: LockedCapture,
    amount: Decimal,
    remainder: Decimal,
    capabilities: GatewayCapabilities | None,
) -> int:
    """Return the amount to refund at the gateway, in minor units of the capture's currency.

    Raises `UNPROCESSABLE` if the gateway cannot refund this amount.
    """
    unit = 1
    if capabilities is not None:
        if capabilities.refunds is RefundSupport.NONE:
            raise _make_unsupported_error("does not support refunds")
        if capabilities.refunds is RefundSupport.FULL_ONLY and amount != payment.amount:
            raise _make_unsupported_error("supports full refunds only")
        decimals = (capabilities.decimals or {}).get(capture.currency)
        if decimals is not None:
            # The full remainder is always refundable, because it was collected at this precision.
            if amount != remainder and to_smallest_unit(amount, decimals) is None:
                raise _make_unsupported_error(
                    f"only supports {capture.currency} refunds with up to {decimals} decimal places"
                )
            unit = 10 ** (TENDER[capture.currency].amount_decimals - decimals)
    refundable_remainder = RefundableRemainder(
        amount=payment.amount,
        remaining=remainder,
        capture_minor=capture.amount_minor,
        capture_remaining_minor=capture.remaining_minor,
    )
    amount_minor = convert_to_capture_units(amount, refundable_remainder, unit)
    if amount_minor > capture.undisputed_minor:  # the rest is disputed
        amount_minor = capture.undisputed_minor // unit * unit
    if amount_minor == 0:
        raise _make_unsupported_error("cannot refund such a small amount")
    return amount_minor


def _make_unsupported_error(problem: str) -> RefusedError:
    return UnprocessableError(f"the provider of this payment {problem}")
