"""The test side of a merchant: a merchant of its own, with test accounts only."""

import secrets as chance
from dataclasses import dataclass

from payintent.domain.errors import BadRequestError
from payintent.domain.test_gateway import BASE_URL, PROVIDER
from payintent.gateways.test_gateway import SIGNING_SECRET
from payintent.operations.accounts import NewSeal, seal_credentials
from payintent.operations.base import OperationContext
from payintent.operations.callback_secret import add_callback_secret
from payintent.operations.keyring import ensure_writing_key
from payintent.operations.offer_all_methods import offer_all_methods, offer_methods
from payintent.storage import accounts, merchants
from payintent.storage.accounts import NewAccount
from payintent.storage.database import Tx

SECRET_BYTES = 32


@dataclass(frozen=True, slots=True)
class TestSide:
    """A merchant's test side; its callback secret where it was made just now."""

    merchant_id: int
    callback_secret: str | None


async def ensure_test_side(context: OperationContext, tx: Tx, merchant_id: int) -> TestSide:
    """Return the test side of a live merchant, made where it is missing.

    A new one looks and sells as the live one, with an account of its own at the test gateway, and a
    default method of it and of every test account of the platform. It has no callback URL and mails
    nobody. One of before there was a test gateway gets its account now. Raises `BAD_REQUEST` for a
    test merchant.
    """
    live = await merchants.lock(tx, merchant_id)
    if live is None or not live.livemode:
        raise BadRequestError(f"merchant {merchant_id} is a test side: name the live merchant")
    side_id = await merchants.find_test_side(tx, merchant_id)
    if side_id is not None:
        await _ensure_test_account(context, tx, side_id)
        return TestSide(side_id, None)
    await ensure_writing_key(tx, context.encryption)
    side_id = await merchants.add_test_side(tx, merchant_id)
    await _ensure_test_account(context, tx, side_id)
    await offer_all_methods(tx, side_id, livemode=False)
    return TestSide(side_id, await add_callback_secret(context, tx, side_id))


async def _ensure_test_account(context: OperationContext, tx: Tx, side_id: int) -> None:
    """Give a test side its account at the test gateway, and offer it, where it has none.

    The caller holds the live merchant's row, so that no two do this at once.
    """
    if await accounts.has_own(tx, side_id, PROVIDER):
        return
    await ensure_writing_key(tx, context.encryption)
    new = NewAccount(
        provider=PROVIDER,
        merchant_id=side_id,
        name="test gateway",
        base_url=BASE_URL,
        livemode=False,
    )
    account_id = await accounts.add(tx, new)
    await seal_credentials(
        context,
        tx,
        NewSeal(account_id, PROVIDER, new.base_url),
        {SIGNING_SECRET: chance.token_urlsafe(SECRET_BYTES)},
    )
    await offer_methods(tx, side_id, account_id, PROVIDER)
