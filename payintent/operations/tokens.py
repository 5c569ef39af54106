"""The tokens that are taken on a chain: whether, where their contract is, and their decimals."""

from dataclasses import replace
from decimal import Decimal
from typing import Annotated, Any, ClassVar

from payintent.domain.errors import BadRequestError, NotFoundError
from payintent.domain.onchain_refund import NATIVE
from payintent.operations.base import ChangeOperation, OperationContext, check_agreed, details
from payintent.operations.chain_arguments import (
    TOKENS,
    ChainSlug,
    lock_known_chain,
    read_address,
    require_chain,
)
from payintent.operations.chain_views import TokenView, token_view
from payintent.operations.fields import argument, option
from payintent.operations.json_values import to_json_value
from payintent.storage.database import Executor, Tx
from payintent.storage.onchain import chains
from payintent.storage.onchain.chains import TokenRecord


class SetToken(ChangeOperation[TokenView], frozen=True, kw_only=True):
    """Say where a token is and whether it is taken; what is not given stays."""

    action: ClassVar[str] = "chain.set-token"
    chain: ChainSlug
    symbol: Annotated[str, argument("Such as USDT.")]
    address: Annotated[str | None, option("The token's contract.")] = None
    decimals: Annotated[int | None, option("As the token itself says.")] = None
    approve_zero_first: Annotated[
        bool | None, option("An allowance must be zero before it is changed.")
    ] = None
    minimum: Annotated[int | None, option("In the smallest unit, as our contract has it.")] = None
    enabled: Annotated[
        bool | None, option("Whether buyers are offered it.", flags="--enabled/--disabled")
    ] = None
    auto_refund_from: Annotated[
        str | None, option("So many tokens, worth the gas; less is refunded by a person alone.")
    ] = None

    async def needs_approval(self, context: OperationContext) -> bool:
        """Need it for what decides which coins pay, and how many, and for a lower floor."""
        return self._decides_money(await self._before(context.database))

    def _decides_money(self, before: TokenRecord) -> bool:
        if self.address is not None or self.decimals is not None:
            return True
        return self.auto_refund_from is not None and self._floor() < before.auto_refund_from

    def _floor(self) -> Decimal:
        """Read the floor; raise `BAD_REQUEST` unless it is a number of tokens."""
        if self.auto_refund_from is None or not TOKENS.fullmatch(self.auto_refund_from):
            raise BadRequestError("auto_refund_from is a number of tokens, such as 7.5")
        return Decimal(self.auto_refund_from)

    async def changes(self, context: OperationContext) -> list[str]:
        before = to_json_value(token_view(await self._before(context.database)))
        return [
            f"{name} of {self.symbol} on {self.chain} becomes {value}; it is {before[name]}"
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
        await self._changed(context.database)

    async def apply(self, context: OperationContext, tx: Tx) -> TokenView:
        await lock_known_chain(tx, self.chain)
        check_agreed(context, needs_approval=self._decides_money(await self._before(tx)))
        token = await self._changed(tx)
        await chains.save_token(tx, token)
        return token_view(token)

    async def _before(self, database: Executor) -> TokenRecord:
        """Return the token as it is; raise `NOT_FOUND` if the chain has none of this symbol."""
        await require_chain(database, self.chain)
        by_symbol = {
            token.symbol: token for token in await chains.list_tokens(database, self.chain)
        }
        if self.symbol not in by_symbol:
            names = ", ".join(by_symbol)
            raise NotFoundError(f"the tokens of {self.chain} are {names}")
        return by_symbol[self.symbol]

    async def _changed(self, database: Executor) -> TokenRecord:
        """Return the token as it will be; refuse one that is unknown or cannot be there."""
        token = await self._before(database)
        given: dict[str, Any] = {
            name: getattr(self, name)
            for name in ("decimals", "approve_zero_first", "minimum", "enabled")
            if getattr(self, name) is not None
        }
        if self.auto_refund_from is not None:
            given["auto_refund_from"] = self._floor()
        if self.address is not None:
            given["address"] = read_address("address", self.address)
            if (given["address"] == NATIVE) != token.native:
                raise BadRequestError("the chain's own coin, and no other, is at zero")
        return replace(token, **given)
