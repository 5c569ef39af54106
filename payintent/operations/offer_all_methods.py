"""Adding of default payment methods to merchants."""

from dataclasses import replace
from decimal import Decimal

from payintent.domain.price import FeeMode
from payintent.operations.default_methods import DefaultMethod, default_methods
from payintent.storage import accounts, payment_methods
from payintent.storage.database import Tx
from payintent.storage.onchain import chains
from payintent.storage.onchain.chains import DeployedContract


async def offer_all_methods(tx: Tx, merchant_id: int, *, livemode: bool) -> None:
    """Add the default methods of all platform accounts of the merchant's mode."""
    new: list[payment_methods.NewPaymentMethod] = []
    for account in await accounts.list_platform_accounts(tx, livemode=livemode):
        contract = await chains.get_contract(tx, account.id)
        if contract is not None:
            new += await _list_token_methods(tx, merchant_id, contract)
        else:
            new += [
                _fiat_method(merchant_id, account.id, method)
                for method in default_methods(account.provider)
            ]
    for position, method in enumerate(new):
        await payment_methods.add(tx, replace(method, position=position))


async def offer_methods(tx: Tx, merchant_id: int, account_id: int, provider: str) -> None:
    for position, method in enumerate(default_methods(provider)):
        new = _fiat_method(merchant_id, account_id, method)
        await payment_methods.add(tx, replace(new, position=position))


def _fiat_method(
    merchant_id: int, account_id: int, method: DefaultMethod
) -> payment_methods.NewPaymentMethod:
    return payment_methods.NewPaymentMethod(
        merchant_id=merchant_id,
        account_id=account_id,
        kind=method.kind,
        label=method.label,
        currencies=method.currencies,
        countries=method.countries,
        fee_mode=FeeMode.INCLUSIVE,
        fee_rate=method.fee_rate,
        position=0,
    )


async def _list_token_methods(
    tx: Tx, merchant_id: int, contract: DeployedContract
) -> list[payment_methods.NewPaymentMethod]:
    """Return a method without a fee for each token that a contract's chain supports."""
    chain = await chains.get_chain(tx, contract.chain)
    name = chain.name if chain else contract.chain
    return [
        payment_methods.NewPaymentMethod(
            merchant_id=merchant_id,
            account_id=contract.account_id,
            kind="onchain",
            label=f"{token.symbol} on {name}",
            currencies=(token.symbol,),
            countries=None,
            fee_mode=FeeMode.INCLUSIVE,
            fee_rate=Decimal(0),
            position=0,
            chain=contract.chain,
            token=token.symbol,
        )
        for token in await chains.list_tokens(tx, contract.chain)
        if token.enabled and token.address is not None
    ]
