"""Operations on chains: configuration, contracts, and resuming a halted chain."""

from dataclasses import replace
from decimal import Decimal
from typing import Annotated, ClassVar, Literal

from payintent.domain.errors import BadRequestError, ConflictError, NotFoundError
from payintent.domain.onchain import PROVIDER
from payintent.domain.onchain_refund import NATIVE
from payintent.operations.accounts import NewSeal, seal_credentials
from payintent.operations.base import (
    ChangeOperation,
    OperationContext,
    ReadOperation,
    check_agreed,
    details,
)
from payintent.operations.chain_arguments import (
    TOKENS,
    ChainSlug,
    lock_known_chain,
    read_address,
    require_chain,
)
from payintent.operations.chain_views import ChainView, ContractView, contract_view, load_chain_view
from payintent.operations.contract_code import check_code
from payintent.operations.fields import OwnerId, Purpose, argument, option
from payintent.operations.json_values import to_json_value
from payintent.operations.keyring import ensure_writing_key
from payintent.operations.validation import (
    check_merchant,
    check_name,
    check_web_url,
    is_database_id,
)
from payintent.storage import accounts, merchants
from payintent.storage.accounts import NewAccount
from payintent.storage.database import Executor, Tx
from payintent.storage.onchain import chains, refund_logs
from payintent.storage.onchain.chains import ChainCursor, ChainRecord, DeployedContract

_CONFIRMATIONS_MAX = 10_000
_URLS_MAX = 10
_GAS_MAX = 10**12
_BLOCK_MAX = 1 << 62
_INSTANT_FINALITY = "Trust nodes that report their latest block as final."


class ListChains(ReadOperation[list[ChainView]], frozen=True, kw_only=True):
    """List chains with their progress, contracts and tokens."""

    action: ClassVar[str] = "chain.list"
    columns = ("slug", "network_id", "finality", "confirmations", "block", "head", "halted")

    async def read(self, context: OperationContext) -> list[ChainView]:
        return [
            await load_chain_view(context.database, chain)
            for chain in await chains.list_chains(context.database)
        ]


class AddContract(ChangeOperation[ContractView], frozen=True, kw_only=True):
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
        """Return True: the contract passes buyers' money to its receiver."""
        return True

    async def changes(self, context: OperationContext) -> list[str]:
        owner = "the platform" if self.merchant_id is None else f"merchant {self.merchant_id}"
        return [
            f"payments to {owner} on {self.chain} go through the contract {self.address}",
            f"and from there to {self.receiver}",
        ]

    async def check(self, context: OperationContext) -> None:
        """Check the contract on the chain, both when it is proposed and when it is approved."""
        chain = await require_chain(context.database, self.chain)
        check_name("name", self.name or "-")
        address = await self._check_new(context.database)
        receiver = read_address("receiver", self.receiver)
        if not 0 <= self.deployed_block <= _BLOCK_MAX:
            raise BadRequestError("deployed_block must be the number of a block")
        if self.merchant_id is not None:
            await check_merchant(context.database, self.merchant_id)
        await check_code(context, chain, address, receiver)

    async def apply(self, context: OperationContext, tx: Tx) -> ContractView:
        """Create an account for the contract, and read the chain from its block."""
        await ensure_writing_key(tx, context.encryption)
        chain = await require_chain(tx, self.chain)
        address = await self._check_new(tx)
        new = NewAccount(
            provider=PROVIDER,
            merchant_id=self.merchant_id,
            name=self.name,
            base_url=f"evm:{self.chain}",
        )
        account_id = await accounts.add(tx, new)
        credentials = {"chain": self.chain, "network_id": str(chain.network_id)}
        account = NewSeal(account_id, PROVIDER, f"evm:{self.chain}")
        await seal_credentials(context, tx, account, credentials)
        row = DeployedContract(
            account_id=account_id,
            chain=self.chain,
            address=address,
            receiver=read_address("receiver", self.receiver),
            deployed_block=self.deployed_block,
            current=True,
        )
        await chains.add_contract(tx, row)
        return contract_view(row, self.merchant_id)

    async def _check_new(self, database: Executor) -> bytes:
        """Parse the address; raise `CONFLICT` if it is already a contract of ours."""
        address = read_address("address", self.address)
        if any(
            contract.address == address
            for contract in await chains.list_contracts(database, self.chain)
        ):
            raise ConflictError(f"{self.address} on {self.chain} is already a contract of ours")
        return address


class RetireContract(ChangeOperation[ContractView], frozen=True, kw_only=True):
    """Stop offering a contract. It stays watched."""

    action: ClassVar[str] = "chain.retire-contract"
    is_destructive: ClassVar[bool] = True
    account_id: Annotated[int, argument("The account of the contract.")]

    async def apply(self, context: OperationContext, tx: Tx) -> ContractView:
        account = (
            await accounts.lock(tx, self.account_id) if is_database_id(self.account_id) else None
        )
        retired = await chains.retire_contract(tx, self.account_id) if account else None
        if account is None or retired is None:
            raise NotFoundError(f"no contract has account {self.account_id}")
        await accounts.update(tx, replace(account, enabled=False))
        return contract_view(retired, account.merchant_id)


