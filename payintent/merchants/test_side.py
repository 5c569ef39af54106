"""A merchant's test side: a separate merchant that uses only test accounts."""

import secrets as chance
from dataclasses import dataclass

from payintent.core.errors import BadRequestError
from payintent.db.database import Tx
from payintent.db.encryption_keys import ensure_writing_key
from payintent.gateway_accounts import store as account_store
from payintent.gateway_accounts.operations import add_account
from payintent.gateway_accounts.store import NewAccount
from payintent.merchants import store as merchant_store
from payintent.merchants.callback_secrets import add_callback_secret
from payintent.merchants.default_methods import offer_all_methods, offer_methods
from payintent.operators.operation import OperationContext

SECRET_BYTES = 32


@dataclass(frozen=True, slots=True)
class TestSide:
    merchant_id: int
    callback_secret: str | None  # set only if the test side was just created


async def ensure_test_side(context: OperationContext, tx: Tx, merchant_id: int) -> TestSide:
    """Return a live merchant's test side, creating it or its test account if needed.

    A new test side has the live merchant's profile, its own test gateway account, and the default
    methods of that account and of the platform's test accounts. It has no callback URL and does
    not send mail. Raises `BAD_REQUEST` for a test merchant.
    """
    live = await merchant_store.lock(tx, merchant_id)
    if live is None or not live.livemode:
        raise BadRequestError(f"merchant {merchant_id} is a test side: use the live merchant")
    side_id = await merchant_store.find_test_side(tx, merchant_id)
    if side_id is not None:
        await _ensure_test_account(context, tx, side_id)
        return TestSide(side_id, None)
    await ensure_writing_key(tx, context.encryption)
    side_id = await merchant_store.add_test_side(tx, merchant_id)
    await _ensure_test_account(context, tx, side_id)
    await offer_all_methods(tx, side_id, livemode=False)
    return TestSide(side_id, await add_callback_secret(context, tx, side_id))


async def _ensure_test_account(context: OperationContext, tx: Tx, side_id: int) -> None:
    """Add the test gateway account and its methods, unless the account exists.

    The caller must hold the lock on the live merchant, which prevents a concurrent addition.
    """
    if await account_store.has_own(tx, side_id, PROVIDER):
        return
    await ensure_writing_key(tx, context.encryption)
    new = NewAccount(
        provider=PROVIDER,
        merchant_id=side_id,
        name="test gateway",
        base_url=BASE_URL,
        livemode=False,
    )
    credentials = {SIGNING_SECRET: chance.token_urlsafe(SECRET_BYTES)}
    account_id = await add_account(context, tx, new, credentials)
    await offer_methods(tx, side_id, account_id, PROVIDER)


PROVIDER = "test"


#: The API address of test gateway accounts; the service's own URL could become outdated.
BASE_URL = "payintent:test"


SIGNING_SECRET = "signing_secret"  # noqa: S105 - a field's name
