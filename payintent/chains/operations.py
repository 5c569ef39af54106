"""Operations that configure chains and contracts, and resume halted chains."""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Annotated, ClassVar

from payintent.chains import store as chain_store
from payintent.chains.checks import examine_contract
from payintent.chains.store import (
    PROVIDER,
    ChainCursor,
    ChainRecord,
    DeployedContract,
    TokenRecord,
)
from payintent.core.errors import BadRequestError, ConflictError, NotFoundError, UnprocessableError
from payintent.db.database import Executor, Tx
from payintent.db.encryption_keys import ensure_writing_key
from payintent.evm.abi import parse_address
from payintent.evm.chain_reader import ReaderConfig, RpcChainReader, open_chain_reader
from payintent.evm.rpc import RpcLimits
from payintent.gateway_accounts import store as account_store
from payintent.gateway_accounts.operations import add_account
from payintent.gateway_accounts.store import NewAccount
from payintent.operators.fields import (
    OwnerId,
    Purpose,
    argument,
    check_merchant,
    check_name,
    is_database_id,
    option,
    quote_input,
)
from payintent.operators.operation import (
    ChangeOperation,
    OperationContext,
    ReadOperation,
    copy_fields,
)

ChainSlug = Annotated[str, argument("The chain, such as ethereum.")]
TOKENS = re.compile(r"[0-9]{1,18}(\.[0-9]{1,18})?")
_BLOCK_MAX = 1 << 62
_LIMITS = RpcLimits(timeout_s=5.0, answer_bytes_max=256 * 1024)  # contract code has at most 24 KiB


async def require_chain(database: Executor, slug: str) -> ChainRecord:
    """Return a chain; raises `NOT_FOUND`."""
    return _require(await chain_store.get_chain(database, slug), slug)


async def lock_known_chain(tx: Tx, slug: str) -> ChainRecord:
    """Lock a chain; raises `NOT_FOUND`."""
    return _require(await chain_store.lock_chain(tx, slug), slug)


def _require(chain: ChainRecord | None, slug: str) -> ChainRecord:
    if chain is None:
        raise NotFoundError(f"no chain {quote_input(slug)}")
    return chain


def read_address(name: str, text: str) -> bytes:
    """Parse a `0x` address with a valid checksum; raises `BAD_REQUEST`."""
    try:
        return parse_address(text)
    except ValueError as error:
        raise BadRequestError(f"{name}: {error}") from error


async def check_code(
    context: OperationContext, chain: ChainRecord, address: bytes, receiver: bytes
) -> None:
    """Raise `UNPROCESSABLE` unless every endpoint returns our contract's code.

    Outside the sandbox, a chain without endpoints in this process is also rejected. The sandbox
    then skips the check, because its contracts never hold real money.
    """
    if not context.settings.endpoints.get(chain.slug):
        if context.settings.sandbox:
            return
        raise UnprocessableError(
            f"the contract cannot be checked: PAYINTENT_RPC_{chain.slug.upper()} is empty"
        )
    reader = _open_reader(context, chain)
    try:
        results = await asyncio.gather(
            *(examine_contract(reader, name, address, receiver) for name in reader.names)
        )
    finally:
        await reader.close()
    if problems := [result.text for result in results if not result.right]:
        raise UnprocessableError("; ".join(problems))


def _open_reader(context: OperationContext, chain: ChainRecord) -> RpcChainReader:
    config = ReaderConfig(
        network_id=chain.network_id, limits=_LIMITS, tls=context.settings.client_tls
    )
    try:
        return open_chain_reader(chain.slug, context.settings.endpoints[chain.slug], config)
    except ValueError as error:  # the message has the endpoint's name, not its URL
        problem = str(error)
    raise UnprocessableError(problem)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainView:
    slug: str
    network_id: int
    finality: str
    confirmations: int | None
    instant_finality: bool
    public_rpc_urls: Sequence[str]
    explorer_urls: Sequence[str]
    refunders: Sequence[bytes]  # refund senders; the last is current
    refund_approval_above: Decimal  # in tokens
    auto_refund_gas: int  # per UTC day
    block: int | None
    head: int | None
    halted: str | None
    contracts: list[DeployedContract]
    tokens: list[TokenRecord]


async def load_chain_view(database: Executor, chain: ChainRecord) -> ChainView:
    cursor = await chain_store.get_cursor(database, chain.slug)
    return copy_fields(
        ChainView,
        chain,
        block=cursor and cursor.block,
        head=cursor and cursor.head,
        halted=cursor and cursor.halted,
        contracts=await chain_store.list_contracts(database, chain.slug),
        tokens=await chain_store.list_tokens(database, chain.slug),
    )