class SetChain(ChangeOperation[ChainView], frozen=True, kw_only=True):
    """Configure a chain: finality, wallet endpoints and refunds.

    Options that are not given keep their value. A new refunder takes over; refunds that earlier
    refunders have sent still count.
    """

    action: ClassVar[str] = "chain.set"
    chain: ChainSlug
    finality: Annotated[
        Literal["finalized", "confirmations"] | None,
        option("How blocks become final: by the nodes, or after a number of confirmations."),
    ] = None
    confirmations: Annotated[
        int | None, option("Number of later blocks that make a block final.")
    ] = None
    instant_finality: Annotated[bool | None, option(_INSTANT_FINALITY)] = None
    public_rpc_urls: Annotated[
        list[str] | None,
        option(
            "An endpoint for wallets, never one of the watcher; can be repeated.",
            repeated_as="public_rpc_url",
        ),
    ] = None
    explorer_urls: Annotated[
        list[str] | None,
        option("A block explorer for wallets; can be repeated.", repeated_as="explorer_url"),
    ] = None
    refunder: Annotated[str | None, option("The address that sends refunds from now on.")] = None
    refund_approval_above: Annotated[
        str | None,
        option("Tokens that a merchant may refund in a day without approval."),
    ] = None
    auto_refund_gas: Annotated[
        int | None, option("Gas that automatic refunds may use in a day (UTC); 0 turns them off.")
    ] = None

    async def needs_approval(self, context: OperationContext) -> bool:
        """Return True for the refunder, and for settings that protect money or direct wallets."""
        before = await require_chain(context.database, self.chain)
        return await self._needs_second_operator(context.database, before)

    async def _needs_second_operator(self, database: Executor, before: ChainRecord) -> bool:
        if self.refunder is not None or self.refund_approval_above is not None:
            return True
        if self.auto_refund_gas is not None and self.auto_refund_gas > before.auto_refund_gas:
            return True
        weakens_protection = self._redirects_wallets(before) or self._weakens_finality(before)
        return weakens_protection and await merchants.is_in_service(database)

    def _redirects_wallets(self, before: ChainRecord) -> bool:
        """Return True if wallets would be directed to a new address."""
        return bool(
            set(self.public_rpc_urls or ()) - {"", *before.public_rpc_urls}
            or set(self.explorer_urls or ()) - {"", *before.explorer_urls}
        )

    def _weakens_finality(self, before: ChainRecord) -> bool:
        """Return True if payments could count as final sooner."""
        return (
            self.finality not in {None, before.finality}
            or (self.instant_finality is True and not before.instant_finality)
            or (self.confirmations or _CONFIRMATIONS_MAX)
            < (before.confirmations or _CONFIRMATIONS_MAX)
        )

    async def changes(self, context: OperationContext) -> list[str]:
        before = to_json_value(
            await load_chain_view(
                context.database, await require_chain(context.database, self.chain)
            )
        )
        before["refunder"] = before["refunders"][-1] if before["refunders"] else "none"
        return [
            f"{name} of {self.chain} becomes {value} instead of {before[name]}"
            for name, value in details(self).items()
            if name != "chain"
        ]

    async def check(self, context: OperationContext) -> None:
        chain = await require_chain(context.database, self.chain)
        self._parse_refund_settings()
        if self.auto_refund_gas is not None and not 0 <= self.auto_refund_gas <= _GAS_MAX:
            raise BadRequestError(f"auto_refund_gas must be from 0 to {_GAS_MAX}")
        if self.confirmations is not None and not 1 <= self.confirmations <= _CONFIRMATIONS_MAX:
            raise BadRequestError(f"confirmations must be from 1 to {_CONFIRMATIONS_MAX}")
        for name in ("public_rpc_urls", "explorer_urls"):
            urls: list[str] = getattr(self, name) or []
            if len(urls) > _URLS_MAX:
                raise BadRequestError(f"{name} must have at most {_URLS_MAX} URLs")
            for url in urls:
                check_web_url(name, url, sandbox=context.settings.sandbox)
        self._check_finality(
            replace(chain, confirmations=self.confirmations or chain.confirmations)
        )

    async def apply(self, context: OperationContext, tx: Tx) -> ChainView:
        changes = {
            name: getattr(self, name) for name in _DIRECT_FIELDS if getattr(self, name) is not None
        }
        before = await lock_known_chain(tx, self.chain)
        check_agreed(context, needs_approval=await self._needs_second_operator(tx, before))
        refunder, above = self._parse_refund_settings()
        if refunder is not None:
            earlier = [address for address in before.refunders if address != refunder]
            changes["refunders"] = [*earlier, refunder]
            await refund_logs.reset_dispositions(tx, self.chain, refunder)
        if above is not None:
            changes["refund_approval_above"] = above
        row = replace(before, **changes)
        self._check_finality(row)
        await chains.save_chain(tx, row)
        return await load_chain_view(tx, row)

    def _check_finality(self, row: ChainRecord) -> None:
        if self.finality == "confirmations" and row.confirmations is None:
            raise BadRequestError(f"finality `confirmations` needs confirmations on {self.chain}")

    def _parse_refund_settings(self) -> tuple[bytes | None, Decimal | None]:
        """Parse the refunder, and the amount above which refunds need approval."""
        refunder = None if self.refunder is None else read_address("refunder", self.refunder)
        if refunder == NATIVE:
            raise BadRequestError("refunder must not be the zero address")
        if self.refund_approval_above is None:
            return refunder, None
        if not TOKENS.fullmatch(self.refund_approval_above):
            raise BadRequestError("refund_approval_above must be a number of tokens, such as 1000")
        return refunder, Decimal(self.refund_approval_above)


_DIRECT_FIELDS = (
    "finality",
    "confirmations",
    "instant_finality",
    "public_rpc_urls",
    "explorer_urls",
    "auto_refund_gas",
)


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
        """Resume the chain; stored logs are not classified again."""
        cursor = await chains.resume(tx, self.chain, self.block)
        if cursor is None:
            raise NotFoundError(f"no contract of ours is on {self.chain}")
        return cursor
