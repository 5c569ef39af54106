"""The operation that configures a chain."""

import re
from dataclasses import replace
from decimal import Decimal
from typing import Annotated, ClassVar, Literal

from payintent.chains import store as chain_store
from payintent.chains.operations import (
    TOKEN_AMOUNT,
    ChainSlug,
    ChainView,
    load_chain_view,
    lock_known_chain,
    parse_checksum_address,
    require_chain,
)
from payintent.chains.store import ChainRecord
from payintent.core.errors import BadRequestError
from payintent.db.database import Executor, Tx
from payintent.evm.port import NATIVE
from payintent.merchants import store as merchant_store
from payintent.onchain import refund_logs_store as refund_log_store
from payintent.operators.fields import (
    check_web_url,
    option,
)
from payintent.operators.operation import (
    ChangeOperation,
    OperationContext,
    check_approved,
    details,
    to_json_value,
)

_CONFIRMATIONS_MAX = 10_000
_URLS_MAX = 10
_GAS_MAX = 10**12
_SWEEP_COUNT_MAX = 10_000
_SWEEP_AFTER_MAX_S = 30 * 86_400
_GWEI = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")
_FEE = re.compile(r"[0-9]{1,4}(\.[0-9]{1,6})?")
_INSTANT_FINALITY = "Trust nodes that report their latest block as final."
_DIRECT_FIELDS = (
    "finality",
    "confirmations",
    "instant_finality",
    "public_rpc_urls",
    "explorer_urls",
    "auto_refund_gas",
    "sweep_count",
    "sweep_after_s",
)


