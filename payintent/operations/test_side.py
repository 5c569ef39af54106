"""The test side of a merchant: a merchant by itself, with test accounts alone (decision 73)."""

from dataclasses import dataclass

from payintent.domain.errors import ErrorCode, RefusedError
from payintent.operations.base import OperationContext
from payintent.operations.callback_secret import add_callback_secret
from payintent.operations.keyring import ensure_writing_key
from payintent.operations.offer_all_methods import offer_all_methods
from payintent.storage import merchants
from payintent.storage.database import Tx


@dataclass(frozen=True, slots=True)
class TestSide:
    """A merchant's test side; its callback secret where it was made just now."""

    merchant_id: int
    callback_secret: str | None


async def ensure_test_side(context: OperationContext, tx: Tx, merchant_id: int) -> TestSide:
    """Return the test side of a live merchant, made where it is missing.

    A new one looks and sells as the live one, with a default method of every test account of the
    platform. It has no callback URL and mails nobody. Raises `BAD_REQUEST` for a test merchant.
    """
    live = await merchants.lock(tx, merchant_id)
    if live is None or not live.livemode:
        raise RefusedError(
            ErrorCode.BAD_REQUEST, f"merchant {merchant_id} is a test side: name the live merchant"
        )
    side_id = await merchants.find_test_side(tx, merchant_id)
    if side_id is not None:
        return TestSide(side_id, None)
    await ensure_writing_key(context, tx)
    side_id = await merchants.add_test_side(tx, merchant_id)
    await offer_all_methods(tx, side_id, livemode=False)
    return TestSide(side_id, await add_callback_secret(context, tx, side_id))
