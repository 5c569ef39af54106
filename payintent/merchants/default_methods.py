"""Default payment methods of new merchants, by provider."""

from decimal import Decimal
from functools import partial

from payintent.chains import store as chain_store
from payintent.core.money import FIAT
from payintent.db.database import Tx
from payintent.gateway_accounts import store as account_store
from payintent.merchants import methods_store as method_store
from payintent.merchants.methods_store import NewPaymentMethod

_CARD_RATE = Decimal("0.029")
#: A method for all fiat currencies; quotes omit those that the gateway does not support.
_fiat_method = partial(NewPaymentMethod, currencies=tuple(FIAT))
_DEFAULT = (
    _fiat_method(kind="card", label="Card", fee_rate=_CARD_RATE),
    _fiat_method(kind="redirect", label="Bank transfer", fee_rate=Decimal("0.01")),
)
_BY_PROVIDER = {
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
    # 2C2P's hosted page lists all methods of the merchant's 2C2P account.
    "2c2p": (_fiat_method(kind="redirect", label="2C2P", fee_rate=_CARD_RATE),),
}


def default_methods(provider: str) -> tuple[NewPaymentMethod, ...]:
    return _BY_PROVIDER.get(provider, _DEFAULT)


async def offer_all_methods(tx: Tx, merchant_id: int, *, livemode: bool) -> None:
    """Add the default methods of all platform accounts in the same mode (live or test)."""
    position = 0
    for account in await account_store.list_platform_accounts(tx, livemode=livemode):
        contract = await chain_store.get_contract(tx, account.id)
        if contract is None:
            methods = default_methods(account.provider)
        else:
            methods = await _list_token_methods(tx, contract.chain)
        for method in methods:
            await method_store.add(tx, merchant_id, account.id, method, position)
            position += 1


async def offer_methods(tx: Tx, merchant_id: int, account_id: int, provider: str) -> None:
    for position, method in enumerate(default_methods(provider)):
        await method_store.add(tx, merchant_id, account_id, method, position)


async def _list_token_methods(tx: Tx, slug: str) -> list[NewPaymentMethod]:
    """Return a method without fees for each token that a chain supports."""
    chain = await chain_store.get_chain(tx, slug)
    name = chain.name if chain else slug
    return [
        NewPaymentMethod(
            kind="onchain",
            label=f"{token.symbol} on {name}",
            currencies=(token.symbol,),
            chain=slug,
            token=token.symbol,
        )
        for token in await chain_store.list_tokens(tx, slug)
        if token.enabled and token.address is not None
    ]
