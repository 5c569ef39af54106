"""Operations that list chains, configure contracts and tokens, and resume halted chains."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Annotated, Any, ClassVar

from payintent.chains import store as chain_store
from payintent.chains import unswept_store
from payintent.chains.checks import CheckResult, check_block, check_contract
from payintent.chains.store import (
    PROVIDER,
    TEST_CHAIN,
    ChainCursor,
    ChainRecord,
    DeployedContract,
    TokenRecord,
)
from payintent.chains.unswept_store import SweepBatchRecord, UnsweptDeposits
from payintent.core.errors import BadRequestError, ConflictError, NotFoundError, UnprocessableError
from payintent.db.database import Executor, Tx
from payintent.db.encryption_keys import ensure_writing_key
from payintent.evm.abi import parse_address
from payintent.evm.chain_reader import ReaderConfig, RpcChainReader
from payintent.evm.port import NATIVE
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
    check_approved,
    copy_fields,
    details,
    to_json_value,
)

ChainSlug = Annotated[str, argument("The chain, such as ethereum.")]
TOKEN_AMOUNT = re.compile(r"[0-9]{1,18}(\.[0-9]{1,18})?")
EndpointCheck = Callable[[RpcChainReader, str], Awaitable[CheckResult]]

_BLOCK_MAX = 1 << 62
_DEPOSIT_AMOUNTS = ("sweep_value", "sweep_minimum", "surplus_from")
_LIMITS = RpcLimits(
    timeout_s=5.0, response_bytes_max=256 * 1024
)  # contract code has at most 24 KiB


async def require_chain(database: Executor, slug: str) -> ChainRecord:
    """Return a chain. Raises `NOT_FOUND` if it does not exist."""
    return _require(await chain_store.get_chain(database, slug), slug)


async def lock_known_chain(tx: Tx, slug: str) -> ChainRecord:
    """Lock a chain. Raises `NOT_FOUND` if it does not exist."""
    return _require(await chain_store.lock_chain(tx, slug), slug)


def _require(chain: ChainRecord | None, slug: str) -> ChainRecord:
    if chain is None or slug == TEST_CHAIN:
        raise NotFoundError(f"no chain {quote_input(slug)}")
    return chain


def parse_checksum_address(name: str, text: str) -> bytes:
    """Parse a `0x` address. Raises `BAD_REQUEST` if it or its checksum is invalid."""
    try:
        return parse_address(text)
    except ValueError as error:
        raise BadRequestError(f"{name}: {error}") from error


async def check_deployed_code(
    context: OperationContext, chain: ChainRecord, check: EndpointCheck
) -> None:
    """Raise `UNPROCESSABLE` unless `check` succeeds at every endpoint.

    If no endpoints are configured, the contract is rejected, except in the sandbox, where contracts
    never hold real money.
    """
    if not context.settings.endpoints.get(chain.slug):
        if context.settings.sandbox:
            return
        raise UnprocessableError(
            f"the contract cannot be checked; set PAYINTENT_RPC_{chain.slug.upper()}"
        )
    if problems := await _list_problems(context, chain, check):
        raise UnprocessableError("; ".join(problems))


async def _list_problems(
    context: OperationContext, chain: ChainRecord, check: EndpointCheck
) -> list[str]:
    reader = _open_reader(context, chain)
    try:
        results = await asyncio.gather(*(check(reader, name) for name in reader.names))
    finally:
        await reader.close()
    return [result.text for result in results if not result.is_ok]


def _open_reader(context: OperationContext, chain: ChainRecord) -> RpcChainReader:
    config = ReaderConfig(
        network_id=chain.network_id, limits=_LIMITS, tls=context.settings.client_tls
    )
    try:
        return RpcChainReader(chain.slug, context.settings.endpoints[chain.slug], config)
    except ValueError as error:  # the message contains the endpoint's name, not its URL
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
    sweeper: bytes | None
    sweep_count: int
    sweep_after_s: int
    sweep_gas_price_max: Decimal  # in gwei; 0: no limit
    transfer_fee_usd: Decimal
    unswept: list[UnsweptDeposits]
    sweep_batches: list[SweepBatchRecord]
    block: int | None
    head: int | None
    halted: str | None
    contracts: list[DeployedContract]
    factories: list[DeployedContract]
    tokens: list[TokenRecord]


async def load_chain_view(database: Executor, chain: ChainRecord) -> ChainView:
    cursor = await chain_store.get_cursor(database, chain.slug)
    return copy_fields(
        ChainView,
        chain,
        block=cursor and cursor.block,
        head=cursor and cursor.head,
        halted=cursor and cursor.halted,
        unswept=await unswept_store.list_unswept(database, chain.slug),
        sweep_batches=await unswept_store.list_batches(database, chain.slug),
        contracts=await chain_store.list_contracts(database, chain.slug),
        factories=await chain_store.list_factories(database, chain.slug),
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
    provider: ClassVar[str] = PROVIDER
    chain: ChainSlug
    address: Annotated[str, argument("The address of the contract.")]
    receiver: Annotated[str, option("The receiver address stored in the contract.")]
    deployed_block: Annotated[int, option("The deployment block, from which the chain is read.")]
    merchant_id: OwnerId = None
    name: Purpose = ""

    async def needs_approval(self, context: OperationContext) -> bool:
        return True  # because the contract forwards buyers' money to its receiver

    async def changes(self, context: OperationContext) -> list[str]:
        owner = "the platform" if self.merchant_id is None else f"merchant {self.merchant_id}"
        return [
            f"payments to {owner} on {self.chain} use the contract {self.address}",
            f"the contract forwards them to {self.receiver}",
        ]

    async def check(self, context: OperationContext) -> None:
        """Check the deployed contract, both when it is proposed and when it is approved."""
        chain = await require_chain(context.database, self.chain)
        check_name("name", self.name or "-")
        address = await self._parse_new_address(context.database)
        receiver = parse_checksum_address("receiver", self.receiver)
        if not 0 <= self.deployed_block <= _BLOCK_MAX:
            raise BadRequestError("deployed_block must be a block number")
        if self.merchant_id is not None:
            await check_merchant(context.database, self.merchant_id)
        await self._check_code(context, chain, address, receiver)

    async def _check_code(
        self, context: OperationContext, chain: ChainRecord, address: bytes, receiver: bytes
    ) -> None:
        async def check(reader: RpcChainReader, name: str) -> CheckResult:
            result = await check_contract(reader, name, address, receiver)
            return await check_block(reader, name, self.deployed_block) if result.is_ok else result

        await check_deployed_code(context, chain, check)

    def _parse_forwarder(self) -> bytes | None:
        return None

    async def _choose_refund_account(self, database: Executor) -> int | None:
        return None

    async def apply(self, context: OperationContext, tx: Tx) -> DeployedContract:
        """Create an account for the contract, and read the chain from its deployment block."""
        await ensure_writing_key(tx, context.encryption)
        chain = await require_chain(tx, self.chain)
        address = await self._parse_new_address(tx)
        new_account = NewAccount(
            provider=self.provider,
            merchant_id=self.merchant_id,
            name=self.name,
            base_url=f"evm:{self.chain}",
        )
        credentials = {"chain": self.chain, "network_id": str(chain.network_id)}
        account_id = await add_account(context, tx, new_account, credentials)
        contract = DeployedContract(
            account_id=account_id,
            merchant_id=self.merchant_id,
            chain=self.chain,
            address=address,
            receiver=parse_checksum_address("receiver", self.receiver),
            deployed_block=self.deployed_block,
            current=True,
            forwarder=self._parse_forwarder(),
            refund_account_id=await self._choose_refund_account(tx),
        )
        await chain_store.add_contract(tx, contract)
        return contract

    async def _parse_new_address(self, database: Executor) -> bytes:
        """Parse the address. Raises `CONFLICT` if it is already registered."""
        address = parse_checksum_address("address", self.address)
        contracts = await chain_store.list_contracts(database, self.chain)
        factories = await chain_store.list_factories(database, self.chain)
        if any(contract.address == address for contract in (*contracts, *factories)):
            raise ConflictError(f"{self.address} on {self.chain} is already registered")
        return address


class RetireContract(ChangeOperation[DeployedContract], frozen=True, kw_only=True):
    """Stop offering a contract to buyers. The contract is still watched."""

    action: ClassVar[str] = "chain.retire-contract"
    is_destructive: ClassVar[bool] = True
    account_id: Annotated[int, argument("The account of the contract.")]

    async def apply(self, context: OperationContext, tx: Tx) -> DeployedContract:
        account = (
            await account_store.lock(tx, self.account_id)
            if is_database_id(self.account_id)
            else None
        )
        retired_contract = (
            await chain_store.retire_contract(tx, self.account_id) if account else None
        )
        if account is None or retired_contract is None:
            raise NotFoundError(f"no contract uses account {self.account_id}")
        await account_store.update(tx, replace(account, enabled=False))
        return retired_contract


class ResumeChain(ChangeOperation[ChainCursor], frozen=True, kw_only=True):
    """Resume a halted chain, from a given block or after the last block read."""

    action: ClassVar[str] = "chain.resume"
    chain: ChainSlug
    block: Annotated[int | None, option("The block to treat as the last block read.")] = None

    async def check(self, context: OperationContext) -> None:
        await require_chain(context.database, self.chain)
        if self.block is not None and not 0 <= self.block <= _BLOCK_MAX:
            raise BadRequestError("block must be a block number")

    async def apply(self, context: OperationContext, tx: Tx) -> ChainCursor:
        """Resume the chain. Logs that are already stored are not reclassified."""
        cursor = await chain_store.resume(tx, self.chain, self.block)
        if cursor is None:
            raise NotFoundError(f"no contract is registered on {self.chain}")
        return cursor


class SweepNow(ChangeOperation[ChainView], frozen=True, kw_only=True):
    """Sweep all final deposits of a chain now, including deposits whose sweep failed.

    Amounts below the token's `sweep_minimum` are not swept, and the gas price limit applies. If no
    sweeper is set, the deposits are swept as soon as one is set.
    """

    action: ClassVar[str] = "chain.sweep-now"
    chain: ChainSlug

    async def check(self, context: OperationContext) -> None:
        await require_chain(context.database, self.chain)

    async def apply(self, context: OperationContext, tx: Tx) -> ChainView:
        chain = await lock_known_chain(tx, self.chain)
        await unswept_store.request_sweep(tx, self.chain)
        return await load_chain_view(tx, chain)


class SetToken(ChangeOperation[TokenRecord], frozen=True, kw_only=True):
    """Configure a token. Omitted options remain unchanged."""

    action: ClassVar[str] = "chain.set-token"
    chain: ChainSlug
    symbol: Annotated[str, argument("The token, such as USDT.")]
    address: Annotated[str | None, option("The token contract's address.")] = None
    decimals: Annotated[int | None, option("The decimals of the token contract.")] = None
    approve_zero_first: Annotated[
        bool | None, option("Whether an allowance must be reset to zero before it is changed.")
    ] = None
    minimum: Annotated[
        int | None, option("The minimum payment that our contract accepts, in smallest units.")
    ] = None
    enabled: Annotated[
        bool | None, option("Whether the token is offered to buyers.", flags="--enabled/--disabled")
    ] = None
    auto_refund_from: Annotated[
        str | None,
        option("Minimum amount of an automatic refund, in tokens."),
    ] = None
    sweep_value: Annotated[
        str | None,
        option(
            "Total of unswept deposits, in tokens, that triggers a sweep; 0 disables this trigger."
        ),
    ] = None
    sweep_minimum: Annotated[
        str | None, option("Minimum amount to sweep from an address, in tokens.")
    ] = None
    surplus_from: Annotated[
        str | None,
        option("Minimum surplus, in tokens, for which a case is opened; 0: any surplus."),
    ] = None

    async def needs_approval(self, context: OperationContext) -> bool:
        """Require approval if the address or decimals change, or `auto_refund_from` is lowered."""
        return self._needs_second_operator(await self._get_token(context.database))

    def _needs_second_operator(self, before: TokenRecord) -> bool:
        if self.address is not None or self.decimals is not None:
            return True
        return (
            self.auto_refund_from is not None
            and self._parse_auto_refund_minimum() < before.auto_refund_from
        )

    def _parse_deposit_amounts(self) -> dict[str, Decimal]:
        """Parse the thresholds for sweeps and surpluses. Raises `BAD_REQUEST` if one is invalid."""
        texts: dict[str, str | None] = {name: getattr(self, name) for name in _DEPOSIT_AMOUNTS}
        amounts = {name: text for name, text in texts.items() if text is not None}
        for name, text in amounts.items():
            if not TOKEN_AMOUNT.fullmatch(text):
                raise BadRequestError(f"{name} must be a number of tokens, such as 7.5")
        return {name: Decimal(text) for name, text in amounts.items()}

    def _parse_auto_refund_minimum(self) -> Decimal:
        """Parse the minimum amount of automatic refunds. Raises `BAD_REQUEST` if it is invalid."""
        if self.auto_refund_from is None or not TOKEN_AMOUNT.fullmatch(self.auto_refund_from):
            raise BadRequestError("auto_refund_from must be a number of tokens, such as 7.5")
        return Decimal(self.auto_refund_from)

    async def changes(self, context: OperationContext) -> list[str]:
        before = to_json_value(await self._get_token(context.database))
        return [
            f"{name} of {self.symbol} on {self.chain} changes from {before[name]} to {value}"
            for name, value in details(self).items()
            if name not in ("chain", "symbol")
        ]

    async def check(self, context: OperationContext) -> None:
        await require_chain(context.database, self.chain)
        if self.address is not None:
            parse_checksum_address("address", self.address)
        if self.decimals is not None and not 0 <= self.decimals <= 18:  # noqa: PLR2004
            raise BadRequestError("decimals must be from 0 to 18")
        if self.minimum is not None and not 0 < self.minimum < 1 << 63:
            raise BadRequestError("minimum must be greater than zero and less than 2^63")
        await self._get_changed_token(context.database)

    async def apply(self, context: OperationContext, tx: Tx) -> TokenRecord:
        await lock_known_chain(tx, self.chain)
        check_approved(
            context, needs_approval=self._needs_second_operator(await self._get_token(tx))
        )
        token = await self._get_changed_token(tx)
        await chain_store.save_token(tx, token)
        return token

    async def _get_token(self, database: Executor) -> TokenRecord:
        """Return the current token. Raises `NOT_FOUND` if it does not exist."""
        await require_chain(database, self.chain)
        by_symbol = {
            token.symbol: token for token in await chain_store.list_tokens(database, self.chain)
        }
        if self.symbol not in by_symbol:
            names = f"use one of {', '.join(by_symbol)}" if by_symbol else "it has no tokens"
            raise NotFoundError(f"no token {quote_input(self.symbol)} on {self.chain}; {names}")
        return by_symbol[self.symbol]

    async def _get_changed_token(self, database: Executor) -> TokenRecord:
        """Return the changed token. Raises `BAD_REQUEST` for an invalid address."""
        token = await self._get_token(database)
        changes: dict[str, Any] = {
            name: getattr(self, name)
            for name in ("decimals", "approve_zero_first", "enabled")
            if getattr(self, name) is not None
        }
        changes |= self._parse_deposit_amounts()
        if self.minimum is not None:
            changes["minimum"] = Decimal(self.minimum)
        if self.auto_refund_from is not None:
            changes["auto_refund_from"] = self._parse_auto_refund_minimum()
        if self.address is not None:
            changes["address"] = address = parse_checksum_address("address", self.address)
            if (address == NATIVE) != token.native:
                raise BadRequestError("only the chain's native coin has the zero address")
            for other in await chain_store.list_tokens(database, self.chain):
                if other.address == address and other.symbol != self.symbol:
                    raise ConflictError(f"{self.address} is the address of {other.symbol}")
        return replace(token, **changes)
