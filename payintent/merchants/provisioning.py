"""Provision merchants with default payment methods and a test merchant."""

import secrets
from dataclasses import dataclass
from decimal import Decimal
from functools import partial

from payintent.chains import store as chain_store
from payintent.chains.store import TEST_CHAIN, TEST_DEPOSIT_PROVIDER
from payintent.core.errors import BadRequestError, ErrorCode, RefusedError
from payintent.core.money import FIAT
from payintent.db.database import Tx
from payintent.db.encryption_keys import ensure_writing_key
from payintent.gateway_accounts import store as account_store
from payintent.gateway_accounts.operations import add_account
from payintent.gateway_accounts.store import NewAccount
from payintent.merchants import methods_store as method_store
from payintent.merchants import store as merchant_store
from payintent.merchants.callback_secrets import add_callback_secret
from payintent.merchants.methods_store import NewPaymentMethod
from payintent.merchants.model import Merchant
from payintent.operators.operation import OperationContext

TEST_PROVIDER = "test"
_TEST_ACCOUNTS = {TEST_PROVIDER: "test gateway", TEST_DEPOSIT_PROVIDER: "test addresses"}
SIGNING_SECRET = "signing_secret"  # noqa: S105 - a field's name
_SIGNING_SECRET_BYTES = 32
#: The base URL of test gateway accounts. It is not the service's URL, which could change.
_TEST_BASE_URL = "payintent:test"


@dataclass(frozen=True, slots=True)
class TestSide:
    merchant_id: int
    callback_secret: str | None  # set only if the test merchant was just created


async def ensure_test_side(context: OperationContext, tx: Tx, merchant_id: int) -> TestSide:
    """Return a live merchant's test merchant, creating it or its test accounts if needed.

    A new test merchant has the live merchant's profile, its own accounts for test cards and test
    addresses, and the default methods of these accounts and of the platform's test accounts. It
    has no callback URL and does not send mail. Raises `BAD_REQUEST` for a test merchant.
    """
    live = await merchant_store.lock(tx, merchant_id)
    if live is None or not live.livemode:
        raise BadRequestError(f"merchant {merchant_id} is a test merchant: use the live merchant")
    side_id = await merchant_store.find_test_side(tx, merchant_id)
    if side_id is not None:
        await _ensure_test_accounts(context, tx, side_id)
        return TestSide(side_id, None)
    await ensure_writing_key(tx, context.encryption)
    side_id = await merchant_store.add_test_side(tx, merchant_id)
    await _ensure_test_accounts(context, tx, side_id)
    await add_platform_methods(tx, side_id, livemode=False)
    return TestSide(side_id, await add_callback_secret(context, tx, side_id))


async def lock_test_merchant(tx: Tx, merchant_id: int) -> Merchant:
    """Lock a test merchant for a change by a member. Raises `FORBIDDEN` for a live merchant."""
    merchant = await merchant_store.lock(tx, merchant_id)
    if merchant is None or merchant.livemode:
        raise RefusedError(
            ErrorCode.FORBIDDEN, "Only your payment service provider can change the live side."
        )
    return merchant


async def lock_test_side(tx: Tx, live_merchant_id: int) -> int | None:
    """Return a live merchant's test merchant, and prevent its concurrent creation."""
    await merchant_store.lock(tx, live_merchant_id)
    return await merchant_store.find_test_side(tx, live_merchant_id)


async def _ensure_test_accounts(context: OperationContext, tx: Tx, side_id: int) -> None:
    """Add the test gateways' accounts and their methods, unless the accounts already exist.

    The caller must hold the lock on the live merchant, which prevents a concurrent addition.
    """
    for provider, name in _TEST_ACCOUNTS.items():
        await _ensure_account(context, tx, side_id, provider, name)


async def _ensure_account(
    context: OperationContext, tx: Tx, side_id: int, provider: str, name: str
) -> None:
    if await account_store.merchant_owns_account(tx, side_id, provider):
        return
    await ensure_writing_key(tx, context.encryption)
    account = NewAccount(
        provider=provider,
        merchant_id=side_id,
        name=name,
        base_url=_TEST_BASE_URL,
        livemode=False,
    )
    credentials = {SIGNING_SECRET: secrets.token_urlsafe(_SIGNING_SECRET_BYTES)}
    account_id = await add_account(context, tx, account, credentials)
    for method in get_default_methods(provider):
        await method_store.add(tx, side_id, account_id, method, _POSITION)


_POSITION = 0  # methods with the same position are ordered by usage, then by id
_CARD_RATE = Decimal("0.029")
#: A method for all fiat currencies. Quotes omit currencies that the gateway does not support.
_fiat_method = partial(NewPaymentMethod, currencies=tuple(FIAT))
_DEFAULT_METHODS = (
    _fiat_method(kind="card", label="Card", fee_rate=_CARD_RATE),
    _fiat_method(kind="redirect", label="Bank transfer", fee_rate=Decimal("0.01")),
)
_METHODS_BY_PROVIDER = {
    "stripe": (_fiat_method(kind="card", label="Card (Stripe)", fee_rate=_CARD_RATE),),
    "ecpay": (
        NewPaymentMethod(
            kind="card",
            label="Card (ECPay)",
            fee_rate=_CARD_RATE,
            currencies=("TWD",),
            countries=("TW",),
        ),
    ),
    "test": (_fiat_method(kind="card", label="Test card"),),
    TEST_DEPOSIT_PROVIDER: tuple(
        NewPaymentMethod(
            kind="onchain",
            label=f"{token} on Test chain",
            currencies=(token,),
            chain=TEST_CHAIN,
            token=token,
        )
        for token in ("USDT", "USDC")
    ),
    # 2C2P's hosted page lists all methods of the merchant's 2C2P account.
    "2c2p": (_fiat_method(kind="redirect", label="2C2P", fee_rate=_CARD_RATE),),
}


def get_default_methods(provider: str) -> tuple[NewPaymentMethod, ...]:
    return _METHODS_BY_PROVIDER.get(provider, _DEFAULT_METHODS)


async def add_platform_methods(tx: Tx, merchant_id: int, *, livemode: bool) -> None:
    """Add the default methods of all platform accounts in the same mode (live or test)."""
    for account in await account_store.list_platform_accounts(tx, livemode=livemode):
        contract = await chain_store.get_contract(tx, account.id)
        if contract is None:
            methods = get_default_methods(account.provider)
        else:
            methods = await _list_token_methods(tx, contract)
        for method in methods:
            await method_store.add(tx, merchant_id, account.id, method, _POSITION)


async def _list_token_methods(
    tx: Tx, contract: chain_store.DeployedContract
) -> list[NewPaymentMethod]:
    """Return a method without fees for each token that a contract can receive."""
    chain = await chain_store.get_chain(tx, contract.chain)
    name = chain.name if chain else contract.chain
    return [
        NewPaymentMethod(
            kind="onchain",
            label=f"{token.symbol} on {name}",
            currencies=(token.symbol,),
            chain=contract.chain,
            token=token.symbol,
        )
        for token in await chain_store.list_contract_tokens(tx, contract)
        if token.enabled and token.address is not None
    ]
