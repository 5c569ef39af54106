"""Configure tokens: their contract, decimals, and whether they are accepted."""

from dataclasses import replace
from decimal import Decimal
from typing import Annotated, Any, ClassVar

from payintent.chains import store as chain_store
from payintent.chains.operations import (
    TOKENS,
    ChainSlug,
    lock_known_chain,
    read_address,
    require_chain,
)
from payintent.chains.store import TokenRecord
from payintent.core.errors import BadRequestError, NotFoundError
from payintent.db.database import Executor, Tx
from payintent.evm.port import NATIVE
from payintent.operators.fields import argument, option
from payintent.operators.operation import (
    ChangeOperation,
    OperationContext,
    check_approved,
    details,
    to_json_value,
)


class SetToken(ChangeOperation[TokenRecord], frozen=True, kw_only=True):
    """Configure a token. Options that are not given keep their value."""

    action: ClassVar[str] = "chain.set-token"
    chain: ChainSlug
    symbol: Annotated[str, argument("The token, such as USDT.")]
    address: Annotated[str | None, option("The contract of the token.")] = None
    decimals: Annotated[int | None, option("The decimals in the token contract.")] = None
    approve_zero_first: Annotated[
        bool | None, option("An allowance must be set to zero before it is changed.")
    ] = None
    minimum: Annotated[int | None, option("The minimum in our contract, in the smallest unit.")] = (
        None
    )
    enabled: Annotated[
        bool | None, option("Whether it is offered to buyers.", flags="--enabled/--disabled")
    ] = None
    auto_refund_from: Annotated[
        str | None,
        option("Smallest amount that is worth the gas of an automatic refund, in tokens."),
    ] = None

    async def needs_approval(self, context: OperationContext) -> bool:
        """Return True if the address or decimals change, or `auto_refund_from` is lowered."""
        return self._decides_money(await self._get_current(context.database))

    def _decides_money(self, before: TokenRecord) -> bool:
        if self.address is not None or self.decimals is not None:
            return True
        return self.auto_refund_from is not None and self._parse_floor() < before.auto_refund_from

    def _parse_floor(self) -> Decimal:
        """Parse the minimum amount of automatic refunds; raises `BAD_REQUEST`."""
        if self.auto_refund_from is None or not TOKENS.fullmatch(self.auto_refund_from):
            raise BadRequestError("auto_refund_from must be a number of tokens, such as 7.5")
        return Decimal(self.auto_refund_from)

    async def changes(self, context: OperationContext) -> list[str]:
        before = to_json_value(await self._get_current(context.database))
        return [
            f"{name} of {self.symbol} on {self.chain} becomes {value} instead of {before[name]}"
            for name, value in details(self).items()
            if name not in ("chain", "symbol")
        ]

    async def check(self, context: OperationContext) -> None:
        await require_chain(context.database, self.chain)
        if self.address is not None:
            read_address("address", self.address)
        if self.decimals is not None and not 0 <= self.decimals <= 18:  # noqa: PLR2004
            raise BadRequestError("decimals must be from 0 to 18")
        if self.minimum is not None and not 0 < self.minimum < 1 << 63:
            raise BadRequestError("minimum must be greater than zero")
        await self._get_changed(context.database)

    async def apply(self, context: OperationContext, tx: Tx) -> TokenRecord:
        await lock_known_chain(tx, self.chain)
        check_approved(context, needs_approval=self._decides_money(await self._get_current(tx)))
        token = await self._get_changed(tx)
        await chain_store.save_token(tx, token)
        return token

    async def _get_current(self, database: Executor) -> TokenRecord:
        """Return the current token; raises `NOT_FOUND`."""
        await require_chain(database, self.chain)
        by_symbol = {
            token.symbol: token for token in await chain_store.list_tokens(database, self.chain)
        }
        if self.symbol not in by_symbol:
            names = ", ".join(by_symbol)
            raise NotFoundError(f"the tokens of {self.chain} are {names}")
        return by_symbol[self.symbol]

    async def _get_changed(self, database: Executor) -> TokenRecord:
        """Return the changed token; raises `BAD_REQUEST` for an invalid address."""
        token = await self._get_current(database)
        changes: dict[str, Any] = {
            name: getattr(self, name)
            for name in ("decimals", "approve_zero_first", "enabled")
            if getattr(self, name) is not None
        }
        if self.minimum is not None:
            changes["minimum"] = Decimal(self.minimum)
        if self.auto_refund_from is not None:
            changes["auto_refund_from"] = self._parse_floor()
        if self.address is not None:
            changes["address"] = read_address("address", self.address)
            if (changes["address"] == NATIVE) != token.native:
                raise BadRequestError("only the native coin of the chain has the zero address")
        return replace(token, **changes)
