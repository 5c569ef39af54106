"""Choose a refund's destination, and decide whether a second operator must approve the refund."""

from uuid import UUID

from payintent.core.errors import BadRequestError, ConflictError, UnprocessableError
from payintent.core.money import TENDER
from payintent.db.database import Tx
from payintent.evm.abi import parse_address
from payintent.payments import captures_store as capture_store
from payintent.payments.captures_store import LockedCapture
from payintent.refunds import address_store
from payintent.refunds import list_store as refund_lists
from payintent.refunds.model import RefundStatus, RefundStep
from payintent.refunds.settle import lock_refund


async def choose_destination_and_step(
    tx: Tx, capture: LockedCapture, requested_address: str | None, amount_minor: int
) -> tuple[str | None, RefundStep]:
    """Return a refund's destination address and its first step.

    On a chain, the default destination is the payer. A refund of a deposit waits until the buyer
    enters an address, because the deposit's sender may be an exchange. A gateway returns the money
    to the payment method, so the destination is None. Raises `BAD_REQUEST` for an invalid address,
    and, if the payment was a deposit, for one of our addresses or the sender's address. Raises
    `UNPROCESSABLE` for any address if the payment was made through a gateway.
    """
    if capture.chain is None:
        if requested_address is not None:
            raise UnprocessableError(
                "destination: this payment can only be refunded to its payment method"
            )
        destination, needs_approval = None, await _exceeds_gateway_limit(tx, capture, amount_minor)
    elif capture.is_deposit and requested_address is None:
        return None, RefundStep.ADDRESS
    else:
        payer = f"0x{capture.payer.hex()}" if capture.payer else None
        destination = (
            payer
            if requested_address is None
            else await _parse_requested_address(tx, capture, requested_address)
        )
        if destination is None:
            raise UnprocessableError(
                "destination is required, because the payer's address is no longer stored"
            )
        is_payer = destination == payer and not capture.is_deposit  # an exchange may have sent it
        needs_approval = not is_payer or await _exceeds_chain_limit(
            tx, capture, capture.chain, amount_minor
        )
    return destination, RefundStep.APPROVAL if needs_approval else RefundStep.QUEUED


async def enter_buyer_address(tx: Tx, refund_id: UUID, address: str) -> None:
    """Set the address that the buyer entered, and continue the refund.

    The buyer can change it once, before the refund is sent. A second operator must approve a refund
    to an address that sent a deposit, because it may belong to an exchange. Raises `BAD_REQUEST`
    for an address that is invalid or belongs to us, and `CONFLICT` if the address can no longer be
    set.
    """
    _, refund, _ = await lock_refund(tx, refund_id)
    capture = await capture_store.lock(tx, refund.capture_id)
    is_unsent = refund.status is RefundStatus.PENDING and refund.sent_at is None
    if not capture.is_deposit or not is_unsent or capture.chain is None:
        raise ConflictError("the address of this refund can no longer be changed")
    destination = await _parse_wallet_address(tx, address)
    needs_approval = await _is_sender(tx, capture, destination) or await _exceeds_chain_limit(
        tx, capture, capture.chain, refund.amount_minor, except_refund=refund_id
    )
    step = RefundStep.APPROVAL if needs_approval else RefundStep.QUEUED
    if not await address_store.set_buyer_address(tx, refund_id, destination, step):
        raise ConflictError("the address of this refund has already been changed once")


async def _exceeds_gateway_limit(tx: Tx, capture: LockedCapture, amount_minor: int) -> bool:
    if capture.merchant_id is None or capture.merchant_approval_above is None:
        return False
    decimals = TENDER[capture.currency].amount_decimals
    limit_minor = capture.merchant_approval_above.scaleb(decimals)
    if amount_minor > limit_minor:
        return True
    refunded_minor = await refund_lists.sum_unapproved_at_gateways(
        tx, capture.merchant_id, capture.currency
    )
    return amount_minor + refunded_minor > limit_minor


async def _exceeds_chain_limit(
    tx: Tx,
    capture: LockedCapture,
    chain: str,
    amount_minor: int,
    except_refund: UUID | None = None,
) -> bool:
    """Return whether the refund exceeds the merchant's daily limit for unapproved refunds.

    The limit is a number of tokens per chain. Earlier refunds in all tokens count towards it, so
    that it cannot be circumvented with many small refunds.
    """
    if capture.token_decimals is None or capture.approval_above_minor is None:
        return True
    if amount_minor > capture.approval_above_minor:
        return True
    tokens = await refund_lists.sum_unapproved_on_chain(
        tx, capture.merchant_id, chain, except_refund
    )
    return amount_minor + tokens * 10**capture.token_decimals > capture.approval_above_minor


async def _parse_requested_address(tx: Tx, capture: LockedCapture, text: str) -> str:
    if not capture.is_deposit:
        return _parse_address(text)
    destination = await _parse_wallet_address(tx, text)
    if await _is_sender(tx, capture, destination):
        raise BadRequestError(
            "destination is the sender of a deposit, which may be an exchange; only the buyer can "
            "enter this address"
        )
    return destination


async def _parse_wallet_address(tx: Tx, text: str) -> str:
    destination = _parse_address(text)
    if await address_store.is_own_address(tx, bytes.fromhex(destination[2:])):
        raise BadRequestError("destination is a token or an address of this service")
    return destination


async def _is_sender(tx: Tx, capture: LockedCapture, destination: str) -> bool:
    return await address_store.is_deposit_sender(tx, capture.id, bytes.fromhex(destination[2:]))


def _parse_address(text: str) -> str:
    try:
        address = parse_address(text)
    except ValueError as error:
        raise BadRequestError(f"destination: {error}") from None
    if not any(address):
        raise BadRequestError("destination must not be the zero address")
    return f"0x{address.hex()}"