class SetChain(ChangeOperation[ChainView], frozen=True, kw_only=True):
    """Configure a chain: finality, wallet endpoints, refunds and sweeps.

    Omitted options remain unchanged. A new refunder sends all later refunds; refunds that earlier
    refunders have sent remain valid.
    """

    action: ClassVar[str] = "chain.set"
    chain: ChainSlug
    finality: Annotated[
        Literal["finalized", "confirmations"] | None,
        option("How blocks become final: as reported by nodes, or by number of confirmations."),
    ] = None
    confirmations: Annotated[
        int | None, option("Number of confirmations after which a block is final.")
    ] = None
    instant_finality: Annotated[bool | None, option(_INSTANT_FINALITY)] = None
    public_rpc_urls: Annotated[
        list[str] | None,
        option(
            "An endpoint for wallets, separate from the watcher's endpoints; repeatable.",
            repeated_as="public_rpc_url",
        ),
    ] = None
    explorer_urls: Annotated[
        list[str] | None,
        option("A block explorer for wallets; repeatable.", repeated_as="explorer_url"),
    ] = None
    refunder: Annotated[str | None, option("The address that sends new refunds.")] = None
    refund_approval_above: Annotated[
        str | None,
        option("Daily amount, in tokens, that a merchant can refund without approval."),
    ] = None
    auto_refund_gas: Annotated[
        int | None, option("Gas budget for automatic refunds per UTC day; 0 disables them.")
    ] = None
    sweeper: Annotated[
        str | None, option("The address that sends sweeps; it only needs coins for gas.")
    ] = None
    sweep_count: Annotated[
        int | None, option("Number of unswept deposit addresses that triggers a sweep.")
    ] = None
    sweep_after_s: Annotated[int | None, option("Age in seconds at which deposits are swept.")] = (
        None
    )
    sweep_gas_price_max: Annotated[
        str | None, option("Gas price in gwei above which sweeps wait; 0 means no limit.")
    ] = None
    transfer_fee_usd: Annotated[
        str | None,
        option("Typical token transfer fee in US dollars, shown to buyers unless it is 0."),
    ] = None

    async def needs_approval(self, context: OperationContext) -> bool:
        """Return whether the change affects senders, weakens finality or redirects wallets."""
        before = await require_chain(context.database, self.chain)
        return await self._needs_second_operator(context.database, before)

    async def _needs_second_operator(self, database: Executor, before: ChainRecord) -> bool:
        if (self.refunder, self.refund_approval_above, self.sweeper) != (None, None, None):
            return True
        if self.auto_refund_gas is not None and self.auto_refund_gas > before.auto_refund_gas:
            return True
        weakens_protection = self._redirects_wallets(before) or self._weakens_finality(before)
        return weakens_protection and await merchant_store.has_gone_live(database)

    def _redirects_wallets(self, before: ChainRecord) -> bool:
        """Return whether wallets would be directed to a new URL."""
        return bool(
            set(self.public_rpc_urls or ()) - {"", *before.public_rpc_urls}
            or set(self.explorer_urls or ()) - {"", *before.explorer_urls}
        )

    def _weakens_finality(self, before: ChainRecord) -> bool:
        """Return whether payments could count as final sooner."""
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
            f"{name} of {self.chain} changes from {before[name]} to {value}"
            for name, value in details(self).items()
            if name != "chain"
        ]

    async def check(self, context: OperationContext) -> None:
        chain = await require_chain(context.database, self.chain)
        self._parse_refund_settings()
        self._parse_sweep_settings()
        self._parse_transfer_fee()
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
        check_approved(context, needs_approval=await self._needs_second_operator(tx, before))
        refunder, threshold = self._parse_refund_settings()
        if refunder is not None:
            earlier_refunders = [address for address in before.refunders if address != refunder]
            changes["refunders"] = [*earlier_refunders, refunder]
            await refund_log_store.reset_dispositions(tx, self.chain, refunder)
        if threshold is not None:
            changes["refund_approval_above"] = threshold
        changes |= self._parse_sweep_settings() | self._parse_transfer_fee()
        chain = replace(before, **changes)
        self._check_finality(chain)
        await chain_store.save_chain(tx, chain)
        return await load_chain_view(tx, chain)

    def _check_finality(self, chain: ChainRecord) -> None:
        if self.finality == "confirmations" and chain.confirmations is None:
            raise BadRequestError(
                "finality `confirmations` requires a number of confirmations to be set for "
                f"{self.chain}"
            )

    def _parse_sweep_settings(self) -> dict[str, bytes | Decimal]:
        """Parse the sweeper and its gas price limit, and check the policy."""
        settings: dict[str, bytes | Decimal] = {}
        if self.sweep_count is not None and not 1 <= self.sweep_count <= _SWEEP_COUNT_MAX:
            raise BadRequestError(f"sweep_count must be from 1 to {_SWEEP_COUNT_MAX}")
        if self.sweep_after_s is not None and not 0 <= self.sweep_after_s <= _SWEEP_AFTER_MAX_S:
            raise BadRequestError(f"sweep_after_s must be from 0 to {_SWEEP_AFTER_MAX_S}")
        if self.sweeper is not None:
            settings["sweeper"] = sweeper = parse_checksum_address("sweeper", self.sweeper)
            if sweeper == NATIVE:
                raise BadRequestError("sweeper must not be the zero address")
        if self.sweep_gas_price_max is not None:
            if not _GWEI.fullmatch(self.sweep_gas_price_max):
                raise BadRequestError("sweep_gas_price_max must be a number of gwei, such as 7.5")
            settings["sweep_gas_price_max"] = Decimal(self.sweep_gas_price_max)
        return settings

    def _parse_transfer_fee(self) -> dict[str, Decimal]:
        if self.transfer_fee_usd is None:
            return {}
        if not _FEE.fullmatch(self.transfer_fee_usd):
            raise BadRequestError("transfer_fee_usd must be a number of US dollars, such as 0.25")
        return {"transfer_fee_usd": Decimal(self.transfer_fee_usd)}

    def _parse_refund_settings(self) -> tuple[bytes | None, Decimal | None]:
        """Parse the refunder and the amount above which refunds need approval."""
        refunder = (
            None if self.refunder is None else parse_checksum_address("refunder", self.refunder)
        )
        if refunder == NATIVE:
            raise BadRequestError("refunder must not be the zero address")
        if self.refund_approval_above is None:
            return refunder, None
        if not TOKEN_AMOUNT.fullmatch(self.refund_approval_above):
            raise BadRequestError("refund_approval_above must be a number of tokens, such as 1000")
        return refunder, Decimal(self.refund_approval_above)
