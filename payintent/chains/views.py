"""Chains, contracts and tokens as operators see them."""

from dataclasses import dataclass

from payintent.chains import store as chain_store
from payintent.chains.store import ChainRecord, DeployedContract, TokenRecord
from payintent.db.database import Executor
from payintent.evm.abi import to_checksum_address
from payintent.gateway_accounts import store as account_store
from payintent.operators.operation import copy_fields


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractView:
    account_id: int
    merchant_id: int | None  # None: the platform's
    chain: str
    address: str
    receiver: str
    deployed_block: int
    current: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenView:
    """A token; its address is None until it is configured."""

    chain: str
    symbol: str
    address: str | None
    decimals: int
    native: bool
    approve_zero_first: bool
    minimum: str  # in the smallest unit
    enabled: bool
    auto_refund_from: str  # in tokens; smaller amounts are not refunded automatically


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainView:
    slug: str
    network_id: int
    finality: str
    confirmations: int | None
    instant_finality: bool
    public_rpc_urls: list[str]
    explorer_urls: list[str]
    refunders: list[str]  # senders of refunds; the last is current
    refund_approval_above: str  # in tokens
    auto_refund_gas: int  # per day, UTC
    block: int | None
    head: int | None
    halted: str | None
    contracts: list[ContractView]
    tokens: list[TokenView]


async def load_chain_view(database: Executor, chain: ChainRecord) -> ChainView:
    cursor = await chain_store.get_cursor(database, chain.slug)
    return copy_fields(
        ChainView,
        chain,
        refunders=[to_checksum_address(address) for address in chain.refunders],
        refund_approval_above=f"{chain.refund_approval_above.normalize():f}",
        block=cursor and cursor.block,
        head=cursor and cursor.head,
        halted=cursor and cursor.halted,
        contracts=[
            contract_view(contract, await _merchant_of(database, contract.account_id))
            for contract in await chain_store.list_contracts(database, chain.slug)
        ],
        tokens=[token_view(token) for token in await chain_store.list_tokens(database, chain.slug)],
    )


async def _merchant_of(database: Executor, account_id: int) -> int | None:
    account = await account_store.get(database, account_id)
    return account and account.merchant_id


def contract_view(row: DeployedContract, merchant_id: int | None) -> ContractView:
    return copy_fields(
        ContractView,
        row,
        merchant_id=merchant_id,
        address=to_checksum_address(row.address),
        receiver=to_checksum_address(row.receiver),
    )


def token_view(row: TokenRecord) -> TokenView:
    return copy_fields(
        TokenView,
        row,
        address=None if row.address is None else to_checksum_address(row.address),
        minimum=str(row.minimum),
        auto_refund_from=f"{row.auto_refund_from.normalize():f}",
    )