class ListChains(ReadOperation[list[ChainView]], frozen=True, kw_only=True):
    """List chains with their progress, contracts and tokens."""

    action: ClassVar[str] = "chain.list"
    columns = ("slug", "network_id", "finality", "confirmations", "block", "head", "halted")

    async def read(self, context: OperationContext) -> list[ChainView]:
        return [
            await load_chain_view(context.database, chain)
            for chain in await chain_store.list_chains(context.database)
        ]


class AddContract(ChangeOperation[DeployedContract], frozen=True, kw_only=True):
    """Accept payments through a deployed contract."""

    action: ClassVar[str] = "chain.add-contract"
    chain: ChainSlug
    address: Annotated[str, argument("The address of the contract.")]
    receiver: Annotated[str, option("The receiver in the contract.")]
    deployed_block: Annotated[
        int, option("The block of its deployment; the chain is read from there.")
    ]
    merchant_id: OwnerId = None
    name: Purpose = ""

    async def needs_approval(self, context: OperationContext) -> bool:
        """Return True, because the contract forwards buyers' money to its receiver."""
        return True

    async def changes(self, context: OperationContext) -> list[str]:
        owner = "the platform" if self.merchant_id is None else f"merchant {self.merchant_id}"
        return [
            f"payments to {owner} on {self.chain} go through the contract {self.address}",
            f"and from there to {self.receiver}",
        ]

    async def check(self, context: OperationContext) -> None:
        """Check the deployed contract, both when it is proposed and when it is approved."""
        chain = await require_chain(context.database, self.chain)
        check_name("name", self.name or "-")
        address = await self._check_new(context.database)
        receiver = read_address("receiver", self.receiver)
        if not 0 <= self.deployed_block <= _BLOCK_MAX:
            raise BadRequestError("deployed_block must be the number of a block")
        if self.merchant_id is not None:
            await check_merchant(context.database, self.merchant_id)
        await check_code(context, chain, address, receiver)

    async def apply(self, context: OperationContext, tx: Tx) -> DeployedContract:
        """Create an account for the contract, and read the chain from its deployment block."""
        await ensure_writing_key(tx, context.encryption)
        chain = await require_chain(tx, self.chain)
        address = await self._check_new(tx)
        new = NewAccount(
            provider=PROVIDER,
            merchant_id=self.merchant_id,
            name=self.name,
            base_url=f"evm:{self.chain}",
        )
        credentials = {"chain": self.chain, "network_id": str(chain.network_id)}
        account_id = await add_account(context, tx, new, credentials)
        contract = DeployedContract(
            account_id=account_id,
            merchant_id=self.merchant_id,
            chain=self.chain,
            address=address,
            receiver=read_address("receiver", self.receiver),
            deployed_block=self.deployed_block,
            current=True,
        )
        await chain_store.add_contract(tx, contract)
        return contract

    async def _check_new(self, database: Executor) -> bytes:
        """Parse the address; raises `CONFLICT` if it is already a contract of ours."""
        address = read_address("address", self.address)
        if any(
            contract.address == address
            for contract in await chain_store.list_contracts(database, self.chain)
        ):
            raise ConflictError(f"{self.address} on {self.chain} is already a contract of ours")
        return address


class RetireContract(ChangeOperation[DeployedContract], frozen=True, kw_only=True):
    """Stop offering a contract. It stays watched."""

    action: ClassVar[str] = "chain.retire-contract"
    is_destructive: ClassVar[bool] = True
    account_id: Annotated[int, argument("The account of the contract.")]

    async def apply(self, context: OperationContext, tx: Tx) -> DeployedContract:
        account = (
            await account_store.lock(tx, self.account_id)
            if is_database_id(self.account_id)
            else None
        )
        retired = await chain_store.retire_contract(tx, self.account_id) if account else None
        if account is None or retired is None:
            raise NotFoundError(f"no contract has account {self.account_id}")
        await account_store.update(tx, replace(account, enabled=False))
        return retired


class ResumeChain(ChangeOperation[ChainCursor], frozen=True, kw_only=True):
    """Resume a halted chain, from a given block or from where it stopped."""

    action: ClassVar[str] = "chain.resume"
    chain: ChainSlug
    block: Annotated[int | None, option("The last block that has been read.")] = None

    async def check(self, context: OperationContext) -> None:
        await require_chain(context.database, self.chain)
        if self.block is not None and not 0 <= self.block <= _BLOCK_MAX:
            raise BadRequestError("block must be the number of a block")

    async def apply(self, context: OperationContext, tx: Tx) -> ChainCursor:
        """Resume the chain. Logs that are already stored are not reclassified."""
        cursor = await chain_store.resume(tx, self.chain, self.block)
        if cursor is None:
            raise NotFoundError(f"no contract of ours is on {self.chain}")
        return cursor
