"""Where a refund goes, and whether a second person must approve it."""

from payintent.domain.currencies import TENDER
from payintent.domain.errors import ErrorCode, RefusedError
from payintent.domain.refund import RefundStep
from payintent.evm.keccak import parse_address
from payintent.storage import refund_reviews
from payintent.storage.captures import LockedCapture
from payintent.storage.database import Tx


async def destination_and_step(
    tx: Tx, capture: LockedCapture, wanted: str | None, amount_minor: int
) -> tuple[str | None, RefundStep]:
    """Return the destination and the first step; only a refund on a chain can have a destination.

    Back to the payer unless the request names an address. Raises `BAD_REQUEST` for an invalid
    address, `UNPROCESSABLE` at a gateway, which refunds the way the money came.
    """
    if capture.chain is None:
        if wanted is not None:
            raise RefusedError(
                ErrorCode.UNPROCESSABLE, "destination: this money goes back the way that it came"
            )
        waits = await _exceeds_threshold(tx, capture, amount_minor)
        return None, RefundStep.APPROVAL if waits else RefundStep.QUEUED
    payer = f"0x{capture.payer.hex()}" if capture.payer else None
    destination = payer if wanted is None else _address(wanted)
    if destination is None:
        raise RefusedError(
            ErrorCode.UNPROCESSABLE,
            "destination: the payer's address is not kept any more, so name one",
        )
    if destination != payer or await _needs_approval(tx, capture, capture.chain, amount_minor):
        return destination, RefundStep.APPROVAL
    return destination, RefundStep.QUEUED


async def _exceeds_threshold(tx: Tx, capture: LockedCapture, amount_minor: int) -> bool:
    """Tell whether it is more than the merchant may refund at gateways in a day by itself."""
    if capture.merchant_id is None or capture.merchant_approval_above is None:
        return False
    decimals = TENDER[capture.currency].amount_decimals
    above_minor = capture.merchant_approval_above.scaleb(decimals)
    if amount_minor > above_minor:
        return True
    earlier = await refund_reviews.sum_unapproved_at_gateways(
        tx, capture.merchant_id, capture.currency
    )
    return amount_minor + earlier > above_minor


async def _needs_approval(tx: Tx, capture: LockedCapture, chain: str, amount_minor: int) -> bool:
    """Tell whether a refund is more than its merchant may refund in a day without an approval.

    The threshold is one number of tokens for the chain, and what was refunded within a day counts,
    in any token: many small refunds count like a large one.
    """
    if capture.token_decimals is None or capture.approval_above_minor is None:
        return True
    if amount_minor > capture.approval_above_minor:
        return True
    tokens = await refund_reviews.sum_unapproved(tx, capture.merchant_id, chain)
    return amount_minor + tokens * 10**capture.token_decimals > capture.approval_above_minor


def _address(text: str) -> str:
    try:
        value = parse_address(text)
    except ValueError as error:
        raise RefusedError(ErrorCode.BAD_REQUEST, f"destination: {error}") from None
    if not any(value):
        raise RefusedError(ErrorCode.BAD_REQUEST, "destination must not be the zero address")
    return f"0x{value.hex()}"
